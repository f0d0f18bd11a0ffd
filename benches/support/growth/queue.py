"""Cost of waiting queries: memory for each, and processor time for those that run meanwhile."""
import rig
import wire

DEPTHS = [0, 1_000, 10_000, 100_000, 1_000_000]
PAYLOAD_BYTES = 200
LOAD = ["--concurrency", 64, "--kind", "echo"]
# As many have ended before the first look as are kept at most, so that only those that wait add to the memory.
ENDED = 20_000
CONFIG = '[queue]\nmax_queries = 2_000_000\n\n[pool]\nmax_workers = 16\ndrain_timeout = "1s"\n'


def start():
    """A server with a second kind, whose one worker is busy for good."""
    pool = rig.Pool(8, CONFIG + rig.echo(1, "held"))
    rig.wait_until("the held worker", lambda: pool.ready("held") == 1)
    connection = wire.Connection(pool.address)
    connection.call_many("Submit", wire.submit("held", '{"sleep_ms":100000000}'), 1)
    return pool, connection


def measure(rounds=9, count=10_000):
    payload = '{"text":"' + "x" * (PAYLOAD_BYTES - 11) + '"}'
    query = wire.submit("held", payload)
    points, waiting = [], 0
    (base, _), (pool, connection) = start(), start()
    with base, pool:
        for server in (base, pool):
            rig.cost(server, ENDED, *LOAD)
        before = rig.rss_bytes(pool.pid)
        for depth in DEPTHS:
            connection.call_many("Submit", query, depth - waiting)
            waiting = depth
            if (found := pool.health()["queries_waiting"]) != depth:
                raise RuntimeError(f"{found} wait instead of {depth}")
            each = (rig.rss_bytes(pool.pid) - before) / depth if depth else 0
            none, many = rig.in_turns(rounds, lambda: rig.cost(base, count, *LOAD), lambda: rig.cost(pool, count, *LOAD))
            points.append({"queued": depth, "bytes_each": each, "cost_us": many, "cost_us_of_0": none, "ratio": many / none})
            rig.say(points[-1])
    deepest = points[-1]
    limits = [
        rig.limit("cost of a query at 1,000,000 queued, of that at none", deepest["ratio"], most=1.2),
        rig.limit("memory for each of 1,000,000 queued queries of 200 B", deepest["bytes_each"], "bytes", most=700),
    ]
    return {"points": points, "payload_bytes": PAYLOAD_BYTES, "limits": limits}
