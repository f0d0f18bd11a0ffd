// Talks to a running server through the .proto files, as any Node.js program would.
//
//     client.js ADDRESS [REQUESTS ANSWERS]
//
// REQUESTS is the encoding of the requests, ANSWERS the one that the server is expected to answer in: `identity` (the
// default) or `gzip`. Answers in gzip are accepted in any case. The server must have the built-in `echo` kind. Prints a
// line for each check; exits with 1 at the first that fails.
"use strict";
const assert = require("node:assert/strict");
const { once } = require("node:events");
const net = require("node:net");
const path = require("node:path");
const grpc = require("@grpc/grpc-js");
const protoLoader = require("@grpc/proto-loader");

const DEADLINE_MS = 20_000; // For every call.
const FINAL = ["complete", "error", "cancelled", "rejected"];
const COMPRESSION = { identity: grpc.compressionAlgorithms.identity, gzip: grpc.compressionAlgorithms.gzip };
const LARGE = 1 << 20; // Bytes; gzip reduces them to about a thousand.
const FORMAT = { keepCase: true, longs: Number, enums: String, defaults: true, arrays: true, oneofs: true };

const remuda = protoLoader.loadSync(["remuda/v1/worker_pool.proto", "remuda/v1/pool_admin.proto"], {
  ...FORMAT,
  includeDirs: [path.join(__dirname, "../../../proto")],
});
// What is needed of two well-known files, which are not among ours.
const message = (fields) => ({ fields });
const field = (id, type, rule) => ({ id, type, rule });
const health = protoLoader.fromJSON(
  { nested: { grpc: { nested: { health: { nested: { v1: { nested: {
    HealthCheckRequest: message({ service: field(1, "string") }),
    HealthCheckResponse: {
      ...message({ status: field(1, "ServingStatus") }),
      nested: { ServingStatus: { values: { UNKNOWN: 0, SERVING: 1, NOT_SERVING: 2, SERVICE_UNKNOWN: 3 } } },
    },
    Health: { methods: { Check: { requestType: "HealthCheckRequest", responseType: "HealthCheckResponse" } } },
  } } } } } } } },
  FORMAT,
);
const rpc = protoLoader.fromJSON(
  { nested: { google: { nested: { rpc: { nested: {
    Detail: message({ type_url: field(1, "string"), value: field(2, "bytes") }),
    Status: message({ code: field(1, "int32"), message: field(2, "string"), details: field(3, "Detail", "repeated") }),
    ErrorInfo: message({ reason: field(1, "string"), domain: field(2, "string") }),
    FieldViolation: message({ field: field(1, "string"), description: field(2, "string") }),
    BadRequest: message({ field_violations: field(1, "FieldViolation", "repeated") }),
  } } } } } },
  FORMAT,
);

/** A client whose calls return promises: of the answer, or of all answers of a stream. */
function connect(definition, address) {
  const Client = grpc.makeGenericClientConstructor(definition);
  const client = new Client(address, grpc.credentials.createInsecure(), {
    "grpc.enable_http_proxy": 0,
    "grpc.default_compression_algorithm": COMPRESSION[requestEncoding],
  });
  const deadline = () => ({ deadline: Date.now() + DEADLINE_MS });
  const unary = (name) => (request) =>
    new Promise((resolve, reject) => {
      client[name](request, deadline(), (error, response) => (error ? reject(error) : resolve(response)));
    });
  const stream = (name) => async (request) => {
    const responses = [];
    for await (const response of client[name](request, deadline())) responses.push(response);
    return responses;
  };
  const methods = Object.entries(definition);
  return Object.fromEntries(
    methods.map(([name, method]) => [name, method.responseStream ? stream(name) : unary(name)]),
  );
}

/** Forwards connections to the server and counts the bytes of both directions: the library hides `grpc-encoding`. */
async function countingProxy(address) {
  const counts = { sent: 0, received: 0 };
  const listener = net.createServer((client) => {
    const colon = address.lastIndexOf(":");
    const server = net.connect(Number(address.slice(colon + 1)), address.slice(0, colon));
    client.on("data", (chunk) => (counts.sent += chunk.length));
    server.on("data", (chunk) => (counts.received += chunk.length));
    for (const socket of [client, server]) socket.on("error", () => [client, server].map((each) => each.destroy()));
    client.pipe(server).pipe(client);
  });
  await once(listener.listen(0, "127.0.0.1"), "listening");
  return { target: `127.0.0.1:${listener.address().port}`, counts };
}

function assertEncoding(what, expected, wireBytes) {
  const actual = wireBytes < LARGE / 10 ? "gzip" : "identity";
  assert.equal(actual, expected, `expected the ${what} in ${expected}, but it took ${wireBytes} bytes`);
}

const [address, requestEncoding = "identity", answerEncoding = "identity"] = process.argv.slice(2);
assert(
  [3, 5].includes(process.argv.length) && requestEncoding in COMPRESSION && answerEncoding in COMPRESSION,
  "usage: client.js ADDRESS [REQUESTS ANSWERS], encodings: identity, gzip",
);
const workers = connect(remuda["remuda.v1.WorkerPool"], address);
const admin = connect(remuda["remuda.v1.PoolAdmin"], address);
const checker = connect(health["grpc.health.v1.Health"], address);

const echo = (payload) => ({ kind: "echo", payload: JSON.stringify(payload) });
const submit = (payload, query_id) => workers.Submit({ query_id, query: echo(payload) });
const contents = (events) => events.slice(0, -1).map((event) => JSON.parse(event.message.content));

/** Each event must follow on the one before, and only the last may be final. */
function inOrder(events, first = 0) {
  assert.deepEqual(events.map((event) => event.sequence), events.map((_, index) => first + index));
  assert.deepEqual(events.map((event) => FINAL.includes(event.body)), events.map((_, i) => i === events.length - 1));
  return events;
}

async function eventsOf(query_id, from_sequence = 0) {
  const responses = await workers.StreamResults({ query_id, from_sequence });
  return inOrder(responses.map((response) => response.event), from_sequence);
}

/** Waits for a call that must fail with this status, and returns its details by type. */
async function refused(code, call) {
  const error = await call.then(() => assert.fail(`expected ${grpc.status[code]}`), (error) => error);
  assert.equal(error.code, code, error);
  const status = rpc["google.rpc.Status"].deserialize(error.metadata.get("grpc-status-details-bin")[0]);
  const details = status.details.map(({ type_url, value }) => [type_url.split("/").at(-1), value]);
  return Object.fromEntries(details.map(([name, value]) => [name, rpc[name]?.deserialize(value)]));
}

const checks = {
  async "health says serving"() {
    const { serving, reasons, kinds } = await workers.Health({});
    assert.deepEqual({ serving, reasons }, { serving: true, reasons: [] });
    assert(kinds.some(({ kind }) => kind === "echo"));
  },
  async "standard health says serving"() {
    assert.equal((await checker.Check({})).status, "SERVING");
  },
  async "a submitted query is echoed"() {
    const payload = { greeting: "grüß Gott", list: [1, 2.5, null] };
    const { query_id, kind, existed } = await submit(payload);
    assert.deepEqual({ kind, existed }, { kind: "echo", existed: false });
    const events = await eventsOf(query_id);
    assert.deepEqual(contents(events), [payload]);
    assert.equal(events.at(-1).body, "complete");
    assert.equal((await admin.GetQuery({ query_id })).query.state, "QUERY_STATE_COMPLETE");
  },
  async "messages are streamed in order and can be read again"() {
    const { query_id } = await submit({ stream: 5, delay_ms: 20 });
    const events = await eventsOf(query_id);
    assert.deepEqual(contents(events), [1, 2, 3, 4, 5].map((n) => ({ n })));
    assert.deepEqual(JSON.parse(events.at(-1).complete.result), { streamed: 5 });
    assert.deepEqual(await eventsOf(query_id, 3), events.slice(3));
  },
  async "submit is idempotent by id"() {
    const query_id = `${(await submit({ stream: 1 })).query_id}-again`;
    assert.equal((await submit({ stream: 2 }, query_id)).existed, false);
    assert.equal((await submit({ stream: 2 }, query_id)).existed, true);
    const details = await refused(grpc.status.ALREADY_EXISTS, submit({ stream: 3 }, query_id));
    assert.equal(details["google.rpc.ErrorInfo"].domain, "remuda");
  },
  async "execute submits and streams"() {
    const [accepted, ...rest] = await workers.Execute({ query: echo({ stream: 2 }) });
    assert.equal(accepted.body, "accepted");
    const events = inOrder(rest.map((response) => response.event));
    assert.deepEqual(contents(events), [{ n: 1 }, { n: 2 }]);
    assert.deepEqual(JSON.parse(events.at(-1).complete.result), { streamed: 2 });
  },
  async "a reported error ends the query"() {
    const last = (await eventsOf((await submit({ fail: "no such luck" })).query_id)).at(-1);
    assert.equal(last.body, "error");
    assert.match(last.error.message, /no such luck/);
  },
  async "a long query can be cancelled"() {
    const { query_id } = await submit({ sleep_ms: 60_000 });
    const { found } = await workers.Cancel({ query_id, reason: "changed my mind" });
    assert(["CANCEL_FOUND_QUEUED", "CANCEL_FOUND_RUNNING"].includes(found), found);
    const last = (await eventsOf(query_id)).at(-1);
    assert.equal(last.body, "cancelled");
    assert.equal(last.cancelled.reason, "changed my mind");
  },
  async "a bad payload is refused by name"() {
    const call = workers.Submit({ query: { kind: "echo", payload: '{"unfinished":' } });
    const details = await refused(grpc.status.INVALID_ARGUMENT, call);
    const fields = details["google.rpc.BadRequest"].field_violations.map((violation) => violation.field);
    assert.deepEqual(fields, ["query.payload"]);
  },
  async "an unknown query is not found"() {
    await refused(grpc.status.NOT_FOUND, workers.StreamResults({ query_id: "no-such-query" }));
  },
  async "large messages have the expected encoding"() {
    const { target, counts } = await countingProxy(address);
    const proxied = connect(remuda["remuda.v1.WorkerPool"], target);
    await proxied.Health({}); // A grpc-accept-encoding without gzip in its answer would make the library stop compressing.
    const query = echo({ pad: "x".repeat(LARGE) });
    const { query_id } = await proxied.Submit({ query });
    const { sent, received } = counts;
    const [{ event }] = await proxied.StreamResults({ query_id });
    assert.equal(event.message.content, query.payload);
    assertEncoding("request", requestEncoding, sent);
    assertEncoding("answer", answerEncoding, counts.received - received);
  },
};

async function main() {
  let passed = 0;
  for (const [what, check] of Object.entries(checks)) {
    try {
      await check();
    } catch (error) {
      console.log(`FAILED ${what}\n${passed} passed, 1 failed`);
      throw error;
    }
    console.log(`ok ${what}`);
    passed += 1;
  }
  console.log(`${passed} passed, 0 failed`);
}

main().then(
  () => process.exit(0), // Open channels would keep the process.
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
