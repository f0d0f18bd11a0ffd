"""Stops and restarts replicas under load: no call may fail.

    replicas.py [--rounds N] BINARY LOAD...

Starts two servers of BINARY and the program LOAD, with both addresses as its last arguments. LOAD balances its calls over
them with the round_robin policy, has no retry policy, and calls until its standard input ends. It prints a line for each
call: method, status code as a number, and the kind that took the query, or the message of the failure; separated by tabs.

Each round stops one of the two with SIGTERM in the middle of the load, the first and the second in turn, and starts it
again on the same port. A round passes if no call failed, the server exited with code 0, and both had served before. Exits
with 1 if a round failed, after all of them. Every wait has a deadline.
"""

import argparse
import collections
import contextlib
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

START_DEADLINE = 20  # Seconds, as all of these.
EXIT_DEADLINE = 40  # Above pool.drain_timeout, which is 30.
SERVE_DEADLINE = 30
LOAD_EXIT_DEADLINE = 30  # Above the deadline of the load's calls.
SERVED_BEFORE = 60  # Calls that each replica must have taken before one is stopped.
SERVED_AFTER = 120  # Calls that the other one must then take alone.
SHOWN_FAILURES = 5  # Different ones in each round.
CODES = """
    OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED RESOURCE_EXHAUSTED
    FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS UNAUTHENTICATED
"""
CONFIG = """\
[server]
http = "off"

# Its name tells the load which replica took a query.
[kinds.{name}]
command = {command}
min = 4
max = 4
"""


class TestError(Exception):
    """The test cannot go on."""


def wait_until(condition, deadline, what):
    end = time.monotonic() + deadline
    while not condition():
        if time.monotonic() > end:
            raise TestError(f"{what}: not within {deadline} s")
        time.sleep(0.01)


class Replica:
    """A server that keeps its port over restarts."""

    def __init__(self, binary, name, directory):
        self.binary, self.name = binary, name
        self.config, self.log = directory / f"{name}.toml", directory / f"{name}.log"
        self.config.write_text(CONFIG.format(name=name, command=json.dumps([str(binary), "worker", "echo"])))
        self.address = "127.0.0.1:0"
        self.process = None

    def start(self):
        command = [self.binary, "serve", "--config", self.config, "--listen", self.address, "--log-format", "json"]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until(lambda: self.logged("pool ready") or self.ended(), START_DEADLINE, f"the start of {self.name}")
        if self.ended():
            raise TestError(f"{self.name} did not start:\n{self.log.read_text()}")
        self.address = self.logged("serving")["grpc"]

    def logged(self, message):
        """The fields of the log line with this message, if it is there."""
        lines = self.log.read_text().splitlines(keepends=True)
        fields = [json.loads(line)["fields"] for line in lines if line.startswith("{") and line.endswith("\n")]
        return next((line for line in fields if line["message"] == message), None)

    def ended(self):
        return self.process.poll() is not None

    def stop(self):
        """Sends SIGTERM, waits for the end, and returns the exit code; None if the end did not come."""
        self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.process.wait(EXIT_DEADLINE)
        return None

    def kill(self):
        if self.process and not self.ended():
            self.process.kill()
            self.process.wait()


class Load:
    """The program that calls, and the counts of its calls since the last `take_counts`."""

    def __init__(self, command, addresses):
        self.lock = threading.Lock()
        self.take_counts()
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen([*command, *addresses], text=True, **pipes)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            method, code, detail = line.rstrip("\n").split("\t", 2)
            with self.lock:
                if code == "0":
                    self.served[detail, method] += 1
                else:
                    self.failures[f"{method} {CODES.split()[int(code)]}", detail] += 1

    def take_counts(self):
        """Returns the counts and begins them anew."""
        with self.lock:
            counts = (self.served, self.failures) if hasattr(self, "served") else None
            self.served, self.failures = collections.Counter(), collections.Counter()
            return counts

    def served_by(self, replica):
        with self.lock:
            return sum(count for (kind, _), count in self.served.items() if kind == replica.name)

    def wait_until_served(self, replica, count):
        """Waits until the replica has served this many more calls."""
        goal = self.served_by(replica) + count
        what = f"{count} calls served by {replica.name}"
        wait_until(lambda: self.served_by(replica) >= goal or self.ended(), SERVE_DEADLINE, what)
        if self.ended():
            raise TestError(f"the load ended with code {self.process.returncode}")

    def ended(self):
        return self.process.poll() is not None

    def finish(self):
        """Ends the load and waits for the calls that are under way."""
        self.process.stdin.close()
        code = self.process.wait(LOAD_EXIT_DEADLINE)
        self.reader.join(LOAD_EXIT_DEADLINE)
        if code != 0:
            raise TestError(f"the load ended with code {code}")

    def kill(self):
        if not self.ended():
            self.process.kill()
            self.process.wait()


def report(what, counts, exit_code):
    """Prints a line for the round, and one for each sort of failure; returns whether the round passed."""
    served, failures = counts
    by_replica, by_method = collections.Counter(), collections.Counter()
    for (replica, method), count in served.items():
        by_replica[replica] += count
        by_method[method] += count
    each = ", ".join(f"{name} {count}" for name, count in sorted((by_replica + by_method).items()))
    passed = not failures and exit_code == 0
    verdict = "ok" if passed else "FAILED"
    exited = "did not exit" if exit_code is None else f"exit code {exit_code}"
    print(f"{verdict} {what}: {served.total()} calls served ({each}), {failures.total()} failed, {exited}", flush=True)
    for (call, detail), count in failures.most_common(SHOWN_FAILURES):
        print(f"    {count} x {call}: {detail}")
    if len(failures) > SHOWN_FAILURES:
        print(f"    and {len(failures) - SHOWN_FAILURES} other sorts of failure")
    return passed


def run_round(number, stopped, other, load):
    for replica in (stopped, other):
        load.wait_until_served(replica, SERVED_BEFORE)
    exit_code = stopped.stop()
    load.wait_until_served(other, SERVED_AFTER)
    counts = load.take_counts()
    stopped.kill()
    stopped.start()
    return report(f"round {number}, {stopped.name} stopped", counts, exit_code)


def run(arguments, directory, cleanup):
    replicas = [Replica(arguments.binary.resolve(), name, directory) for name in ("replica-1", "replica-2")]
    for replica in replicas:
        cleanup.callback(replica.kill)
        replica.start()
    load = Load(arguments.load, [replica.address for replica in replicas])
    cleanup.callback(load.kill)
    try:
        return run_rounds(arguments.rounds, replicas, load)
    except TestError:
        report("before the test gave up", load.take_counts(), None)
        raise


def run_rounds(count, replicas, load):
    passed = True
    for number in range(count):
        first, second = replicas[number % 2], replicas[1 - number % 2]
        passed &= run_round(number + 1, first, second, load)
    for replica in replicas:
        load.wait_until_served(replica, SERVED_BEFORE)
    load.finish()
    codes = [replica.stop() for replica in replicas]
    exit_code = next((code for code in codes if code != 0), 0)
    return report("end, both stopped after the load", load.take_counts(), exit_code) and passed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("load", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    if not arguments.load:
        parser.error("a load program is needed")
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as cleanup:
        try:
            sys.exit(0 if run(arguments, pathlib.Path(directory), cleanup) else 1)
        except (TestError, subprocess.TimeoutExpired) as error:
            sys.exit(f"FAILED: {error}")


if __name__ == "__main__":
    main()
