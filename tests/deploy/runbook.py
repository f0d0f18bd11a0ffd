"""Checks that alerts, their tests and the runbook belong together.

    runbook.py

Every alert has a severity, a summary, a description, a chapter in docs/deploy.md that its `runbook` points to, and a
test in which it fires; each test also shows a moment at which nothing does. No chapter is left of an alert that is gone.
"""

import itertools
import pathlib
import re
import sys

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROMETHEUS = ROOT / "deploy/prometheus"


def tested():
    """The alerts that a test wants to see firing, if the same test also has a moment of silence."""
    for file in PROMETHEUS.glob("tests/*.yml"):
        for test in yaml.safe_load(file.read_text())["tests"]:
            samples = [moment["exp_samples"] for moment in test["promql_expr_test"]]
            if [] in samples:
                for sample in itertools.chain.from_iterable(samples):
                    yield re.search(r'alertname="(\w+)"', sample["labels"]).group(1)


def problems():
    groups = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"]
    alerts = {rule["alert"]: rule for group in groups for rule in group["rules"]}
    chapters = set(re.findall(r"^#+ (Remuda\w+)$", (ROOT / "docs/deploy.md").read_text(), re.MULTILINE))
    shown = set(tested())
    for name, rule in alerts.items():
        notes = rule["annotations"]
        if rule["labels"].get("severity") not in ("critical", "warning"):
            yield f"{name} has no severity"
        if not notes.get("summary") or not notes.get("description"):
            yield f"{name} does not say what it means"
        if notes.get("runbook") != f"docs/deploy.md#{name.lower()}":
            yield f"{name} does not point to its own chapter"
        if name not in chapters:
            yield f"{name} has no chapter in docs/deploy.md"
        if name not in shown:
            yield f"{name} has no test in which it is silent and then fires"
    yield from (f"docs/deploy.md has a chapter on {name}, which is no alert" for name in sorted(chapters - set(alerts)))


def main():
    found = list(problems())
    for problem in found:
        print(problem, file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
