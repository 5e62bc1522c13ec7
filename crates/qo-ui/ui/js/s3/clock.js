// The store's time, from the `Date` of its answers. Leases and due times are judged by it, never by this computer's clock.
//
// `Date` has whole seconds, so each answer says only that the offset lies between two bounds; many answers narrow them.

export class StoreClock {
  #low;
  #high;

  /** Learns from one answer: when it was asked for and received by the local clock, and what the store said. */
  observe(sent, received, date) {
    if (!Number.isFinite(date) || received < sent) return;
    const low = date - received;
    const high = date + 999 - sent;
    const narrowedLow = Math.max(this.#low ?? low, low);
    const narrowedHigh = Math.min(this.#high ?? high, high);
    // Bounds that contradict each other mean that a clock was set: start anew.
    [this.#low, this.#high] = narrowedLow <= narrowedHigh ? [narrowedLow, narrowedHigh] : [low, high];
  }

  /** The store's time now, in milliseconds. */
  now() {
    const offset = this.#low === undefined ? 0 : (this.#low + this.#high) / 2;
    return Math.round(Date.now() + offset);
  }
}
