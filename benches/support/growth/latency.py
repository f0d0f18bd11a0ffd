"""Latency of a lone query, beside a unary call to the bare gRPC server plus a round trip to the same worker over a bare socket."""
import rig


def measure(rounds=7, seconds=2):
    load = ["--concurrency", 1, "--messages", 1, "--size", 200]
    with rig.Pool(8) as pool:
        single = rig.compare(pool.address, *load, "--rounds", rounds, "--duration", f"{seconds}s")["single"]
    rig.say(single)
    limits = [rig.limit("p50 of a lone query, of a bare call and a bare round trip", single["ratio"], most=1.5)]
    told = {"unary_us": single["unary_p50_us"], "socket_us": single["raw_p50_us"], "remuda_us": single["remuda_p50_us"]}
    return {**told, "ratio": single["ratio"], "limits": limits}
