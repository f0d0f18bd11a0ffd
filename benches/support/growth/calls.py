"""Memory of the server for each Execute call that waits for its query."""
import time

import rig
import wire

CALLS, CONNECTIONS = 10_000, 10
# One worker, busy for good, so that all others wait.
CONFIG = '[pool]\ndrain_timeout = "1s"\n'
PAYLOAD = '{"text":"hello"}'


def measure():
    with rig.Pool(1, CONFIG) as pool:
        first = wire.Connection(pool.address)
        first.call_many("Submit", wire.submit("echo", '{"sleep_ms":100000000}'), 1)
        connections = [wire.Connection(pool.address) for _ in range(CONNECTIONS)]
        for connection in connections:
            # So that the connection itself does not count.
            connection.call_many("Health", b"", 1)
        before = rig.rss_bytes(pool.pid)
        for _ in range(CALLS // CONNECTIONS):
            for connection in connections:
                connection.open("Execute", wire.submit("echo", PAYLOAD))
        rig.wait_until("all calls to wait", lambda: pool.health()["queries_waiting"] == CALLS)
        # Each is told that it was accepted, and then waits.
        rig.wait_until("the server to be at rest", lambda: is_at_rest(pool.pid))
        each = (rig.rss_bytes(pool.pid) - before) / CALLS
    told = {"calls": CALLS, "bytes_each": each}
    rig.say(told)
    return {**told, "limits": [rig.limit("memory of the server for each waiting Execute call", each / 1024, "KiB", most=8)]}


def is_at_rest(pid):
    before = rig.cpu_seconds(pid)
    time.sleep(0.5)
    return rig.cpu_seconds(pid) - before < 0.01
