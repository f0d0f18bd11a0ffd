// A Remuda worker in plain Node.js: counts to `to`, with `delay` seconds before each number.
const net = require("node:net");
const { once } = require("node:events");
const { setTimeout: sleep } = require("node:timers/promises");

const pool = net.connect(process.env.REMUDA_SOCKET);
const send = (frame) => pool.write(JSON.stringify(frame) + "\n");
let running, cancel; // The last query, and what stops it.
let queriesProcessed = 0;

async function count(requestId, payload, signal) {
  const { to, delay = 0 } = payload ?? {};
  if (!Number.isInteger(to) || !(delay >= 0)) throw new TypeError("expected {to: int, delay?: seconds}");
  for (let n = 1; n <= to; n++) {
    await sleep(delay * 1000, undefined, { signal });
    if (!send({ type: "message", requestId, content: { n } })) await once(pool, "drain", { signal });
  }
  send({ type: "complete", requestId, result: { counted: to } });
}

const handlers = {
  query({ requestId, payload }) {
    const { signal } = (cancel = new AbortController());
    const code = () => (signal.aborted ? "cancelled" : "bad_payload");
    const fail = (error) => send({ type: "error", requestId, error: error.message, code: code() });
    running = count(requestId, payload, signal).catch(fail).finally(() => queriesProcessed++);
  },
  cancel: () => cancel?.abort(), // If the query has ended, this changes nothing.
  health_check: () => send({ type: "health_ok", uptime: process.uptime(), queriesProcessed }),
  shutdown: () => Promise.resolve(running).then(() => pool.end('{"type":"shutdown_ack"}\n', () => process.exit())),
};

let rest = "";
pool.setEncoding("utf8").on("data", (chunk) => {
  const lines = (rest + chunk).split("\n"); // `readline` would also split at U+2028 inside a string.
  rest = lines.pop();
  for (const frame of lines.map((line) => JSON.parse(line))) handlers[frame.type]?.(frame);
});
send({ type: "ready", name: "count" });
