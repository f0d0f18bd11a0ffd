"""Writes the dashboard, deploy/grafana/remuda.json: one line for each panel, so that a change can be read.

    deploy/grafana/generate.py            # after a change of this file
    deploy/grafana/generate.py --check    # fails if that was forgotten
"""

import json
import pathlib
import sys

DASHBOARD = pathlib.Path(__file__).resolve().parent / "remuda.json"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
SERVER = 'job=~"$job", instance=~"$instance"'
KIND = f'{SERVER}, kind=~"$kind"'
BUSY = f'{SERVER}, state="processing"'
WIDTH, HEIGHT = 8, 7  # Three panels a row.


def rate(metric, by, labels=KIND):
    return f"sum by ({by}) (rate({metric}{{{labels}}}[$__rate_interval]))"


def increase(metric, by, labels=KIND):
    return f"sum by ({by}) (increase({metric}{{{labels}}}[$__rate_interval]))"


def total(metric, by, labels=KIND):
    return f"sum by ({by}) ({metric}{{{labels}}})"


def quantiles(metric, by="kind", labels=KIND, of=(0.5, 0.9, 0.99)):
    legend = " ".join(f"{{{{{label}}}}}" for label in by.split(", "))
    for q in of:
        buckets = rate(f"{metric}_bucket", f"{by}, le", labels)
        yield f"histogram_quantile({q}, {buckets})", f"{legend} p{q * 100:g}"


def panel(title, unit, description, *targets, kind="timeseries", stack=False, **options):
    """One panel; a target is an expression and its legend."""
    queries = [
        {"refId": chr(ord("A") + i), "datasource": SOURCE, "expr": expr, "legendFormat": legend}
        for i, (expr, legend) in enumerate(targets)
    ]
    defaults = {"unit": unit, "min": 0, **options}
    if kind == "timeseries":
        defaults["custom"] = {"fillOpacity": 30 if stack else 0, "stacking": {"mode": "normal" if stack else "none"}}
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": queries,
    }


def colours(*steps):
    return {"thresholds": {"mode": "absolute", "steps": [{"value": v, "color": c} for v, c in steps]}}


YES_NO = {
    "mappings": [{"type": "value", "options": {"0": {"text": "no"}, "1": {"text": "yes"}}}],
    **colours((None, "red"), (1, "green")),
}
CIRCUIT = {
    "mappings": [{"type": "value", "options": {"0": {"text": "closed"}, "1": {"text": "half open"}, "2": {"text": "open"}}}],
    **colours((None, "green"), (1, "orange"), (2, "red")),
}

ROWS = {
    "At a glance": [
        panel("Serving", "none", "Whether a query of the kind could start.",
              (f"min by (kind) (remuda_serving{{{KIND}}})", "{{kind}}"), kind="stat", **YES_NO),
        panel("Circuit", "none", "Open: the kind's workers do not start, and its queries fail at once.",
              (f"max by (kind) (remuda_circuit_state{{{KIND}}})", "{{kind}}"), kind="stat", **CIRCUIT),
        panel("Version and uptime", "s", "How long each server has been up.",
              (f"(time() - remuda_start_time_seconds{{{SERVER}}}) "
               f"* on (job, instance) group_left (version) remuda_build_info{{{SERVER}}}", "{{instance}} {{version}}"),
              kind="stat"),
    ],
    "Queries": [
        panel("Throughput by outcome", "reqps", "Ended queries a second.",
              (rate("remuda_query_results_total", "outcome"), "{{outcome}}"), stack=True),
        panel("Queue depth", "none", "Queries that wait for a worker, and how many may.",
              (total("remuda_queue_depth", "kind"), "{{kind}}"),
              (f"sum(remuda_queue_limit{{{SERVER}}})", "limit")),
        panel("Oldest wait", "s", "How long the oldest waiting query has waited.",
              (f"max by (kind) (remuda_queue_oldest_seconds{{{KIND}}})", "{{kind}}")),
        panel("Duration", "s", "From submit to the final event.", *quantiles("remuda_query_duration_seconds")),
        panel("Time to first message", "s", "From dispatch.", *quantiles("remuda_query_first_message_seconds")),
        panel("Wait in the queue", "s", "From submit to dispatch.", *quantiles("remuda_queue_wait_seconds")),
        panel("Failures by reason", "reqps", "Queries that ended in an error or were rejected.",
              (rate("remuda_query_failures_total", "kind, reason"), "{{kind}} {{reason}}"), stack=True),
        panel("Retries", "reqps", "Attempts that were followed by another.",
              (rate("remuda_query_retries_total", "kind, reason"), "{{kind}} {{reason}}")),
        panel("Refused submits", "reqps", "Queries that were not accepted.",
              (rate("remuda_submit_refused_total", "reason", SERVER), "{{reason}}"), stack=True),
        panel("Dead letters kept", "none", "Queries that failed for good and wait for a person.",
              (total("remuda_dead_letters", "kind"), "{{kind}}")),
        panel("New dead letters", "none", "By kind, over the interval.",
              (increase("remuda_dead_letters_total", "kind"), "{{kind}}")),
        panel("Cancel to end, by stage", "s", "The 90th percentile; the stage is what ended the query.",
              *quantiles("remuda_cancel_seconds", "stage", of=(0.9,))),
        panel("Kept queries by state", "none", "All that the broker holds, ended ones included.",
              (total("remuda_queries", "state"), "{{state}}"), stack=True),
        panel("Slow readers", "none", "Waits of workers for readers, and events dropped from full logs.",
              (increase("remuda_reader_stalls_total", "kind"), "{{kind}} stalls"),
              (increase("remuda_events_dropped_total", "kind"), "{{kind}} dropped")),
        panel("Load", "percentunit", "Queries that wait or run, in parts of pool.max_workers: what the autoscaler goes by.",
              (f"({total('remuda_queue_depth', 'instance', SERVER)} + "
               f"{total('remuda_workers', 'instance', BUSY)}) "
               f"/ max by (instance) (remuda_pool_workers_limit{{{SERVER}}})", "{{instance}}")),
    ],
    "Workers": [
        panel("Workers by state", "none", "All kinds together.",
              (total("remuda_workers", "state"), "{{state}}"), stack=True),
        panel("Workers by kind", "none", "And the kind's max.",
              (total("remuda_workers", "kind", KIND + ', state!="dead"'), "{{kind}}"),
              (total("remuda_workers_limit", "kind", KIND + ', limit="max"'), "{{kind}} max"),
              (total("remuda_workers_limit", "kind", KIND + ', limit="min"'), "{{kind}} min")),
        panel("Start to ready", "s", "How long workers take to start.",
              *quantiles("remuda_worker_start_seconds", of=(0.5, 0.9))),
        panel("Exits by cause", "none", "Ends of workers, wanted and unwanted.",
              (increase("remuda_worker_exits_total", "kind, cause"), "{{kind}} {{cause}}"), stack=True),
        panel("Restarts", "none", "Workers started in place of one that failed.",
              (increase("remuda_worker_restarts_total", "kind"), "{{kind}}")),
        panel("Transitions", "ops", "Steps in workers' lives, a second.",
              (rate("remuda_worker_transitions_total", "to"), "to {{to}}")),
        panel("Scaling", "none", "Decisions to grow or to shrink.",
              (increase("remuda_scalings_total", "kind, direction"), "{{kind}} {{direction}}")),
        panel("Evictions", "none", "Workers stopped to make room, by strategy.",
              (increase("remuda_evictions_total", "kind, strategy"), "{{kind}} {{strategy}}")),
        panel("Silence", "s", "The longest time since a live worker last said anything.",
              (f"max by (kind) (remuda_worker_silence_seconds{{{KIND}}})", "{{kind}}")),
        panel("Stale frames", "none", "Dropped, because their query was over.",
              (increase("remuda_stale_frames_total", "kind"), "{{kind}}")),
        panel("Memory of the pool", "bytes", "Reserved and measured, and the budget (0: none).",
              (f"sum(remuda_memory_reserved_bytes{{{SERVER}}})", "reserved"),
              (f"sum(remuda_worker_memory_bytes{{{SERVER}}})", "measured"),
              (f"sum(remuda_memory_budget_bytes{{{SERVER}}})", "budget")),
        panel("Memory by kind", "bytes", "Measured, and reserved.",
              (total("remuda_worker_memory_bytes", "kind"), "{{kind}} measured"),
              (total("remuda_memory_reserved_bytes", "kind"), "{{kind}} reserved")),
    ],
    "Server": [
        panel("gRPC calls by code", "reqps", "Finished calls.",
              (rate("remuda_grpc_requests_total", "code", SERVER), "{{code}}"), stack=True),
        panel("gRPC duration", "s", "The 99th percentile, by method; streams last as long as their queries.",
              *quantiles("remuda_grpc_seconds", "method", SERVER, of=(0.99,))),
        panel("gRPC connections", "none", "Open at once.",
              (total("remuda_grpc_connections", "instance", SERVER), "{{instance}}")),
        panel("CPU", "percentunit", "Of the server itself, without its workers; 100% is one processor.",
              (f"rate(process_cpu_seconds_total{{{SERVER}}}[$__rate_interval])", "{{instance}}")),
        panel("Memory", "bytes", "Of the server itself.",
              (f"process_resident_memory_bytes{{{SERVER}}}", "{{instance}}")),
        panel("File descriptors", "none", "Open, and the limit.",
              (f"process_open_fds{{{SERVER}}}", "{{instance}} open"),
              (f"process_max_fds{{{SERVER}}}", "{{instance}} limit")),
        panel("Threads", "none", "Of the server itself.", (f"process_threads{{{SERVER}}}", "{{instance}}")),
    ],
}


def variable(name, label, query):
    return {
        "name": name, "label": label, "type": "query", "datasource": SOURCE, "query": {"query": query, "refId": name},
        "refresh": 2, "multi": True, "includeAll": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"},
    }


def laid_out():
    """All panels, each with its place, below the title of its row."""
    y, number = 0, 0
    for title, panels in ROWS.items():
        number += 1
        yield {"id": number, "type": "row", "title": title, "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}, "panels": []}
        y += 1
        for i, one in enumerate(panels):
            number += 1
            place = {"x": i % 3 * WIDTH, "y": y + i // 3 * HEIGHT, "w": WIDTH, "h": HEIGHT}
            yield {"id": number, **one, "gridPos": place}
        y += -(-len(panels) // 3) * HEIGHT


def main():
    head = {
        "title": "Remuda",
        "description": "Remuda's pool, queries, workers and server. Written by deploy/grafana/generate.py: change it there.",
        "uid": "remuda", "schemaVersion": 39, "version": 1, "tags": ["remuda"], "editable": True, "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"}, "timezone": "browser", "graphTooltip": 1,
        "templating": {"list": [
            {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "current": {}},
            variable("job", "Job", "label_values(remuda_build_info, job)"),
            variable("instance", "Instance", 'label_values(remuda_build_info{job=~"$job"}, instance)'),
            variable("kind", "Kind", f"label_values(remuda_workers{{{SERVER}}}, kind)"),
        ]},
    }
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    panels = ",\n".join(json.dumps(one) for one in laid_out())
    text = "{" + ",\n".join(lines) + ',\n"panels": [\n' + panels + "\n]}\n"
    if sys.argv[1:] == ["--check"]:
        if DASHBOARD.read_text() != text:
            sys.exit(f"{DASHBOARD.name} is not what {sys.argv[0]} writes: run it")
    else:
        DASHBOARD.write_text(text)


if __name__ == "__main__":
    main()
