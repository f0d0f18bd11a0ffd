"""Carries out the Dockerfile without Docker, as far as this one goes: every stage in a directory of its own.

    dockerfile.py WORK

In WORK/STAGE the stage's COPY and RUN are done, with WORK/STAGE for the root. The last stage's settings are written to
WORK/settings.json and its files to WORK/root. COPY takes nothing that .dockerignore keeps out. RUN uses this machine's
programs, found by PATH, with STAGE_ROOT set. An instruction that is not known here is an error, not skipped.
"""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

CONTEXT = pathlib.Path(__file__).resolve().parents[2]


def instructions(text):
    """Each instruction with its arguments; comments are dropped and continued lines joined."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    for line in filter(str.strip, joined.splitlines()):
        name, _, arguments = line.strip().partition(" ")
        yield name, arguments.strip()


class Ignored:
    """The .dockerignore: patterns of which the last that matches decides."""

    def __init__(self):
        lines = (CONTEXT / ".dockerignore").read_text().splitlines()
        self.patterns = [line for line in lines if line and not line.startswith("#")]

    def holds(self, path):
        ignored = False
        for pattern in self.patterns:
            bare = pattern.removeprefix("!")
            if any(part.match(bare) for part in (path, *path.parents) if str(part) != "."):
                ignored = not pattern.startswith("!")
        return ignored


class Stage:
    def __init__(self, root):
        self.root = root
        self.workdir = "/"
        self.settings = {"env": {}}
        (root / "etc").mkdir(parents=True, exist_ok=True)

    def path(self, inside):
        return self.root / str(pathlib.PurePosixPath(self.workdir) / inside).lstrip("/")

    def run(self, command):
        print(f"  RUN {command[:100]}", flush=True)
        environment = {**os.environ, "STAGE_ROOT": str(self.root)}
        subprocess.run(["sh", "-c", command], cwd=self.path("."), env=environment, check=True)

    def copy(self, sources, target, source_root, ignored):
        destination = self.path(target)
        several = len(sources) > 1 or target.endswith("/")
        for source in sources:
            origin = source_root / source.lstrip("/")
            into = destination / origin.name if several else destination
            into.parent.mkdir(parents=True, exist_ok=True)
            if origin.is_file():
                copy_file(origin, into, source_root, ignored)
                continue
            for file in filter(pathlib.Path.is_file, origin.rglob("*")):
                if not (ignored and ignored.holds(file.relative_to(source_root))):
                    copy_file(file, into / file.relative_to(origin), source_root, ignored)


def copy_file(origin, into, source_root, ignored):
    if ignored and ignored.holds(origin.relative_to(source_root)):
        sys.exit(f"the Dockerfile copies {origin.relative_to(source_root)}, which .dockerignore keeps out")
    into.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(origin, into)  # With its time, as Docker does.


def command_of(arguments):
    return json.loads(arguments[arguments.index("[") :])


def main():
    work = pathlib.Path(sys.argv[1]).resolve()
    ignored, stages, stage = Ignored(), {}, None
    text = (CONTEXT / "Dockerfile").read_text()
    last = [arguments for name, arguments in instructions(text) if name == "FROM"][-1]
    for name, arguments in instructions(text):
        words = shlex.split(arguments) if name in ("FROM", "COPY", "WORKDIR", "USER", "ENV") else []
        if name == "FROM":
            stage = Stage(work / ("root" if arguments == last else words[-1]))
            stages[words[-1]] = stage
            print(f"FROM {arguments}", flush=True)
        elif name == "WORKDIR":
            stage.workdir = words[0]
            stage.path(".").mkdir(parents=True, exist_ok=True)
        elif name == "COPY" and words[0].startswith("--from="):
            stage.copy(words[1:-1], words[-1], stages[words[0].removeprefix("--from=")].root, None)
        elif name == "COPY":
            stage.copy(words[:-1], words[-1], CONTEXT, ignored)
        elif name == "RUN":
            stage.run(arguments)
        elif name == "ENV":
            stage.settings["env"].update(word.split("=", 1) for word in words)
        elif name == "USER":
            stage.settings["user"] = words[0]
        elif name in ("ENTRYPOINT", "CMD", "HEALTHCHECK"):
            stage.settings[name.lower()] = command_of(arguments)
        elif name not in ("ARG", "LABEL", "EXPOSE", "STOPSIGNAL"):
            sys.exit(f"{name} is not known to {sys.argv[0]}")
    stage.settings["workdir"] = stage.workdir
    (work / "settings.json").write_text(json.dumps(stage.settings))


if __name__ == "__main__":
    main()
