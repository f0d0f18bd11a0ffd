"""Calls replicas in turn until standard input ends; ../replicas.py says what it prints.

    load.py ADDRESS...
"""

import json
import random
import sys
import threading
import time

import grpc

from client import FINAL, Service, open_channel, reflect

CALLERS = 16
FAILURE_PAUSE = 0.02  # Seconds; keeps callers that only fail from spinning.
OPTIONS = [
    ("grpc.enable_http_proxy", 0),
    # This library would send the list of addresses as the authority, which HTTP/2 servers that check it refuse.
    ("grpc.default_authority", "localhost"),
    ("grpc.service_config", json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})),
    # No retry policy is configured or looked up. 0 would also disable the transparent retries of calls that no server has
    # seen, which every client has by default.
    ("grpc.enable_retries", 1),
    ("grpc.service_config_disable_resolution", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
]


class IncompleteError(Exception):
    """A stream that ended with OK, but not with all that belongs to a complete query."""


def submit(workers):
    """Returns the kind that was chosen, which names the replica."""
    return workers.Submit(query={"payload": json.dumps({"sleep_ms": random.randint(2, 10)})}).kind


def execute(workers):
    sleep, stream = {"sleep_ms": random.randint(2, 200)}, {"stream": 5, "delay_ms": random.randint(1, 40)}
    accepted, *rest = workers.Execute(query={"payload": json.dumps(random.choice([sleep, stream]))})
    bodies = [response.event.WhichOneof("body") for response in rest]
    if [response.event.sequence for response in rest] != list(range(len(rest))):
        raise IncompleteError(f"events out of order: {bodies}")
    if [body for body in bodies if body in FINAL] != ["complete"] or bodies[-1] != "complete":
        raise IncompleteError(f"not complete: {bodies}")
    return accepted.accepted.kind


def attempt(call, workers):
    try:
        return 0, call(workers)
    except grpc.RpcError as error:
        return error.code().value[0], " ".join(error.details().split())
    except IncompleteError as error:
        return grpc.StatusCode.UNKNOWN.value[0], str(error)


def call_until(stop, workers):
    while not stop.is_set():
        call, name = random.choice([(submit, "Submit"), (execute, "Execute")])
        code, detail = attempt(call, workers)
        # A line is one write, so lines of several callers do not mix.
        sys.stdout.write(f"{name}\t{code}\t{detail}\n")
        sys.stdout.flush()
        if code:
            time.sleep(FAILURE_PAUSE)


def main(addresses):
    with open_channel(addresses[0]) as single:
        _, descriptors = reflect(single)
        channel = grpc.insecure_channel(f"ipv4:{','.join(addresses)}", options=OPTIONS)
        workers = Service(channel, descriptors, "remuda.v1.WorkerPool")
    stop = threading.Event()
    callers = [threading.Thread(target=call_until, args=(stop, workers)) for _ in range(CALLERS)]
    for caller in callers:
        caller.start()
    sys.stdin.read()
    stop.set()
    for caller in callers:
        caller.join()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: load.py ADDRESS...")
    main(sys.argv[1:])
