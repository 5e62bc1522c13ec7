// The requests of this session and their cost, at the prices of S3 Standard in us-east-1.

const DOLLARS_PER_1000 = { put: 0.005, list: 0.005, get: 0.0004, delete: 0, http: 0 };

export class Counter extends EventTarget {
  counts = { list: 0, get: 0, put: 0, delete: 0, http: 0 };
  notModified = 0;

  add(kind) {
    this.counts[kind] += 1;
    this.dispatchEvent(new Event('change'));
  }

  addNotModified() {
    this.notModified += 1;
  }

  get requests() {
    return Object.values(this.counts).reduce((sum, count) => sum + count, 0);
  }

  get dollars() {
    return Object.entries(this.counts).reduce((sum, [kind, count]) => sum + (count * DOLLARS_PER_1000[kind]) / 1000, 0);
  }

  /** The cost of a number of requests. */
  static estimate(counts) {
    return Object.entries(counts).reduce((sum, [kind, count]) => sum + (count * DOLLARS_PER_1000[kind]) / 1000, 0);
  }
}
