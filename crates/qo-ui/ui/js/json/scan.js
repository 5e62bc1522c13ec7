// JSON as text: split into its parts without reading it into numbers and objects.
//
// A payload must stay what it is to the byte, and a number of thirty digits must be shown with all of them. The browser's own
// JSON.parse keeps neither, so it is used only to say whether a text is JSON at all; from there on these functions cut the
// text into pieces.

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

/** What kind of value a JSON text is. */
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

/** The fields of an object's text, in their order: pairs of a name and the text of its value. */
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

/** The texts of an array's elements. */
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

/** The same value in the form in which the core writes what it does not know: no space, sorted names, shortest numbers. */
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

/** Pairs in the order of the bytes of their names, which is not the order of UTF-16. */
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

/** Steps over a comma, if there is one, to the next name, value or closing bracket. */
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
    if (at >= text.length) throw new SyntaxError('a string does not end');
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
  throw new SyntaxError('a value does not end');
}
