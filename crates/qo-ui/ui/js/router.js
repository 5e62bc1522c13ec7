// Routes such as `#/tasks?tab=failed&q=type%3Aresize`. Credentials in the fragment are removed from the address at once.

/** @returns {{path: string[], params: URLSearchParams}} */
export function readRoute(hash = location.hash) {
  const [path, query] = hash.replace(/^#\/?/, '').split('?');
  return { path: path.split('/').filter(Boolean).map(decodeURIComponent), params: new URLSearchParams(query ?? '') };
}

export function address(path, params = {}) {
  const query = new URLSearchParams(Object.entries(params).filter(([, value]) => value !== undefined && value !== ''));
  const text = query.toString();
  return `#/${path}${text ? `?${text}` : ''}`;
}

/** Navigates to a route. With `replace`, the current history entry is replaced. */
export function go(path, params, { replace = false } = {}) {
  const target = address(path, params);
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
  const found = /^#connect=([A-Za-z0-9_-]+)(?:&go=([^&]*))?$/.exec(location.hash);
  if (!found) return undefined;
  const [, encoded, target] = found;
  const path = target ? decodeURIComponent(target).replace(/^\/+/, '') : 'overview';
  history.replaceState(null, '', `#/${path}`);
  try {
    const bytes = Uint8Array.from(atob(encoded.replaceAll('-', '+').replaceAll('_', '/')), (letter) => letter.charCodeAt(0));
    const payload = JSON.parse(new TextDecoder().decode(bytes));
    return payload && typeof payload === 'object' ? payload : undefined;
  } catch {
    return undefined;
  }
}
