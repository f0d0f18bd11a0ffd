"""One state transition with history, as benches/state.rs measures it."""
import re
import subprocess

import rig

UNITS = {"ps": 1e-3, "ns": 1, "µs": 1e3, "ms": 1e6}
ROWS = ["baseline_compare_exchange", "transition_with_history", "transition_with_history_and_clock"]


def medians(text):
    """The median time of each row on one thread, in nanoseconds, from divan's table."""
    found, name = {}, None
    for line in text.splitlines():
        if heading := re.match(r"[├╰]─ (\w+)", line):
            name = heading[1]
        columns = line.split("│")
        if "t=1 " in line and name in ROWS:
            value, unit = columns[-4].split()
            found[name] = float(value) * UNITS[unit]
    return found


def measure():
    command = ["cargo", "bench", "--locked", "--bench", "state", "--", *ROWS]
    done = subprocess.run(command, cwd=rig.ROOT, capture_output=True, text=True, check=True)
    told = medians(done.stdout)
    rig.say(told)
    name = "state transition with history, uncontended"
    return {"nanoseconds": told, "limits": [rig.limit(name, told["transition_with_history_and_clock"], "ns", most=200)]}
