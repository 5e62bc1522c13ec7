// An S3 client for the tests: creates, configures and fills buckets. It has its own signing code, so that a bug in the code under test
// cannot hide itself.

import { createHash, createHmac } from 'node:crypto';
import { Agent, request } from 'node:http';

const REGION = 'us-east-1';
const sha256 = (data) => createHash('sha256').update(data).digest('hex');
const hmac = (key, data) => createHmac('sha256', key).update(data).digest();
const escape = (text) => encodeURIComponent(text).replace(/[!'()*]/g, (letter) => `%${letter.charCodeAt(0).toString(16).toUpperCase()}`);

export class TestS3 {
  #agent = new Agent({ keepAlive: true, maxSockets: 48 });
  #keys = new Map();

  constructor({ endpoint, accessKey, secretKey }) {
    this.endpoint = endpoint;
    this.accessKey = accessKey;
    this.secretKey = secretKey;
    this.host = new URL(endpoint).host;
  }

  close() {
    this.#agent.destroy();
  }

  async createBucket(name, { versioned = false } = {}) {
    await this.send('PUT', `/${name}`);
    if (versioned) {
      await this.send('PUT', `/${name}`, { query: { versioning: '' }, body: '<VersioningConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Status>Enabled</Status></VersioningConfiguration>' });
    }
  }

  /** Makes the dashboard's files, and nothing else, publicly readable. */
  async publishUi(bucket, prefix = '') {
    const policy = { Version: '2012-10-17', Statement: [{ Sid: 'qo-dashboard', Effect: 'Allow', Principal: '*', Action: ['s3:GetObject'], Resource: [`arn:aws:s3:::${bucket}/${prefix}ui/*`] }] };
    await this.send('PUT', `/${bucket}`, { query: { policy: '' }, body: JSON.stringify(policy) });
  }

  async setCors(bucket, origins) {
    const rule = origins.map((origin) => `<AllowedOrigin>${origin}</AllowedOrigin>`).join('')
      + ['GET', 'PUT', 'HEAD', 'DELETE', 'POST'].map((method) => `<AllowedMethod>${method}</AllowedMethod>`).join('')
      + '<AllowedHeader>*</AllowedHeader>' + ['ETag', 'x-amz-version-id', 'Date'].map((name) => `<ExposeHeader>${name}</ExposeHeader>`).join('');
    await this.send('PUT', `/${bucket}`, { query: { cors: '' }, body: `<CORSConfiguration><CORSRule>${rule}<MaxAgeSeconds>3600</MaxAgeSeconds></CORSRule></CORSConfiguration>` });
  }

  async put(bucket, key, body, headers = {}) {
    return this.send('PUT', `/${bucket}/${key}`, { body, headers });
  }

  async get(bucket, key) {
    return (await this.send('GET', `/${bucket}/${key}`)).body;
  }

  async remove(bucket, key) {
    await this.send('DELETE', `/${bucket}/${key}`);
  }

  async keys(bucket, prefix) {
    const { body } = await this.send('GET', `/${bucket}`, { query: { 'list-type': '2', prefix } });
    return Array.from(body.matchAll(/<Key>([^<]*)<\/Key>/g), (match) => match[1]);
  }

  /** Writes many objects concurrently. With one lane, in order. */
  async putMany(bucket, objects, lanes = 48) {
    let next = 0;
    const lane = async () => {
      while (next < objects.length) {
        const { key, body } = objects[next];
        next += 1;
        await this.put(bucket, key, body);
      }
    };
    await Promise.all(Array.from({ length: lanes }, lane));
  }

  async send(method, path, { query = {}, body = '', headers = {} } = {}) {
    const time = new Date().toISOString().replace(/[-:]|\.\d{3}/g, '');
    const day = time.slice(0, 8);
    const canonicalPath = path.split('/').map(escape).join('/');
    const search = Object.entries(query).map(([name, value]) => `${escape(name)}=${escape(value)}`).sort().join('&');
    const hash = body.length > 0 ? sha256(body) : 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855';
    const canonical = `${method}\n${canonicalPath}\n${search}\nhost:${this.host}\nx-amz-content-sha256:${hash}\nx-amz-date:${time}\n\nhost;x-amz-content-sha256;x-amz-date\n${hash}`;
    const scope = `${day}/${REGION}/s3/aws4_request`;
    if (!this.#keys.has(day)) this.#keys.set(day, ['s3', 'aws4_request'].reduce(hmac, hmac(hmac(`AWS4${this.secretKey}`, day), REGION)));
    const signature = createHmac('sha256', this.#keys.get(day)).update(`AWS4-HMAC-SHA256\n${time}\n${scope}\n${sha256(canonical)}`).digest('hex');
    const authorization = `AWS4-HMAC-SHA256 Credential=${this.accessKey}/${scope}, SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature=${signature}`;
    const response = await new Promise((resolve, reject) => {
      const sent = request(`${this.endpoint}${canonicalPath}${search ? `?${search}` : ''}`, {
        method, agent: this.#agent,
        headers: { ...headers, 'x-amz-content-sha256': hash, 'x-amz-date': time, authorization, 'content-length': Buffer.byteLength(body) },
      }, (received) => {
        const parts = [];
        received.on('data', (part) => parts.push(part));
        received.on('end', () => resolve({ status: received.statusCode, headers: received.headers, body: Buffer.concat(parts).toString() }));
      });
      sent.on('error', reject);
      sent.end(body);
    });
    if (response.status >= 300) throw new Error(`${method} ${path} failed with ${response.status}: ${response.body.slice(0, 300)}`);
    return response;
  }
}
