// A proxy before a store that can hold requests back, so that a test decides how far a server gets, however fast the machine is.

import { Agent, createServer, request as httpRequest } from 'node:http';

/** Starts a proxy. It passes requests on unchanged, so signatures stay valid. */
export async function gateBefore(endpoint) {
  const agent = new Agent({ keepAlive: true });
  let matches;
  let left = Infinity;
  let waiting = [];
  const pass = (request, response) => {
    const passed = httpRequest(endpoint + request.url, { agent, method: request.method, headers: request.headers }, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
    });
    request.pipe(passed);
    response.on('close', () => passed.destroy());
    passed.on('error', () => response.destroy());
  };
  const server = createServer((request, response) => {
    if (!matches?.(request)) {
      pass(request, response);
      return;
    }
    left -= 1;
    if (left >= 0) pass(request, response);
    else waiting.push(() => pass(request, response));
  });
  await new Promise((done) => { server.listen(0, '127.0.0.1', done); });
  const release = () => {
    matches = undefined;
    for (const proceed of waiting) proceed();
    waiting = [];
  };
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    /** Lets some matching requests pass, and holds those after them until `release`. */
    holdAfter(many, which) {
      left = many;
      matches = which;
    },
    release,
    stop() {
      release();
      server.closeAllConnections();
      server.close();
      agent.destroy();
    },
  };
}
