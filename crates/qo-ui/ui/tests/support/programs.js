// Programs of the workspace used by the tests, built on demand.

import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const run = promisify(execFile);
export const ROOT = fileURLToPath(new URL('../../../../../', import.meta.url));
const TARGET = process.env.CARGO_TARGET_DIR ?? `${ROOT}target`;

async function built(path, ...build) {
  const program = `${TARGET}/debug/${path}`;
  // `cargo xtask test` builds them in advance. Running node directly builds them here.
  if (!process.env.QO_UI_PROGRAMS_BUILT || !existsSync(program)) {
    await run('cargo', ['build', '--quiet', ...build], { cwd: ROOT, maxBuffer: 1 << 26 });
  }
  return program;
}

export const programs = {
  testS3: () => built('qo-test-s3', '-p', 'qo-testkit', '--bin', 'qo-test-s3'),
  story: () => built('examples/dashboard_story', '-p', 'qo', '--example', 'dashboard_story'),
  // `cargo xtask test` names the program with the features of the released one.
  qo: async () => process.env.QO_TEST_PROGRAM || built('qo', '-p', 'qo-cli', '--bin', 'qo'),
  echoWorker: () => built('examples/echo_worker', '-p', 'qo', '--example', 'echo_worker'),
};

/** The objects of the sample data, relative to `now`. */
export async function story(now = Date.now()) {
  const { stdout } = await run(await programs.story(), [String(now)], { maxBuffer: 1 << 28 });
  return stdout.trim().split('\n').map((line) => JSON.parse(line));
}
