"""Shared by the measuring scripts: servers that are started and stopped, load, and the kernel's figures of a process."""
import contextlib
import json
import os
import pathlib
import platform
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
PAGE = os.sysconf("SC_PAGE_SIZE")


def binary():
    """The release build, or the one that REMUDA_BINARY names."""
    path = pathlib.Path(os.environ.get("REMUDA_BINARY", ROOT / "target/release/remuda")).resolve()
    if not path.exists():
        sys.exit(f"{path} is missing: cargo build --release")
    return str(path)


def say(*words):
    print(*words, file=sys.stderr, flush=True)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(what, condition, seconds=60, step=0.02):
    """The first true answer of `condition`."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        answer = condition()
        if answer:
            return answer
        time.sleep(step)
    raise TimeoutError(f"{what}: not within {seconds} s")


class Process:
    """A program with its output in a file, stopped at the end of a `with`."""

    def __init__(self, command, env=None, cwd=None):
        self.log = tempfile.NamedTemporaryFile("w+", prefix="remuda-bench-", suffix=".log")  # noqa: SIM115 (it lives as long as the process)
        env = {**os.environ, **(env or {})}
        self.child = subprocess.Popen(command, stdout=self.log, stderr=self.log, env=env, cwd=cwd, start_new_session=True)
        self.pid = self.child.pid

    def text(self):
        return pathlib.Path(self.log.name).read_text(errors="replace")

    def alive(self):
        if self.child.poll() is not None:
            sys.exit(f"it ended with {self.child.returncode}:\n{self.text()[-2000:]}")
        return True

    def stop(self, seconds=60):
        self.child.send_signal(signal.SIGTERM)
        try:
            self.child.wait(seconds)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
        # Processes of its group that it has left behind.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.log.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


class Server(Process):
    """A Remuda server with a config of its own on ports of its own."""

    def __init__(self, config, wrapper=(), seconds=60):
        self.dir = tempfile.TemporaryDirectory(prefix="remuda-bench-")
        file = pathlib.Path(self.dir.name) / "remuda.toml"
        file.write_text(config)
        command = [*wrapper, binary(), "serve", "--config", str(file), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
        super().__init__(command, cwd=self.dir.name)
        wait_until("serving", lambda: self.alive() and self.said("grpc"), seconds)
        self.address, self.http = self.said("grpc"), self.said("http")

    def said(self, field):
        found = re.search(rf'"message":"serving".*"{field}":"([^"]*)"', self.text())
        return found and found[1]

    def cli(self, *arguments, check=True):
        done = subprocess.run([binary(), *arguments, "--endpoint", f"http://{self.address}"], capture_output=True, text=True, check=False)
        if check and done.returncode != 0:
            sys.exit(f"remuda {' '.join(arguments)}: {done.stderr}{done.stdout}")
        return done.stdout

    def health(self):
        return json.loads(self.cli("health", "--json", check=False) or "{}")

    def ready(self, kind):
        """Number of workers of a kind that can take a query."""
        kinds = {found["kind"]: found["workers"] for found in self.health().get("kinds", [])}
        workers = kinds.get(kind, {})
        return workers.get("ready", 0) + workers.get("idle", 0)

    def stop(self, seconds=60):
        super().stop(seconds)
        self.dir.cleanup()


def stat(pid):
    """The fields of /proc/PID/stat from the third on, or `None` if the process is gone."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def cpu_seconds(pid):
    """Processor time of the threads of a process, in user and kernel mode. Ended threads do not count; a server's stay."""
    tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def rss_bytes(pid):
    return int(stat(pid)[21]) * PAGE


def command_line(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def descendants(pid):
    """All that a process has started, directly or not, as {pid: parent}."""
    parents = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := stat(entry.name)):
            parents[int(entry.name)] = int(fields[1])
    found, new = {}, {pid}
    while new:
        new = {child for child, parent in parents.items() if parent in new and child not in found}
        found.update((child, parents[child]) for child in new)
    return found


def run_bench(*arguments):
    """One run of the load generator; all that it tells."""
    command = [binary(), "bench", "--json", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout.strip():
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return json.loads(done.stdout)


def bench(address, *arguments):
    """The figures of a server under load."""
    return run_bench("--endpoint", f"http://{address}", *arguments)["remuda"]


def compare(address, *arguments):
    """All that is told of a server and the bare one, under load in turns."""
    return run_bench("--endpoint", f"http://{address}", "--compare", *arguments)


def median(values):
    return statistics.median(list(values))


def revision():
    """The measured commit; with a mark if there are uncommitted changes."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def machine():
    """The measured commit, and the machine."""
    model = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return {
        "processors": os.cpu_count(),
        "model": model[1] if model else platform.machine(),
        "memory_gib": round(memory),
        "kernel": platform.release().split("-")[0],
        "revision": revision(),
    }


def write_json(path, data):
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(path).write_text(json.dumps(data, indent=2) + "\n")


def limit(name, value, unit="x", **bound):
    """A figure with its limit: `most=` or `least=`."""
    ((at, bound),) = bound.items()
    met = value <= bound if at == "most" else value >= bound
    return {"name": name, "value": value, "unit": unit, "at": at, "limit": bound, "met": met}


ECHO = """
[kinds.{name}]
command = ["{binary}", "worker", "echo"]
min = {workers}
max = {workers}
"""


def echo(workers, name="echo"):
    """The section of a kind of echo workers."""
    return ECHO.format(name=name, binary=binary(), workers=workers)


class Pool(Server):
    """A server with so many echo workers, all of them ready. `config` stands before their kind, `kind` is more of that."""

    def __init__(self, workers=8, config=None, kind="", wrapper=(), seconds=300):
        if config is None:
            config = f'[pool]\nmax_workers = {workers}\nmax_starting = 32\ndrain_timeout = "1s"\n'
        super().__init__(config + echo(workers) + kind, wrapper, seconds)
        wait_until("all workers", lambda: self.alive() and self.ready("echo") == workers, seconds, 0.2)


class Baseline(Process):
    """The bare gRPC server that a pool is measured against."""

    def __init__(self, wrapper=(), seconds=120):
        super().__init__([*wrapper, binary(), "bench", "baseline"])
        found = wait_until("the baseline", lambda: self.alive() and re.search(r"127\.0\.0\.1:\d+", self.text()), seconds)
        self.address = found[0]


def cost(server, count, *arguments):
    """The server's own processor time for each of so many queries, in microseconds."""
    before = cpu_seconds(server.pid)
    seen = bench(server.address, "--count", count, *arguments)
    if seen["completed"] != count:
        sys.exit(f"not all completed: {seen}")
    return (cpu_seconds(server.pid) - before) / count * 1e6


def in_turns(rounds, *measures):
    """The medians of what is measured in turns."""
    told = [[measure() for measure in measures] for _ in range(rounds)]
    return [median(column) for column in zip(*told, strict=True)]
