// Signatures, checked with the examples of the S3 documentation.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { signHeaders, signUrl } from '../../js/s3/sign.js';

const credentials = { accessKeyId: 'AKIAIOSFODNN7EXAMPLE', secretAccessKey: 'wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY' };
const now = Date.parse('2013-05-24T00:00:00Z');

test('a request for the lifecycle rules is signed as documented', async () => {
  const headers = await signHeaders({ method: 'GET', url: new URL('https://examplebucket.s3.amazonaws.com/?lifecycle'), credentials, region: 'us-east-1', now });
  assert.match(headers.authorization, /Signature=fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543$/);
});

test('a list with parameters is signed as documented', async () => {
  const headers = await signHeaders({ method: 'GET', url: new URL('https://examplebucket.s3.amazonaws.com/?max-keys=2&prefix=J'), credentials, region: 'us-east-1', now });
  assert.match(headers.authorization, /Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7$/);
});

test('a URL is signed as documented', async () => {
  const url = await signUrl({ method: 'GET', url: new URL('https://examplebucket.s3.amazonaws.com/test.txt'), credentials, region: 'us-east-1', now, expiresSeconds: 86_400 });
  assert.equal(url.searchParams.get('X-Amz-Signature'), 'aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404');
});

test('a session token is signed', async () => {
  const session = { ...credentials, sessionToken: 'a/b+c=' };
  const headers = await signHeaders({ method: 'GET', url: new URL('https://b.example/k'), credentials: session, region: 'r', now });
  assert.equal(headers['x-amz-security-token'], 'a/b+c=');
  assert.match(headers.authorization, /SignedHeaders=[^,]*x-amz-security-token/);
  const url = await signUrl({ method: 'GET', url: new URL('https://b.example/k'), credentials: session, region: 'r', now });
  assert.equal(url.searchParams.get('X-Amz-Security-Token'), 'a/b+c=');
});
