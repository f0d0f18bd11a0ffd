"""Checks deploy/compose.yaml: against the Compose specification, and for what this project promises of every service.

    compose.py SCHEMA.json
"""

import json
import pathlib
import sys

import jsonschema
import yaml

FILE = pathlib.Path(__file__).resolve().parents[2] / "deploy/compose.yaml"


def problems(compose, schema):
    # `name` is younger than the last schema that a package index has.
    known = {key: value for key, value in compose.items() if key != "name"}
    for error in jsonschema.Draft7Validator(schema).iter_errors(known):
        yield f"{'.'.join(map(str, error.absolute_path))}: {error.message}"
    for name, service in compose["services"].items():
        tag = service["image"].partition(":")[2]
        wanted = {
            "has a pinned version": tag[:1] in "v0123456789" and tag.count(".") == 2,
            "has a read-only root": service.get("read_only") is True,
            "drops all capabilities": service.get("cap_drop") == ["ALL"],
            "gains no privileges": "no-new-privileges:true" in service.get("security_opt", []),
            "has a health check": "test" in service.get("healthcheck", {}),
            "is published on this machine alone": all(port.startswith("127.0.0.1:") for port in service["ports"]),
        }
        yield from (f"{name}: not so: {what}" for what, holds in wanted.items() if not holds)
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            there = (FILE.parent / source).exists() if source.startswith(".") else source in compose["volumes"]
            if not there:
                yield f"{name}: {source} is not there"


def main():
    schema = json.loads(pathlib.Path(sys.argv[1]).read_text())
    found = list(problems(yaml.safe_load(FILE.read_text()), schema))
    for problem in found:
        print(f"{FILE.name}: {problem}", file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
