"""Queries and messages a second, beside the bare gRPC server."""
import rig

LOADS = {
    "queries": ("queries_per_second", ["--concurrency", 64, "--messages", 1, "--size", 200], 0.45),
    "messages": ("messages_per_second", ["--concurrency", 16, "--messages", 1000, "--size", 200], 0.5),
}


def measure(rounds=7, seconds=3):
    told = {"limits": []}
    for name, (field, load, least) in LOADS.items():
        with rig.Pool(8) as pool:
            seen = rig.compare(pool.address, *load, "--rounds", rounds, "--duration", f"{seconds}s")
        ratio = seen["ratio"][field]
        told[name] = {"baseline": seen["baseline"][field], "remuda": seen["remuda"][field], "ratio": ratio}
        told["limits"].append(rig.limit(f"{name}/s of bare gRPC", ratio, least=least))
        rig.say(told[name])
    return told
