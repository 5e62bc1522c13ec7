// Addresses: `#/tasks?tab=failed&q=type%3Aresize`. What is handed over in the fragment is taken out of the address at once.

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

/** Goes somewhere. With `replace`, the place before is forgotten. */
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
 * What a link of `qo ui link` hands over: `#connect=BASE64URL(JSON)`, and where to go. It is removed from the address and from
 * the history before anything else happens.
 */
export function takeHandover() {
  const found = /^#connect=([A-Za-z0-9_-]+)(?:&go=([^&]*))?$/.exec(location.hash);
  if (!found) return undefined;
  const [, encoded, place] = found;
  const path = place ? decodeURIComponent(place).replace(/^\/+/, '') : 'overview';
  history.replaceState(null, '', `#/${path}`);
  try {
    const bytes = Uint8Array.from(atob(encoded.replaceAll('-', '+').replaceAll('_', '/')), (letter) => letter.charCodeAt(0));
    const handed = JSON.parse(new TextDecoder().decode(bytes));
    return handed && typeof handed === 'object' ? handed : undefined;
  } catch {
    return undefined;
  }
}
