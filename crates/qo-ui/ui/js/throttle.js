// Limits how often work runs, without ever postponing it: while notifications keep coming, it runs once per pause.

export class Throttle {
  #work;
  #pauseMs;
  #clock;
  #timer;
  #lastAt = -Infinity;
  #lastTookMs = 0;

  /** @param {() => void} work */
  constructor(work, pauseMs, clock = { now: () => performance.now(), set: (run, ms) => setTimeout(run, ms), clear: (timer) => clearTimeout(timer) }) {
    this.#work = work;
    this.#pauseMs = pauseMs;
    this.#clock = clock;
  }

  /** Asks for a run. One that is already planned is enough. */
  notify() {
    if (this.#timer !== undefined) return;
    // Work that takes long leaves the server as much time without it.
    const due = this.#lastAt + Math.max(this.#pauseMs, this.#lastTookMs);
    this.#timer = this.#clock.set(() => {
      this.#timer = undefined;
      this.#lastAt = this.#clock.now();
      this.#work();
    }, Math.max(due - this.#clock.now(), 0));
  }

  /** Records that the work has been done, by this throttle or otherwise, and how long it took. */
  done(tookMs) {
    this.#lastAt = this.#clock.now();
    this.#lastTookMs = tookMs;
  }

  stop() {
    this.#clock.clear(this.#timer);
    this.#timer = undefined;
  }
}
