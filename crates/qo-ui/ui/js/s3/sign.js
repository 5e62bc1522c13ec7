// AWS Signature Version 4 with Web Crypto, in headers and in URLs.

const encoder = new TextEncoder();
const UNSIGNED = 'UNSIGNED-PAYLOAD';

/** Signs a request with headers. `url` must already be encoded. Returns the headers to send. */
export async function signHeaders({ method, url, headers = {}, body, credentials, region, now }) {
  const time = amzTime(now);
  const payloadHash = hex(await sha256(body ?? ''));
  const all = { ...headers, 'x-amz-content-sha256': payloadHash, 'x-amz-date': time };
  if (credentials.sessionToken) all['x-amz-security-token'] = credentials.sessionToken;
  const { scope, signed, signature } = await sign({
    method, url, headers: { ...all, host: url.host }, payloadHash, credentials, region, time,
  });
  all.authorization =
    `AWS4-HMAC-SHA256 Credential=${credentials.accessKeyId}/${scope}, SignedHeaders=${signed}, Signature=${signature}`;
  return all;
}

/** Signs a request in its URL, so that the browser needs no CORS preflight. */
export async function signUrl({ method, url, credentials, region, now, expiresSeconds = 300 }) {
  const time = amzTime(now);
  const signedUrl = new URL(url);
  const query = {
    'X-Amz-Algorithm': 'AWS4-HMAC-SHA256',
    'X-Amz-Credential': `${credentials.accessKeyId}/${scopeOf(time, region)}`,
    'X-Amz-Date': time,
    'X-Amz-Expires': String(expiresSeconds),
    'X-Amz-SignedHeaders': 'host',
  };
  if (credentials.sessionToken) query['X-Amz-Security-Token'] = credentials.sessionToken;
  const parts = [signedUrl.search.slice(1), ...Object.entries(query).map(([name, value]) => `${name}=${escape(value)}`)];
  signedUrl.search = parts.filter(Boolean).join('&');
  const { signature } = await sign({
    method, url: signedUrl, headers: { host: url.host }, payloadHash: UNSIGNED, credentials, region, time,
  });
  signedUrl.search += `&X-Amz-Signature=${signature}`;
  return signedUrl;
}

/** Escapes a text for S3: everything but letters, digits, `-`, `_`, `.` and `~`. */
export function escape(text) {
  return encodeURIComponent(text).replace(/[!'()*]/g, (letter) => `%${letter.charCodeAt(0).toString(16).toUpperCase()}`);
}

export async function sha256(data) {
  return crypto.subtle.digest('SHA-256', typeof data === 'string' ? encoder.encode(data) : data);
}

export function hex(buffer) {
  return Array.from(new Uint8Array(buffer), (byte) => byte.toString(16).padStart(2, '0')).join('');
}

async function sign({ method, url, headers, payloadHash, credentials, region, time }) {
  const names = Object.keys(headers).map((name) => name.toLowerCase()).sort();
  const lower = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));
  const signed = names.join(';');
  const query = url.search.slice(1).split('&').filter(Boolean)
    .map((pair) => (pair.includes('=') ? pair : `${pair}=`)).sort().join('&');
  const canonical = [
    method,
    url.pathname,
    query,
    ...names.map((name) => `${name}:${String(lower[name]).trim().replace(/\s+/g, ' ')}`),
    '',
    signed,
    payloadHash,
  ].join('\n');
  const scope = scopeOf(time, region);
  const toSign = ['AWS4-HMAC-SHA256', time, scope, hex(await sha256(canonical))].join('\n');
  const key = await signingKey(credentials.secretAccessKey, time.slice(0, 8), region);
  return { scope, signed, signature: hex(await hmac(key, toSign)) };
}

const scopeOf = (time, region) => `${time.slice(0, 8)}/${region}/s3/aws4_request`;
const amzTime = (now) => new Date(now).toISOString().replace(/[-:]|\.\d{3}/g, '');

/** The signing key of a day and a region. It is kept in memory only, like the secret key. */
let derived = { name: undefined, key: undefined };

async function signingKey(secret, day, region) {
  const name = `${secret}/${day}/${region}`;
  if (derived.name !== name) {
    let key = encoder.encode(`AWS4${secret}`);
    for (const part of [day, region, 's3', 'aws4_request']) key = await hmac(key, part);
    derived = { name, key };
  }
  return derived.key;
}

async function hmac(key, text) {
  const imported = await crypto.subtle.importKey('raw', key, { name: 'HMAC', hash: 'SHA-256' }, false, ['sign']);
  return crypto.subtle.sign('HMAC', imported, encoder.encode(text));
}
