"""Talks to a running server that it knows nothing of but the address: all else comes from reflection.

    client.py ADDRESS [REQUESTS ANSWERS]

REQUESTS is the encoding of the requests, ANSWERS the one that the server is expected to answer in: `identity` (the default)
or `gzip`. Answers in gzip are accepted in any case. The server must have the built-in `echo` kind. Prints a line for each
check; exits with 1 at the first that fails.
"""

import json
import socket
import sys
import threading

import grpc
from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

DEADLINE = 20  # Seconds; for every call.
FINAL = {"complete", "error", "cancelled", "rejected"}
COMPRESSION = {"identity": grpc.Compression.NoCompression, "gzip": grpc.Compression.Gzip}
LARGE = 1 << 20  # Bytes; gzip reduces them to about a thousand.


class ReflectionDeadline(grpc.StreamStreamClientInterceptor):
    """The reflection library sets no deadline of its own."""

    def intercept_stream_stream(self, continuation, details, requests):
        return continuation(details._replace(timeout=DEADLINE), requests)


class Service:
    """A service as reflection describes it: `service.Method(request)`, and its messages by name."""

    def __init__(self, channel, descriptors, name):
        self._methods = {}
        for method in descriptors.FindServiceByName(name).methods:
            call = channel.unary_stream if method.server_streaming else channel.unary_unary
            request = message_factory.GetMessageClass(method.input_type)
            response = message_factory.GetMessageClass(method.output_type)
            path = f"/{name}/{method.name}"
            stub = call(path, request_serializer=request.SerializeToString, response_deserializer=response.FromString)
            self._methods[method.name] = (request, stub)

    def __getattr__(self, name):
        request, stub = self._methods[name]
        return lambda **fields: stub(request(**fields), timeout=DEADLINE)


class CountingProxy:
    """Forwards connections to the server and counts the bytes of both directions: the library hides `grpc-encoding`."""

    def __init__(self, address):
        self.address = address
        self.sent = self.received = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(DEADLINE)
        threading.Thread(target=self.accept, daemon=True).start()

    def target(self):
        return f"127.0.0.1:{self.listener.getsockname()[1]}"

    def accept(self):
        client, _ = self.listener.accept()
        server = self.dial()
        for source, sink, counter in [(client, server, "sent"), (server, client, "received")]:
            threading.Thread(target=self.forward, args=(source, sink, counter), daemon=True).start()

    def dial(self):
        if self.address.startswith("unix:"):
            server = socket.socket(socket.AF_UNIX)
            server.connect(self.address.removeprefix("unix:"))
            return server
        host, port = self.address.rsplit(":", 1)
        return socket.create_connection((host.strip("[]"), int(port)), timeout=DEADLINE)

    def forward(self, source, sink, counter):
        while chunk := source.recv(1 << 16):
            setattr(self, counter, getattr(self, counter) + len(chunk))
            sink.sendall(chunk)


def open_channel(address, requests="identity"):
    options = [("grpc.enable_http_proxy", 0)]
    if address.startswith("unix:"):
        # This library would send the path as the authority, which HTTP/2 servers that check it refuse.
        options.append(("grpc.default_authority", "localhost"))
    return grpc.insecure_channel(address, options=options, compression=COMPRESSION[requests])


def reflect(channel):
    """The services of the server behind this channel, by reflection."""
    reflection = ProtoReflectionDescriptorDatabase(grpc.intercept_channel(channel, ReflectionDeadline()))
    return reflection, descriptor_pool.DescriptorPool(reflection)


def error_details(error):
    """The `google.rpc` details of a failed call, by type."""
    trailers = dict(error.trailing_metadata())
    status = RPC["google.rpc.Status"].FromString(trailers["grpc-status-details-bin"])
    names = [detail.TypeName() for detail in status.details]
    return {n: RPC[n].FromString(d.value) for n, d in zip(names, status.details, strict=True) if n in RPC}


def rpc_messages():
    """The few messages of `google.rpc` that are needed, which no reflection tells about."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="google/rpc/needed.proto", package="google.rpc", syntax="proto3")
    file.dependency.append(any_pb2.DESCRIPTOR.name)

    def add(message, number, name, type, repeated=False, of=None):
        label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
        message.field.add(name=name, number=number, type=type, label=label, type_name=of)

    status = file.message_type.add(name="Status")
    add(status, 1, "code", field.TYPE_INT32)
    add(status, 2, "message", field.TYPE_STRING)
    add(status, 3, "details", field.TYPE_MESSAGE, repeated=True, of=".google.protobuf.Any")
    info = file.message_type.add(name="ErrorInfo")
    add(info, 1, "reason", field.TYPE_STRING)
    add(info, 2, "domain", field.TYPE_STRING)
    bad_request = file.message_type.add(name="BadRequest")
    add(bad_request, 1, "field_violations", field.TYPE_MESSAGE, True, ".google.rpc.BadRequest.FieldViolation")
    violation = bad_request.nested_type.add(name="FieldViolation")
    add(violation, 1, "field", field.TYPE_STRING)
    add(violation, 2, "description", field.TYPE_STRING)
    descriptor_pool.Default().Add(file)
    return message_factory.GetMessageClassesForFiles([file.name], descriptor_pool.Default())


RPC = rpc_messages()


class Checks:
    def __init__(self, address, requests="identity", answers="identity"):
        self.address, self.requests, self.answers = address, requests, answers
        self.channel = open_channel(address, requests)
        self.reflection, self.descriptors = reflect(self.channel)
        self.passed = 0

    def run(self):
        """Runs every method whose name begins with `check_`, in the order they are written."""
        for name in [name for name in vars(Checks) if name.startswith("check_")]:
            what = name.removeprefix("check_").replace("_", " ")
            try:
                getattr(self, name)()
            except Exception as error:
                print(f"FAILED {what}: {error!r}\n{self.passed} passed, 1 failed")
                raise
            print(f"ok {what}")
            self.passed += 1
        print(f"{self.passed} passed, 0 failed")

    def submit(self, payload, **fields):
        query = {"kind": "echo", "payload": json.dumps(payload)}
        return self.workers.Submit(query=query, **fields)

    def events(self, query_id, from_sequence=0):
        """A query's events to its end; each must follow on the one before, and the last must be final."""
        responses = self.workers.StreamResults(query_id=query_id, from_sequence=from_sequence)
        return self.in_order([response.event for response in responses], from_sequence)

    @staticmethod
    def in_order(events, first):
        assert [event.sequence for event in events] == list(range(first, first + len(events))), events
        finals = [event.WhichOneof("body") in FINAL for event in events]
        assert finals and finals == [False] * (len(finals) - 1) + [True], events
        assert all(event.HasField("at") for event in events), events
        return events

    @staticmethod
    def refused(code, call):
        """Makes a call that must fail with this status, and returns the details."""
        try:
            call()
        except grpc.RpcError as error:
            assert error.code() == code, error
            return error_details(error)
        raise AssertionError(f"expected {code}")

    def state(self, query_id):
        query = self.admin.GetQuery(query_id=query_id).query
        return query.DESCRIPTOR.fields_by_name["state"].enum_type.values_by_number[query.state].name

    def check_reflection_lists_the_services(self):
        listed = set(self.reflection.get_services())
        wanted = {"remuda.v1.WorkerPool", "remuda.v1.PoolAdmin", "grpc.health.v1.Health"}
        assert wanted <= listed, listed

    def check_reflection_describes_the_services(self):
        def service(name):
            return Service(self.channel, self.descriptors, name)

        self.workers, self.admin = service("remuda.v1.WorkerPool"), service("remuda.v1.PoolAdmin")
        self.health = service("grpc.health.v1.Health")

    def check_health_says_serving(self):
        health = self.workers.Health()
        assert health.serving and not health.reasons, health
        assert "echo" in [kind.kind for kind in health.kinds], health
        assert health.version and health.lifecycle == "ready", health

    def check_standard_health_says_serving(self):
        assert self.health.Check().status == 1, "not SERVING"

    def check_a_submitted_query_is_echoed(self):
        payload = {"greeting": "grüß Gott", "list": [1, 2.5, None]}
        accepted = self.submit(payload)
        assert accepted.query_id and accepted.kind == "echo" and not accepted.existed, accepted
        message, complete = self.events(accepted.query_id)
        assert json.loads(message.message.content) == payload and message.attempt == 1, message
        assert complete.WhichOneof("body") == "complete", complete
        assert self.state(accepted.query_id) == "QUERY_STATE_COMPLETE"

    def check_messages_are_streamed_in_order_and_can_be_read_again(self):
        query_id = self.submit({"stream": 5, "delay_ms": 20}).query_id
        events = self.events(query_id)
        assert [json.loads(event.message.content) for event in events[:-1]] == [{"n": n} for n in range(1, 6)], events
        assert json.loads(events[-1].complete.result) == {"streamed": 5}, events
        assert self.events(query_id, from_sequence=3) == events[3:]

    def check_submit_is_idempotent_by_id(self):
        first = self.submit({"stream": 1})
        again = self.submit({"stream": 2}, query_id=f"{first.query_id}-again")
        assert self.submit({"stream": 2}, query_id=again.query_id).existed
        code = grpc.StatusCode.ALREADY_EXISTS
        details = self.refused(code, lambda: self.submit({"stream": 3}, query_id=again.query_id))
        assert details["google.rpc.ErrorInfo"].domain == "remuda", details

    def check_execute_submits_and_streams(self):
        query = {"kind": "echo", "payload": '{"stream": 2}'}
        accepted, *rest = self.workers.Execute(query=query)
        assert accepted.WhichOneof("body") == "accepted" and accepted.accepted.kind == "echo", accepted
        events = self.in_order([response.event for response in rest], 0)
        assert [json.loads(event.message.content) for event in events[:-1]] == [{"n": 1}, {"n": 2}], events
        assert json.loads(events[-1].complete.result) == {"streamed": 2}, events

    def check_a_reported_error_ends_the_query(self):
        *_, last = self.events(self.submit({"fail": "no such luck"}).query_id)
        assert last.WhichOneof("body") == "error" and "no such luck" in last.error.message, last

    def check_a_long_query_can_be_cancelled(self):
        query_id = self.submit({"sleep_ms": 60_000}).query_id
        found = self.workers.Cancel(query_id=query_id, reason="changed my mind")
        assert found.found in (1, 2), found  # It was queued, or ran.
        *_, last = self.events(query_id)
        assert last.WhichOneof("body") == "cancelled", last
        assert last.cancelled.reason == "changed my mind" and last.cancelled.stage, last
        assert self.state(query_id) == "QUERY_STATE_CANCELLED"

    def check_a_bad_payload_is_refused_by_name(self):
        query = {"kind": "echo", "payload": '{"unfinished":'}
        details = self.refused(grpc.StatusCode.INVALID_ARGUMENT, lambda: self.workers.Submit(query=query))
        violations = details["google.rpc.BadRequest"].field_violations
        assert [violation.field for violation in violations] == ["query.payload"], violations

    def check_an_unknown_query_is_not_found(self):
        self.refused(grpc.StatusCode.NOT_FOUND, lambda: list(self.workers.StreamResults(query_id="no-such-query")))

    def check_large_messages_have_the_expected_encoding(self):
        proxy = CountingProxy(self.address)
        with open_channel(proxy.target(), self.requests) as channel:
            workers = Service(channel, self.descriptors, "remuda.v1.WorkerPool")
            payload = json.dumps({"pad": "x" * LARGE})
            query_id = workers.Submit(query={"kind": "echo", "payload": payload}).query_id
            sent, received = proxy.sent, proxy.received
            message, _ = [response.event for response in workers.StreamResults(query_id=query_id)]
        assert message.message.content == payload
        self.assert_encoding("request", self.requests, sent)
        self.assert_encoding("answer", self.answers, proxy.received - received)

    @staticmethod
    def assert_encoding(what, expected, wire_bytes):
        actual = "gzip" if wire_bytes < LARGE // 10 else "identity"
        assert actual == expected, f"expected the {what} in {expected}, but it took {wire_bytes} bytes"


if __name__ == "__main__":
    if len(sys.argv) not in (2, 4) or not COMPRESSION.keys() >= set(sys.argv[2:]):
        sys.exit("usage: client.py ADDRESS [REQUESTS ANSWERS], encodings: identity, gzip")
    Checks(*sys.argv[1:]).run()
