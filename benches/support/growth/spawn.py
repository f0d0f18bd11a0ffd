"""Time from the start of a worker to `ready`, beside the same program started by a small parent; also by a large server."""
import json
import os
import pathlib
import re
import socket
import sys
import tempfile
import time
import urllib.request

import rig
import wire

PROGRAMS = {
    "echo": [rig.binary(), "worker", "echo"],
    "python": [sys.executable, str(rig.HERE / "peers/remuda_worker.py")],
}
# The launcher is one more start of our binary: as long again as a trivial worker's own, little beside a real one's.
LIMITS = {"echo": 3.0, "python": 1.3}
STARTS = 30
LARGE = 2 << 30
PAYLOAD = 2 << 20


# Neither a command that ends nor a look at the metrics is to take the processors from the very start that is measured.
QUIET = 0.02


def bare_start(command, path, listener):
    time.sleep(QUIET)
    begun = time.perf_counter()
    pid = os.posix_spawn(command[0], command, {**os.environ, "REMUDA_SOCKET": path})
    connection = listener.accept()[0]
    connection.recv(4096)
    took = time.perf_counter() - begun
    connection.close()
    os.waitpid(pid, 0)
    return took


def bare(command):
    """One start by this small process, in seconds."""
    with tempfile.TemporaryDirectory(prefix="remuda-bench-") as directory, socket.socket(socket.AF_UNIX) as listener:
        path = str(pathlib.Path(directory) / "socket")
        listener.bind(path)
        listener.listen()
        return bare_start(command, path, listener)


def started(pool, kind):
    """Number of workers of a kind that have become ready, and their start times in all."""
    text = urllib.request.urlopen(f"http://{pool.http}/metrics", timeout=30).read().decode()

    def part(name):
        return float(re.search(rf'remuda_worker_start_seconds_{name}{{kind="{kind}"}} (\S+)', text)[1])

    return part("count"), part("sum")


def own_start(pool, kind):
    """One start by the server, in seconds, as its own metrics have it."""
    count, before = started(pool, kind)
    admin = wire.Connection(pool.address, service="PoolAdmin")
    time.sleep(QUIET)
    admin.call_many("ScaleKind", wire.scale(kind, 1), 1)
    time.sleep(0.1)
    admin.close()
    rig.wait_until("a new worker", lambda: started(pool, kind)[0] > count, 30)
    took = started(pool, kind)[1] - before
    pool.cli("scale", kind, "-1")
    rig.wait_until("the end of a worker", lambda: pool.ready(kind) == 1, 30)
    return took


def enlarge(pool):
    """Lets large queries wait until the server has the size."""
    connection = wire.Connection(pool.address)
    connection.call_many("Submit", wire.submit("held", '{"sleep_ms":100000000}'), 1)
    query = wire.submit("held", '"' + "x" * PAYLOAD + '"')
    while rig.rss_bytes(pool.pid) < LARGE:
        connection.send_large("Submit", query)
    return connection


def config():
    kind = '[kinds.{}]\ncommand = {}\nmin = 1\nmax = 8\n\n'
    kinds = "".join(kind.format(name, json.dumps(command)) for name, command in PROGRAMS.items())
    return '[queue]\nmax_bytes = "4GiB"\n\n[pool]\nmax_workers = 32\ndrain_timeout = "1s"\n\n' + rig.echo(1, "held") + kinds


def measure():
    told, limits = {}, []
    with rig.Server(config()) as pool:
        for name in ["held", *PROGRAMS]:
            rig.wait_until(name, lambda name=name: pool.ready(name) == 1)
        for size in ("small", "large"):
            held = enlarge(pool) if size == "large" else None
            rss = rig.rss_bytes(pool.pid)
            for name, command in PROGRAMS.items():
                pairs = [(bare(command), own_start(pool, name)) for _ in range(STARTS)]
                alone, own = (rig.median(column) for column in zip(*pairs, strict=True))
                told[f"{name}_{size}"] = {"bare_ms": alone * 1e3, "remuda_ms": own * 1e3, "ratio": own / alone, "rss_bytes": rss}
                rig.say(name, size, told[f"{name}_{size}"])
                words = "" if size == "small" else ", server of 2 GiB"
                limits.append(rig.limit(f"start of a worker ({name}{words}), of that by a small parent", own / alone, most=LIMITS[name]))
            if held:
                held.close()
    return {**told, "limits": limits}
