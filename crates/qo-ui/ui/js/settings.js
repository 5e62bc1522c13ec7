// User settings, stored in the browser. Credentials are never stored.

const NAME = 'qo-dashboard';
export const INTERVALS = [0, 5, 10, 30];
export const THEMES = ['system', 'light', 'dark'];
export const TIMES = ['relative', 'absolute'];

const settings = { refreshSeconds: 10, theme: 'system', times: 'relative', ...stored() };

export function getSettings() {
  return settings;
}

export function changeSettings(change) {
  Object.assign(settings, change);
  try {
    localStorage.setItem(NAME, JSON.stringify(settings));
  } catch {
    // Without storage, settings last until the page is closed.
  }
  applyTheme();
}

export function applyTheme() {
  if (settings.theme === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = settings.theme;
}

function stored() {
  try {
    const found = JSON.parse(localStorage.getItem(NAME) ?? '{}');
    const known = {};
    if (INTERVALS.includes(found.refreshSeconds)) known.refreshSeconds = found.refreshSeconds;
    if (THEMES.includes(found.theme)) known.theme = found.theme;
    if (TIMES.includes(found.times)) known.times = found.times;
    return known;
  } catch {
    return {};
  }
}
