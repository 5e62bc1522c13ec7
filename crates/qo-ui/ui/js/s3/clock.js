// The store's clock, estimated from the `Date` headers of its responses. Leases and due times are compared with it, not with the local
// clock.
//
// `Date` has whole seconds, so each response only bounds the offset; several responses narrow the bounds.

export class StoreClock {
  #low;
  #high;

  /** Updates the bounds from one response: local times of request and response, and the store's `Date`. */
  observe(sent, received, date) {
    if (!Number.isFinite(date) || received < sent) return;
    const low = date - received;
    const high = date + 999 - sent;
    const narrowedLow = Math.max(this.#low ?? low, low);
    const narrowedHigh = Math.min(this.#high ?? high, high);
    // Contradictory bounds mean that a clock was adjusted: start over.
    [this.#low, this.#high] = narrowedLow <= narrowedHigh ? [narrowedLow, narrowedHigh] : [low, high];
  }

  /** The store's time now, in milliseconds. */
  now() {
    const offset = this.#low === undefined ? 0 : (this.#low + this.#high) / 2;
    return Math.round(Date.now() + offset);
  }
}
