// Splits JSON text into its parts without parsing values.
//
// Payloads must be kept byte for byte, and numbers with all their digits. JSON.parse preserves neither, so it is used only to validate
// the text; these functions then work on the text itself.

const SPACE = new Set([' ', '\t', '\n', '\r']);

/** Whether the text is JSON. */
export function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** The kind of value of a JSON text. */
export function kindOf(text) {
  switch (text[skipSpace(text, 0)]) {
    case '{': return 'object';
    case '[': return 'array';
    case '"': return 'string';
    case 't': case 'f': return 'boolean';
    case 'n': return 'null';
    default: return 'number';
  }
}

/** The fields of an object in order, as pairs of name and value text. */
export function fields(text) {
  const found = [];
  let at = enter(text, '{');
  while (text[at] !== '}') {
    const end = skipString(text, at);
    const name = JSON.parse(text.slice(at, end));
    at = skipSpace(text, skipSpace(text, end) + 1);
    const valueEnd = skipValue(text, at);
    found.push([name, text.slice(at, valueEnd)]);
    at = next(text, valueEnd);
  }
  return found;
}

/** The texts of the elements of an array. */
export function elements(text) {
  const found = [];
  let at = enter(text, '[');
  while (text[at] !== ']') {
    const end = skipValue(text, at);
    found.push(text.slice(at, end));
    at = next(text, end);
  }
  return found;
}

/** The canonical form in which the core writes unknown fields: no spaces, sorted names, shortest numbers. */
export function canonical(text) {
  switch (kindOf(text)) {
    case 'object': {
      const parts = sortedByBytes(fields(text)).map(([name, value]) => `${JSON.stringify(name)}:${canonical(value)}`);
      return `{${parts.join(',')}}`;
    }
    case 'array':
      return `[${elements(text).map(canonical).join(',')}]`;
    case 'string':
      return JSON.stringify(JSON.parse(text));
    case 'number':
      return /[.eE]/.test(text) ? floatText(text) : text.trim();
    default:
      return text.trim();
  }
}

/** A floating-point number as the core writes it: 2 is 2.0. */
export function floatText(text) {
  const number = Number(text);
  const shortest = String(number);
  return Number.isInteger(number) && !shortest.includes('e') ? `${shortest}.0` : shortest;
}

/** Sorts pairs by the UTF-8 bytes of their names, which differs from the order of UTF-16. */
export function sortedByBytes(pairs) {
  const encoder = new TextEncoder();
  const keyed = pairs.map((pair) => [encoder.encode(pair[0]), pair]);
  keyed.sort(([a], [b]) => {
    const shared = Math.min(a.length, b.length);
    for (let i = 0; i < shared; i += 1) {
      if (a[i] !== b[i]) return a[i] - b[i];
    }
    return a.length - b.length;
  });
  return keyed.map(([, pair]) => pair);
}

function enter(text, bracket) {
  const at = skipSpace(text, 0);
  if (text[at] !== bracket) throw new SyntaxError(`expected ${bracket}`);
  return skipSpace(text, at + 1);
}

/** Skips a comma, if there is one, to the next name, value or closing bracket. */
function next(text, at) {
  const comma = skipSpace(text, at);
  return text[comma] === ',' ? skipSpace(text, comma + 1) : comma;
}

function skipSpace(text, at) {
  while (SPACE.has(text[at])) at += 1;
  return at;
}

function skipString(text, at) {
  for (at += 1; text[at] !== '"'; at += 1) {
    if (text[at] === '\\') at += 1;
    if (at >= text.length) throw new SyntaxError('unterminated string');
  }
  return at + 1;
}

function skipValue(text, at) {
  const first = text[at];
  if (first === '"') return skipString(text, at);
  if (first !== '{' && first !== '[') {
    while (at < text.length && !SPACE.has(text[at]) && !',]}'.includes(text[at])) at += 1;
    return at;
  }
  let depth = 0;
  for (; at < text.length; at += 1) {
    const letter = text[at];
    if (letter === '"') at = skipString(text, at) - 1;
    else if (letter === '{' || letter === '[') depth += 1;
    else if (letter === '}' || letter === ']') {
      depth -= 1;
      if (depth === 0) return at + 1;
    }
  }
  throw new SyntaxError('unterminated value');
}
