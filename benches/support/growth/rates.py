"""Queries and messages a second, beside the bare gRPC server."""
import rig

LOADS = {
    "queries": ("queries_per_second", ["--concurrency", 64, "--messages", 1, "--size", 200], 0.5),
    "messages": ("messages_per_second", ["--concurrency", 16, "--messages", 1000, "--size", 200], 0.6),
}


def measure(rounds=7, seconds=3):
    told = {"limits": []}
    with rig.Floor() as floor, rig.Pool(8) as pool:
        for name, (field, load, least) in LOADS.items():

            def rate(server):
                return rig.bench(server.address, *load, "--duration", f"{seconds}s", "--warmup", "500ms")[field]

            bare, own = rig.in_turns(rounds, lambda: rate(floor), lambda: rate(pool))
            told[name] = {"floor": bare, "remuda": own, "ratio": own / bare}
            told["limits"].append(rig.limit(f"{name}/s of bare gRPC", own / bare, least=least))
    return told
