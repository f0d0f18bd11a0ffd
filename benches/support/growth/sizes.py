"""Cost of a message by its size, beside the bare gRPC server."""
import functools

import rig

SIZES = [200, 1_024, 4_096, 16_384, 65_536, 262_144]
BYTES = 512 << 20


def measure(rounds=3):
    points = []
    with rig.Baseline() as baseline, rig.Pool(8) as pool:
        for size in SIZES:
            messages = 100 if size > 10_000 else 1000
            count = max(16, min(500, BYTES // size // messages))
            load = ["--concurrency", 16, "--messages", messages, "--size", size]
            bare, own = rig.in_turns(rounds, *(functools.partial(rig.cost, server, count, *load) for server in (baseline, pool)))
            points.append({"bytes": size, "baseline_us": bare / messages, "remuda_us": own / messages, "ratio": own / bare})
            rig.say(points[-1])
    return {"points": points, "limits": []}
