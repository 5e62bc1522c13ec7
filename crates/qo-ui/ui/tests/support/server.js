// The S3 server of the tests: one named by the environment, or one started here that ends with this process.

import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

import { programs } from './programs.js';
import { TestS3 } from './s3.js';

export async function startS3() {
  const { QO_TEST_S3_ENDPOINT: endpoint, QO_TEST_S3_ACCESS_KEY: accessKey, QO_TEST_S3_SECRET_KEY: secretKey } = process.env;
  if (endpoint) return { s3: new TestS3({ endpoint, accessKey, secretKey }), shell: process.env.QO_TEST_S3_SHELL, stop() {} };
  const child = spawn(await programs.testS3(), { stdio: ['pipe', 'pipe', 'inherit'] });
  const variables = {};
  for await (const line of createInterface({ input: child.stdout })) {
    const [, name, value] = /^export (\w+)='?([^']*)'?$/.exec(line) ?? [];
    if (name) variables[name] = value;
    if (variables.QO_TEST_S3_SHELL) break;
  }
  if (!variables.QO_TEST_S3_ENDPOINT) throw new Error('the S3 server did not start');
  const s3 = new TestS3({ endpoint: variables.QO_TEST_S3_ENDPOINT, accessKey: variables.QO_TEST_S3_ACCESS_KEY, secretKey: variables.QO_TEST_S3_SECRET_KEY });
  // The server exits when its standard input is closed, however this process ends.
  return { s3, shell: variables.QO_TEST_S3_SHELL, stop: () => child.stdin.end() };
}
