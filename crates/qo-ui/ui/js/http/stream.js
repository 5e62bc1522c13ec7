// Change notifications of a server, shared between the tabs of this browser.
//
// Over HTTP/1.1 a browser opens six connections to a server, and an event stream occupies one for good. So one tab listens and tells the
// others through a BroadcastChannel. The tab that holds a Web Lock is the one that listens; when it is closed or hidden, the browser
// gives the lock to the next. Hidden tabs do not take part: they refresh when they are shown.
//
// Web Locks exist only on HTTPS and localhost. Elsewhere each visible tab listens for itself.

import { Throttle } from '../throttle.js';

const WAIT_MAX_MS = 30_000;
const BROADCAST_PAUSE_MS = 250;

/** The server refused the stream for good: the token is not valid, or the server has no events. */
export class StreamRefused extends Error {}

export class SharedStream {
  #name;
  #open;
  #listener;
  #refused;
  #channel;
  #turn;
  #closed = false;
  #broadcast;

  /**
   * @param {string} name of the lock and the channel: the same for tabs that show the same server
   * @param {(signal: AbortSignal, on: { open: () => void, event: () => void }) => Promise<void>} open listens until the stream ends
   * @param {() => void} listener is called after changes
   * @param {() => void} refused is called when the server refuses the stream
   */
  constructor({ name, open, listener, refused }) {
    this.#name = name;
    this.#open = open;
    this.#listener = listener;
    this.#refused = refused;
    this.#channel = new BroadcastChannel(name);
    this.#channel.onmessage = () => this.#listener();
    this.#broadcast = new Throttle(() => this.#channel.postMessage('changed'), BROADCAST_PAUSE_MS);
    document.addEventListener('visibilitychange', this.#visibility);
    if (!document.hidden) this.#start();
  }

  close() {
    this.#closed = true;
    document.removeEventListener('visibilitychange', this.#visibility);
    this.#turn?.abort();
    this.#broadcast.stop();
    this.#channel.close();
  }

  #visibility = () => {
    if (document.hidden) {
      this.#turn?.abort();
      this.#turn = undefined;
    } else if (!this.#turn) {
      this.#start();
      // Changes may have been missed meanwhile.
      this.#listener();
    }
  };

  #start() {
    this.#turn = new AbortController();
    this.#takeTurn(this.#turn.signal);
  }

  async #takeTurn(signal) {
    try {
      if (navigator.locks) await navigator.locks.request(this.#name, { signal }, () => this.#listen(signal));
      else await this.#listen(signal);
    } catch (error) {
      if (!signal.aborted) console.warn('change notifications are off; the page refreshes periodically', error);
    }
  }

  /** Listens until this tab is hidden or closed. Reconnects with increasing delays. */
  async #listen(signal) {
    for (let wait = 1000; !signal.aborted; wait = Math.min(wait * 2, WAIT_MAX_MS)) {
      try {
        await this.#open(signal, {
          // What the pages have read before may have changed unnoticed.
          open: () => this.#changed(),
          event: () => {
            wait = 1000;
            this.#changed();
          },
        });
      } catch (error) {
        if (error instanceof StreamRefused) {
          this.#refused();
          return;
        }
      }
      if (signal.aborted) return;
      await pause(wait, signal);
      // The server may be gone, which the pages should say.
      this.#changed();
    }
  }

  #changed() {
    if (this.#closed) return;
    this.#listener();
    this.#broadcast.notify();
  }
}

function pause(millis, signal) {
  return new Promise((done) => {
    const timer = setTimeout(done, millis);
    signal.addEventListener('abort', () => {
      clearTimeout(timer);
      done();
    }, { once: true });
  });
}
