"""Writes the rules as the Prometheus operator wants them: deploy/kubernetes/components/monitoring/prometheusrule.yaml.

    deploy/prometheus/prometheusrule.py            # after a change of recording.yml or alerts.yml
    deploy/prometheus/prometheusrule.py --check    # fails if that was forgotten
"""

import pathlib
import sys
import textwrap

HERE = pathlib.Path(__file__).resolve().parent
RULE = HERE.parent / "kubernetes/components/monitoring/prometheusrule.yaml"
HEADER = """\
# The rules of deploy/prometheus, for the Prometheus operator. Written by deploy/prometheus/prometheusrule.py: change them there.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: remuda
spec:
  groups:
"""


def groups(name):
    """The groups of a rule file, as text, so that comments and line breaks stay."""
    return (HERE / name).read_text().split("groups:\n", 1)[1]


def main():
    text = HEADER + textwrap.indent(groups("recording.yml") + "\n" + groups("alerts.yml"), "  ")
    if sys.argv[1:] == ["--check"]:
        if RULE.read_text() != text:
            sys.exit(f"{RULE.name} is not what the rules say: run deploy/prometheus/prometheusrule.py")
    else:
        RULE.write_text(text)


if __name__ == "__main__":
    main()
