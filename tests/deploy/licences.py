"""Enforces deny.toml's licences, versions and sources with nothing but `cargo metadata`. Advisories need cargo-deny.

    licences.py        # in the repository; exits with 1 and names what must not be there
"""

import collections
import json
import pathlib
import re
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]


def packages(rules):
    targets = [f"--filter-platform={target}" for target in rules["graph"]["targets"][:1]]
    command = ["cargo", "metadata", "--locked", "--format-version=1", *targets]
    metadata = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300).stdout)
    used = {node["id"] for node in metadata["resolve"]["nodes"]}
    return [package for package in metadata["packages"] if package["id"] in used]


def allowed(expression, licences):
    """Evaluates an SPDX expression: a licence is true if it is allowed. A slash is an old way to write OR."""
    words = re.findall(r"\(|\)|[\w.+-]+", expression.replace("/", " OR "))
    python = []
    for word in words:
        if word == "WITH":
            python[-1] += " and"  # A licence with an exception that is not listed as a whole: its exception is no obstacle.
            python.append("True")
        elif python and python[-1] == "True" and word.endswith("-exception"):
            continue
        elif word in ("(", ")"):
            python.append(word)
        elif word in ("OR", "AND"):
            python.append(word.lower())
        else:
            python.append(str(word in licences))
    return eval(" ".join(python))  # It is made of True, False, and, or and brackets alone.


def skipped(rules, name, version):
    return any(
        name == wanted and (version + ".").startswith(prefix + ".")
        for wanted, _, prefix in (entry["crate"].partition("@") for entry in rules["bans"]["skip"])
    )


def problems(rules):
    found, versions = packages(rules), collections.defaultdict(set)
    registries = collections.Counter(package["source"] for package in found if package["source"])
    default = registries.most_common(1)[0][0]
    if not default.startswith("registry+"):
        yield f"most packages come from {default}, which is no registry"
    for package in found:
        name = f"{package['name']} {package['version']}"
        licence = package["license"]
        if not licence or not allowed(licence, rules["licenses"]["allow"]):
            yield f"{name}: its licence, {licence}, is not allowed"
        source = package["source"]
        if source not in (None, default):
            yield f"{name} comes from {source}, not from the registry that all others come from"
        for dependency in package["dependencies"] if source is None else []:
            if dependency["req"] == "*":
                yield f"{dependency['name']}: any version would do; say which"
        if not skipped(rules, package["name"], package["version"]):
            versions[package["name"]].add(package["version"])
    for name, several in versions.items():
        if len(several) > 1:
            yield f"{name} is there {len(several)} times: {', '.join(sorted(several))}"
    present = [(package["name"], package["version"]) for package in found]
    for entry in rules["bans"]["skip"]:
        if not any(skipped({"bans": {"skip": [entry]}}, *one) for one in present):
            yield f"deny.toml skips {entry['crate']}, which is not there any more"


def main():
    rules = tomllib.loads((ROOT / "deny.toml").read_text())
    found = list(problems(rules))
    for problem in found:
        print(problem, file=sys.stderr)
    print(f"licences, versions and sources: {len(found)} problems")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
