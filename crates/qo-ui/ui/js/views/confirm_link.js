// Asks before a link connects this page to a server or store on another host: anyone can write such a link.

import { h } from '../dom.js';
import { button } from '../widgets/basics.js';

/** The host that a connection leads to, if it is not the host of this page. */
export function foreignHost(connection, page = location) {
  let host;
  try {
    ({ host } = new URL(connection.kind === 'http' ? connection.url : connection.endpoint));
  } catch {
    return undefined;
  }
  // A bucket's own host name ends with that of its endpoint.
  const isOwn = host === page.host || (connection.kind === 's3' && page.host === `${connection.bucket}.${host}`);
  return isOwn ? undefined : host;
}

export class ConfirmLinkView {
  title = 'Confirm the connection';

  constructor({ host, connection, accept, refuse }) {
    Object.assign(this, { host, connection, accept, refuse });
  }

  async load() {}

  render() {
    const what = this.connection.kind === 'http' ? 'the qo server' : `the bucket ${this.connection.bucket} at`;
    return h('main', { id: 'main', class: 'connect', tabindex: '-1' },
      h('h1', {}, 'Connect to another host?'),
      h('p', {}, `This link connects the page to ${what} `, h('strong', { class: 'mono' }, this.host), ', which is not the host of this page.'),
      h('p', { class: 'lead' }, 'Continue only if you know this host and trust who gave you the link. Tasks that you submit or change go there.'),
      h('footer', { class: 'choices-line' },
        button('Do not connect', this.refuse, { key: 'refuse' }),
        button(`Connect to ${this.host}`, this.accept, { kind: 'primary', key: 'accept' })));
  }
}
