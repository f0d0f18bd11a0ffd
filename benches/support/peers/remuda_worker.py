"""A Remuda worker with nothing but the standard library: a plain loop over the lines of its socket, one send for each answer."""
import json
import os
import socket
import time

from work import encode, work

pool = socket.socket(socket.AF_UNIX)
pool.connect(os.environ["REMUDA_SOCKET"])
born, processed = time.monotonic(), 0


def send(frame):
    pool.sendall(encode(frame).encode() + b"\n")


send({"type": "ready", "name": "noop"})
for line in pool.makefile("rb"):
    frame = json.loads(line.decode())  # Faster than to have the encoding guessed.
    kind = frame["type"]
    if kind == "query":
        send({"type": "complete", "requestId": frame["requestId"], "result": work(frame["payload"])})
        processed += 1
    elif kind == "health_check":
        send({"type": "health_ok", "uptime": time.monotonic() - born, "queriesProcessed": processed})
    elif kind == "shutdown":
        send({"type": "shutdown_ack"})
        break
