// The settings page: connection, refresh interval and theme.

import { h } from '../dom.js';
import { changeSettings, getSettings, INTERVALS, THEMES, TIMES } from '../settings.js';
import { button, facts, panel, timeOf } from '../widgets/basics.js';

export class SettingsView {
  title = 'Settings';

  constructor({ app }) {
    this.app = app;
    this.source = app.source;
  }

  async load() {}

  render() {
    const { source } = this;
    const settings = getSettings();
    const sourceFacts = source.kind === 's3'
      ? [['Kind', 'Bucket, read by this browser'], ['Endpoint', source.connection.endpoint], ['Bucket', source.connection.bucket], ['Prefix', source.connection.prefix || 'none'], ['Region', source.connection.region || 'us-east-1']]
      : [['Kind', 'qo server'], ['Server', source.connection.url]];
    return h('main', { id: 'main', class: 'settings', tabindex: '-1' },
      h('div', { class: 'page-head' }, h('h1', {}, 'Settings')),
      panel('Source', { tools: button('Disconnect', () => this.app.disconnect()) },
        facts([...sourceFacts,
          ['Access', source.readOnly ? 'read-only' : 'read and write'],
          source.expires && ['Session expires', timeOf(source.expires, source)],
          ['Credentials', 'in memory only, until this tab is closed or reloaded']]),
        h('label', { class: 'check' }, h('input', {
          type: 'checkbox', checked: source.readOnly, disabled: !source.mayWrite,
          on: { change: (event) => { source.readOnly = event.target.checked; this.app.redraw(); } },
        }), 'Read-only: disable all actions')),
      panel('Refresh', { note: 'paused while the tab is hidden' },
        choices('refresh', 'Refresh interval', INTERVALS, settings.refreshSeconds, (seconds) => (seconds === 0 ? 'Off' : `${seconds} s`), (refreshSeconds) => {
          changeSettings({ refreshSeconds });
          this.app.schedule();
          this.app.redraw();
        })),
      panel('Times', { note: 'in the time zone of this device; a tap on any time switches too' },
        choices('times', 'Times', TIMES, settings.times, (times) => times[0].toUpperCase() + times.slice(1), (times) => {
          changeSettings({ times });
          this.app.redraw();
        })),
      panel('Theme', {},
        choices('theme', 'Theme', THEMES, settings.theme, (theme) => theme[0].toUpperCase() + theme.slice(1), (theme) => {
          changeSettings({ theme });
          this.app.redraw();
        })));
  }
}

function choices(name, label, values, chosen, text, choose) {
  return h('div', { class: 'choices', role: 'radiogroup', 'aria-label': label }, values.map((value) => h('label', { key: String(value) },
    h('input', { type: 'radio', name, value: String(value), checked: value === chosen, on: { change: () => choose(value) } }),
    h('span', {}, text(value)))));
}
