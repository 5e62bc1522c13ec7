// The environment of browser tests: the dashboard in a bucket or on another origin, and a browser.

import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { createServer } from 'node:http';
import { extname, join } from 'node:path';
import { chromium } from 'playwright-core';

import { ROOT } from './programs.js';

export const SCREENSHOTS = join(process.env.CARGO_TARGET_DIR ?? join(ROOT, 'target'), 'screenshots');
const UI = join(ROOT, 'crates/qo-ui/ui');
const TYPES = { '.html': 'text/html; charset=utf-8', '.js': 'text/javascript; charset=utf-8', '.css': 'text/css; charset=utf-8', '.svg': 'image/svg+xml' };
const FLAGS = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];

/** The dashboard's files, as paths and contents. */
export function uiFiles(dir = '') {
  return readdirSync(join(UI, dir)).flatMap((name) => {
    const path = dir ? `${dir}/${name}` : name;
    if (path === 'tests' || path === 'package.json') return [];
    return statSync(join(UI, path)).isDirectory() ? uiFiles(path) : [{ path, type: TYPES[extname(path)], body: readFileSync(join(UI, path)) }];
  });
}

export const uniqueName = (hint) => `ui-${hint}-${randomBytes(5).toString('hex')}`;

/** Uploads the dashboard to a bucket, makes it public and returns its URL. */
export async function deploy(s3, bucket, prefix = '') {
  await Promise.all(uiFiles().map(({ path, type, body }) => s3.put(bucket, `${prefix}ui/${path}`, body.toString(), { 'content-type': type })));
  await s3.publishUi(bucket, prefix);
  return `${s3.endpoint}/${bucket}/${prefix}ui/index.html`;
}

/** Serves the dashboard from another origin, for cross-origin requests. */
export function serveFromOtherOrigin() {
  const files = new Map(uiFiles().map((file) => [`/${file.path}`, file]));
  const server = createServer((request, response) => {
    const file = files.get(new URL(request.url, 'http://x').pathname);
    response.writeHead(file ? 200 : 404, file ? { 'content-type': file.type } : {});
    response.end(file?.body);
  });
  return new Promise((resolve) => {
    server.listen(0, '127.0.0.1', () => resolve({ url: `http://localhost:${server.address().port}/index.html`, stop: () => server.close() }));
  });
}

export async function startBrowser() {
  mkdirSync(SCREENSHOTS, { recursive: true });
  const program = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find((path) => existsSync(path))
    ?? execFileSync('sh', ['-c', 'command -v chromium']).toString().trim();
  return chromium.launch({ executablePath: program, headless: true, args: FLAGS });
}

/** The fragment that `qo ui link` creates. */
export function fragment(s3, bucket, more = {}, go) {
  const payload = {
    endpoint: s3.endpoint, bucket, region: 'us-east-1', prefix: '',
    access_key_id: s3.accessKey, secret_access_key: s3.secretKey, ...more,
  };
  return `#connect=${Buffer.from(JSON.stringify(payload)).toString('base64url')}${go ? `&go=${encodeURIComponent(go)}` : ''}`;
}
