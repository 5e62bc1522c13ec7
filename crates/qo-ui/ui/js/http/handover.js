// Hands a session over to a new or reloaded tab of the same server, through the memory of the tabs that are open.
//
// Nothing is stored. Only pages of the same origin can ask, so this is used only where the origin belongs to the qo server alone: the page
// is at `/ui/` of the server that it shows. A bucket's page shares its origin with other buckets and never hands anything over.

const CHANNEL = 'qo-session';
const WAIT_MS = 400;

/** Whether sessions with this server may be handed over to this page. */
export function mayHandOver(base) {
  return base === location.origin && /^\/ui\/(?:index\.html)?$/.test(location.pathname);
}

/** Answers other tabs that ask for the session. Returns a function that stops it. */
export function offerSession(session) {
  const channel = new BroadcastChannel(CHANNEL);
  channel.onmessage = ({ data }) => {
    if (typeof data?.ask === 'string') channel.postMessage({ to: data.ask, session });
  };
  return () => channel.close();
}

/** Asks the other tabs for a session. */
export function askForSession() {
  return new Promise((resolve) => {
    const channel = new BroadcastChannel(CHANNEL);
    const ask = crypto.randomUUID?.() ?? String(Math.random());
    const finish = (session) => {
      clearTimeout(timer);
      channel.close();
      resolve(session);
    };
    const timer = setTimeout(() => finish(undefined), WAIT_MS);
    channel.onmessage = ({ data }) => {
      if (data?.to === ask && typeof data.session?.token === 'string') finish(data.session);
    };
    channel.postMessage({ ask });
  });
}
