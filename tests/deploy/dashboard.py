"""Runs every expression of the dashboard against a Prometheus that has scraped a Remuda under load.

    dashboard.py PROMETHEUS_URL [--interval 10s] [--wait SECONDS]

Fails for each expression that is refused or has no data, and for each metric that a rule, the adapter or a panel names
and Prometheus has never seen. With --wait it tries again until all is there or the time is over.
"""

import argparse
import json
import math
import pathlib
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

DEPLOY = pathlib.Path(__file__).resolve().parents[2] / "deploy"
NAMES = ["prometheus/alerts.yml", "prometheus/recording.yml", "kubernetes/prometheus-adapter.yaml", "grafana/remuda.json"]
# Not metrics: the dashboard's and the adapter's own names. A name with a colon is a recording rule's.
OTHERS = {"remuda_load"}


def ask(base, path, **parameters):
    url = f"{base}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]
    except urllib.error.HTTPError as error:
        raise ValueError(json.load(error).get("error", str(error))) from error


def expressions(interval):
    """Title and expression of every target, and of every variable, with the variables filled in."""
    dashboard = json.loads((DEPLOY / "grafana/remuda.json").read_text())
    fill = {"$__rate_interval": interval, "$job": ".*", "$instance": ".*", "$kind": ".*"}
    found = [(panel["title"], target["expr"]) for panel in dashboard["panels"] for target in panel.get("targets", [])]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            series = re.fullmatch(r"label_values\((.*), \w+\)", variable["query"]["query"]).group(1)
            found.append((f"variable {variable['name']}", series))
    for title, template in found:
        expression = template
        for name, value in fill.items():
            expression = expression.replace(name, value)
        if "$" in expression:
            raise ValueError(f"{title}: a variable is left in {expression}")
        yield title, expression


def problem_of(base, expression):
    try:
        result = ask(base, "query", query=expression)["result"]
    except ValueError as error:
        return f"refused: {error}"
    if not result:
        return "no data"
    if all(math.isnan(float(series["value"][1])) for series in result):
        return "nothing but NaN: no such thing has happened yet"
    return None


def unknown_metrics(base):
    seen = set(ask(base, "label/__name__/values"))
    for file in NAMES:
        lines = (DEPLOY / file).read_text().splitlines()
        text = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
        named = set(re.findall(r"(?<![\w:])(?:remuda|process)_[a-z_]+(?![\w:])", text)) - OTHERS
        for name in sorted(named - seen):
            yield f"{file} names {name}, which Remuda does not have"


def look(base, interval):
    found = list(unknown_metrics(base))
    checked = list(expressions(interval))
    for title, expression in checked:
        if problem := problem_of(base, expression):
            found.append(f"{title}: {problem}: {expression}")
    return len(checked), found


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("url")
    arguments.add_argument("--interval", default="10s", help="what stands for Grafana's $__rate_interval")
    arguments.add_argument("--wait", type=float, default=0, help="seconds to wait for all data to be there")
    asked = arguments.parse_args()
    until = time.monotonic() + asked.wait
    while True:
        count, found = look(asked.url.rstrip("/"), asked.interval)
        if not found or time.monotonic() > until:
            break
        time.sleep(1)
    for problem in found:
        print(problem, file=sys.stderr)
    print(f"{count} expressions, {len(found)} problems")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
