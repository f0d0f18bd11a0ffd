"""Cost of workers to the server: processor time for each query, memory, a health check over all of them."""
import http.client
import time

import rig
import wire

WORKERS = [8, 64, 256, 1000]
# No more at a time than the smaller pool has workers, so that in both none waits and the others are idle.
LOAD = ["--concurrency", 8]


def settled_rss(server):
    """The smallest of what is seen for a while: what a start took is given back within seconds."""
    return min(rig.rss_bytes(server.pid) for _ in range(12) if time.sleep(0.5) is None)


def readyz(server, count=200):
    connection = http.client.HTTPConnection(server.http)
    times = []
    for _ in range(count):
        begun = time.perf_counter()
        connection.request("GET", "/readyz")
        connection.getresponse().read()
        times.append(time.perf_counter() - begun)
    return rig.median(times)


def measure(rounds=9, count=10_000):
    points = []
    with rig.Pool(WORKERS[0]) as base:
        idle = settled_rss(base)
        for workers in WORKERS:
            with rig.Pool(workers) as pool:
                rss = settled_rss(pool)
                few, many = rig.in_turns(rounds, lambda: rig.cost(base, count, *LOAD), lambda: rig.cost(pool, count, *LOAD))
                connection = wire.Connection(pool.address)
                health = rig.median(connection.time_calls("Health", b"", 200))
                point = {"workers": workers, "rss_bytes": rss, "cost_us": many, "cost_us_of_8": few, "ratio": many / few}
                points.append({**point, "health_us": health * 1e6, "readyz_us": readyz(pool) * 1e6})
                rig.say(points[-1])
    most, least = points[-1], points[0]
    each = (most["rss_bytes"] - least["rss_bytes"]) / (most["workers"] - least["workers"])
    limits = [
        rig.limit("cost of a query at 1,000 idle workers, of that at 8", most["ratio"], most=1.2),
        rig.limit("memory of the server for each worker", each / 1024, "KiB", most=32),
        rig.limit("RSS of the idle server with 8 workers", idle / 2**20, "MiB", most=16),
        rig.limit("health check over 1,000 workers, p50", most["health_us"] / 1000, "ms", most=1),
        rig.limit("/readyz over 1,000 workers, p50", most["readyz_us"] / 1000, "ms", most=1),
    ]
    return {"points": points, "bytes_each": each, "idle_rss_bytes": idle, "limits": limits}
