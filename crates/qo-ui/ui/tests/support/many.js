// Fills a bucket with a hundred thousand tasks.
//
// The server's shell loads a file of entries much faster than S3 stores objects. Without a shell, because the server is external, the
// tasks are written through S3.

import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** The same random id for the same number every time, so that the same tasks are in a sample. */
function taskId(number) {
  const hex = createHash('sha256').update(`task ${number}`).digest('hex');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-a${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
}

/** @param {string[]} records templates; each copy gets a new id */
export async function fillWithTasks({ s3, shell }, bucket, records, count) {
  const objects = Array.from({ length: count }, (_, index) => {
    const id = taskId(index);
    const before = JSON.parse(records[index % records.length]);
    const body = records[index % records.length].replaceAll(before.id, id).replace(`"shard":"${before.shard}"`, `"shard":"${id[0]}"`);
    return { key: `tasks/${id[0]}/${id}.json`, body };
  });
  if (!shell) return s3.putMany(bucket, objects);
  const file = join(tmpdir(), `qo-tasks-${process.pid}.meta`);
  writeFileSync(file, Buffer.concat(objects.flatMap(({ key, body }) => entry(`/buckets/${bucket}/${key}`, Buffer.from(body)))));
  try {
    await load(shell, file);
  } finally {
    rmSync(file, { force: true });
  }
  return undefined;
}

function load(shell, file) {
  const [program, ...words] = shell.split(' ');
  return new Promise((resolve, reject) => {
    const child = execFile(program, words, { cwd: tmpdir(), maxBuffer: 1 << 28 }, (error, stdout, stderr) => {
      if (error || !stdout.includes('is loaded')) reject(error ?? new Error(`${stdout.slice(-500)}${stderr.slice(-500)}`));
      else resolve();
    });
    child.stdin.end(`fs.meta.load -concurrency=16 ${file}\n`);
  });
}

/** One entry of the file: its length, then a protobuf message of folder, name, attributes and content. */
function entry(path, content) {
  const cut = path.lastIndexOf('/');
  const now = Math.floor(Date.now() / 1000);
  const attributes = Buffer.concat([
    number(1, content.length), number(2, now), number(3, 0o660), number(6, now),
    bytes(7, Buffer.from('application/json')), bytes(14, createHash('md5').update(content).digest()),
  ]);
  const message = Buffer.concat([
    bytes(1, Buffer.from(path.slice(0, cut))),
    bytes(2, Buffer.concat([bytes(1, Buffer.from(path.slice(cut + 1))), bytes(4, attributes), bytes(9, content)])),
  ]);
  const length = Buffer.alloc(4);
  length.writeUInt32BE(message.length);
  return [length, message];
}

const bytes = (field, content) => Buffer.concat([varint(field * 8 + 2), varint(content.length), content]);
const number = (field, value) => Buffer.concat([varint(field * 8), varint(value)]);

function varint(value) {
  const parts = [];
  let rest = value;
  while (rest >= 128) {
    parts.push((rest % 128) + 128);
    rest = Math.floor(rest / 128);
  }
  parts.push(rest);
  return Buffer.from(parts);
}
