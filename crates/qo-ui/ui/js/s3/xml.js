// Parsing of S3's XML responses: lists, version lists and errors. Only known elements are read, as text.

const ENTITIES = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'" };

export function readList(xml) {
  return {
    entries: blocks(xml, 'Contents').map((block) => ({
      key: child(block, 'Key'),
      etag: child(block, 'ETag'),
      size: Number(child(block, 'Size')),
      modified: Date.parse(child(block, 'LastModified')),
    })),
    folders: blocks(xml, 'CommonPrefixes').map((block) => child(block, 'Prefix')),
    truncated: child(xml, 'IsTruncated') === 'true',
    next: child(xml, 'NextContinuationToken'),
  };
}

export function readVersions(xml) {
  const version = (deleted) => (block) => ({
    key: child(block, 'Key'),
    version: child(block, 'VersionId'),
    latest: child(block, 'IsLatest') === 'true',
    modified: Date.parse(child(block, 'LastModified')),
    size: Number(child(block, 'Size') ?? 0),
    deleted,
  });
  return {
    versions: [...blocks(xml, 'Version').map(version(false)), ...blocks(xml, 'DeleteMarker').map(version(true))],
    truncated: child(xml, 'IsTruncated') === 'true',
  };
}

export function readError(xml) {
  return { code: child(xml, 'Code') ?? '', message: child(xml, 'Message') ?? '' };
}

function blocks(xml, name) {
  return Array.from(xml.matchAll(new RegExp(`<${name}>([\\s\\S]*?)</${name}>`, 'g')), (match) => match[1]);
}

function child(xml, name) {
  const match = new RegExp(`<${name}>([^<]*)</${name}>`).exec(xml);
  return match ? unescape(match[1]) : undefined;
}

function unescape(text) {
  return text.replace(/&(?:#x([0-9a-fA-F]+)|#(\d+)|(\w+));/g, (whole, hex, decimal, name) => {
    if (hex) return String.fromCodePoint(Number.parseInt(hex, 16));
    if (decimal) return String.fromCodePoint(Number(decimal));
    return ENTITIES[name] ?? whole;
  });
}
