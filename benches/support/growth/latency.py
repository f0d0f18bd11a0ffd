"""What a lone query waits for, beside a call to the bare gRPC server plus a round trip to the same worker over a bare socket."""
import os
import pathlib
import socket
import subprocess
import tempfile
import time

import rig

PAYLOAD = '{"stream":1,"size":200,"pad":"' + "x" * 168 + '"}'


class Worker:
    """An echo worker with nobody between it and us."""

    def __init__(self):
        self.dir = tempfile.TemporaryDirectory(prefix="remuda-bench-")
        path = str(pathlib.Path(self.dir.name) / "socket")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen()
            self.child = subprocess.Popen([rig.binary(), "worker", "echo"], env={**os.environ, "REMUDA_SOCKET": path})
            self.socket = listener.accept()[0]
        self.read_until(b'"ready"')

    def read_until(self, sign):
        data = b""
        while sign not in data or not data.endswith(b"\n"):
            data += self.socket.recv(65536)

    def round_trips(self, count):
        query = f'{{"type":"query","requestId":"01J9ZK3V5W8Q2N4R6T8Y0A2C4E","payload":{PAYLOAD},"attempt":1}}\n'.encode()
        times = []
        for _ in range(count):
            begun = time.perf_counter()
            self.socket.sendall(query)
            self.read_until(b'"complete"')
            times.append(time.perf_counter() - begun)
        return rig.median(times) * 1e6

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()
        self.child.wait()
        self.dir.cleanup()


def p50(server):
    load = ["--concurrency", 1, "--connections", 1, "--payload", PAYLOAD, "--count", 3000, "--warmup", "300ms"]
    return rig.bench(server.address, *load)["latency_us"]["p50"]


def measure(rounds=7):
    with rig.Floor() as floor, rig.Pool(8) as pool, Worker() as worker:
        bare, trip, own = rig.in_turns(rounds, lambda: p50(floor), lambda: worker.round_trips(3000), lambda: p50(pool))
    ratio = own / (bare + trip)
    limits = [rig.limit("p50 of a lone query, of a bare call and a bare round trip", ratio, most=1.5)]
    return {"floor_us": bare, "socket_us": trip, "remuda_us": own, "ratio": ratio, "limits": limits}
