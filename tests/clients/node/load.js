// Calls replicas in turn until standard input ends; ../replicas.py says what it prints.
//
//     load.js ADDRESS...
"use strict";
const assert = require("node:assert/strict");
const path = require("node:path");
const { setTimeout: sleep } = require("node:timers/promises");
const grpc = require("@grpc/grpc-js");
const protoLoader = require("@grpc/proto-loader");

const CALLERS = 16;
const DEADLINE_MS = 20_000; // For every call.
const FAILURE_PAUSE_MS = 20; // Keeps callers that only fail from spinning.
const OPTIONS = {
  "grpc.enable_http_proxy": 0,
  // This library would send the list of addresses as the authority, which HTTP/2 servers that check it refuse.
  "grpc.default_authority": "localhost",
  "grpc.service_config": JSON.stringify({ loadBalancingConfig: [{ round_robin: {} }] }),
  // No retry policy is configured or looked up. 0 would also disable the transparent retries of calls that no server has
  // seen, which every client has by default.
  "grpc.enable_retries": 1,
  "grpc.service_config_disable_resolution": 1,
  "grpc.initial_reconnect_backoff_ms": 100,
  "grpc.max_reconnect_backoff_ms": 500,
};

const { "remuda.v1.WorkerPool": WorkerPool } = protoLoader.loadSync("remuda/v1/worker_pool.proto", {
  keepCase: true,
  longs: Number,
  defaults: true,
  oneofs: true,
  includeDirs: [path.join(__dirname, "../../../proto")],
});
const random = (least, most) => least + Math.floor(Math.random() * (most - least + 1));
const deadline = () => ({ deadline: Date.now() + DEADLINE_MS });
const query = (payload) => ({ query: { payload: JSON.stringify(payload) } });

/** Each resolves to the kind that took the query, which names the replica. */
const methods = {
  Submit: (client) =>
    new Promise((resolve, reject) => {
      const request = query({ sleep_ms: random(2, 10) });
      client.Submit(request, deadline(), (error, response) => (error ? reject(error) : resolve(response.kind)));
    }),
  async Execute(client) {
    const payload = random(0, 1) ? { sleep_ms: random(2, 200) } : { stream: 5, delay_ms: random(1, 40) };
    const responses = [];
    for await (const response of client.Execute(query(payload), deadline())) responses.push(response);
    const [{ accepted }, ...rest] = responses;
    assert.deepEqual(rest.map(({ event }) => event.sequence), rest.map((_, index) => index), "events out of order");
    assert.equal(rest.at(-1).event.body, "complete", "not complete");
    return accepted.kind;
  },
};

let stopped = false;
async function callUntilStopped(client) {
  while (!stopped) {
    const name = random(0, 1) ? "Submit" : "Execute";
    try {
      console.log(`${name}\t0\t${await methods[name](client)}`);
    } catch (error) {
      const isStatus = typeof error.code === "number";
      const code = isStatus ? error.code : grpc.status.UNKNOWN;
      console.log(`${name}\t${code}\t${(isStatus ? error.details : error.message).replace(/\s+/g, " ")}`);
      await sleep(FAILURE_PAUSE_MS);
    }
  }
}

const addresses = process.argv.slice(2);
assert(addresses.length > 0, "usage: load.js ADDRESS...");
const Client = grpc.makeGenericClientConstructor(WorkerPool);
const client = new Client(`ipv4:${addresses.join(",")}`, grpc.credentials.createInsecure(), OPTIONS);
process.stdin.resume().on("end", () => (stopped = true));
Promise.all(Array.from({ length: CALLERS }, () => callUntilStopped(client))).then(() => client.close());
