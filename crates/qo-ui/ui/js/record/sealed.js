// Inputs, outputs and errors that a client has encrypted. Only clients with the key can read them, so the dashboard shows the name of the
// key. The forms are those of `crates/qo/src/encryption`.

import { fields } from '../json/scan.js';

const ERROR_PREFIX = 'qo-encrypted:';
const SEALED_TEXT = /"qo-encrypted:[^"\\]*"/g;

/** The name of the key of an encrypted input or output, given as JSON text; undefined if it is not encrypted. */
export function payloadKey(text) {
  if (!/^\s*\{\s*"qo_encrypted"/.test(text ?? '')) return undefined;
  try {
    const key = JSON.parse(Object.fromEntries(fields(text)).key ?? 'null');
    return typeof key === 'string' ? key : undefined;
  } catch {
    return undefined;
  }
}

/** An error as it is shown: its text, or the name of the key with which it is encrypted. */
export function shownError(error) {
  if (!error?.startsWith(ERROR_PREFIX)) return error;
  const [, , key, rest] = error.split(':', 4);
  return rest === undefined ? error : label(key);
}

/** A JSON value as it is shown in a comparison. */
export function shownValue(text) {
  const key = payloadKey(text);
  if (key !== undefined) return label(key);
  if (text.startsWith(`"${ERROR_PREFIX}`)) return shownError(JSON.parse(text));
  // Events and logs have texts within, which are base64 and contain no quotation mark.
  return text.replace(SEALED_TEXT, (sealed) => JSON.stringify(shownError(JSON.parse(sealed))));
}

export const label = (key) => `encrypted with key ${key}`;
