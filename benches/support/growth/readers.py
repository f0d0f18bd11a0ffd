"""Cost of readers: each further one of a query's log, and those that do not read."""
import socket

import rig
import wire

# As the kernel counts the states of a connection.
ESTABLISHED = 1
READERS = [1, 10, 100]
MESSAGES = 20_000
LOG = f'{{"stream":{MESSAGES},"size":200}}'
SLOW = 64


def read_by(pool, readers):
    """The server's processor time for each message that a reader gets, in microseconds."""
    connection = wire.Connection(pool.address)
    name = f"log-{readers}-{rig.cpu_seconds(pool.pid)}"
    before = rig.cpu_seconds(pool.pid)
    connection.call_many("Submit", wire.submit("echo", LOG, name), 1)
    connection.finish([connection.open("StreamResults", wire.stream_results(name)) for _ in range(readers)])
    connection.close()
    return (rig.cpu_seconds(pool.pid) - before) / (MESSAGES * readers) * 1e6


def rate(pool):
    return rig.bench(pool.address, "--concurrency", 64, "--duration", "3s", "--warmup", "500ms")["queries_per_second"]


def rate_beside_slow(pool):
    """The rate while a long log has readers that take their first window and no more, each on a connection of its own."""
    connections = [wire.Connection(pool.address, window=1024) for _ in range(SLOW)]
    name = f"long-{connections[0].socket.getsockname()[1]}"
    connections[0].call_many("Submit", wire.submit("echo", LOG, name), 1)
    for connection in connections:
        connection.open("StreamResults", wire.stream_results(name))
    seen = rate(pool)
    for connection in connections:
        if connection.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != ESTABLISHED:
            raise RuntimeError("a reader that does not read was cut off")
        connection.close()
    return seen


def measure(rounds=7):
    points = []
    with rig.Pool(8) as pool:
        for readers in READERS:
            told = [read_by(pool, readers) for _ in range(rounds)]
            points.append({"readers": readers, "cost_us": rig.median(told)})
            rig.say(points[-1])
        alone, beside = rig.in_turns(rounds, lambda: rate(pool), lambda: rate_beside_slow(pool))
    told = {"points": points, "slow": {"readers": SLOW, "alone": alone, "beside": beside, "ratio": beside / alone}}
    rig.say(told["slow"])
    return {**told, "limits": [rig.limit("queries/s beside 64 readers that do not read", beside / alone, least=0.9)]}
