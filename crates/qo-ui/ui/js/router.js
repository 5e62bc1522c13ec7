// Routes such as `#/tasks?tab=failed&q=type%3Aresize`. Credentials in the fragment are removed from the address at once.

/** @returns {{path: string[], params: URLSearchParams}} */
export function readRoute(hash = location.hash) {
  const [path, query] = hash.replace(/^#\/?/, '').split('?');
  return { path: path.split('/').filter(Boolean).map(decoded), params: new URLSearchParams(query ?? '') };
}

/** Decodes a part of an address. Anyone can write an address, so one that is not well-formed is taken as it is. */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function address(path, params = {}) {
  const query = new URLSearchParams(Object.entries(params).filter(([, value]) => value !== undefined && value !== ''));
  const text = query.toString();
  return `#/${path.split('/').map(encodeURIComponent).join('/')}${text ? `?${text}` : ''}`;
}

/** Navigates to a route. With `replace`, the current history entry is replaced. */
export function go(path, params, { replace = false } = {}) {
  goTo(address(path, params), { replace });
}

/** Navigates to the address of a route. */
export function goTo(target, { replace = false } = {}) {
  if (target === location.hash) return;
  if (replace) {
    history.replaceState(null, '', target);
    window.dispatchEvent(new HashChangeEvent('hashchange'));
  } else {
    location.hash = target;
  }
}

/**
 * The payload of a link from `qo ui link`: `#connect=BASE64URL(JSON)`, optionally with the page to open. It is removed from the address
 * and the history before anything else happens.
 */
export function takeLinkPayload() {
  if (!location.hash.startsWith('#connect=')) return undefined;
  const found = /^#connect=([A-Za-z0-9_-]+)(?:&go=([^&]*))?$/.exec(location.hash);
  const path = found?.[2] ? decoded(found[2]).replace(/^\/+/, '') : 'overview';
  history.replaceState(null, '', `#/${path}`);
  if (!found) return undefined;
  try {
    const bytes = Uint8Array.from(atob(found[1].replaceAll('-', '+').replaceAll('_', '/')), (letter) => letter.charCodeAt(0));
    const payload = JSON.parse(new TextDecoder().decode(bytes));
    return payload && typeof payload === 'object' ? payload : undefined;
  } catch {
    return undefined;
  }
}
