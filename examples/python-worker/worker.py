"""A Remuda worker in plain Python: counts to `to`, with `delay` seconds before each number."""
import json, os, queue, socket, threading, time

pool = socket.socket(socket.AF_UNIX)
pool.connect(os.environ["REMUDA_SOCKET"])
frames, cancelled = queue.Queue(), threading.Event()  # What the pool sends; a cancel is seen at once.
born, processed = time.monotonic(), 0

def send(type, **fields):
    pool.sendall(json.dumps({"type": type, **fields}).encode() + b"\n")

def listen():  # In a thread of its own, so that a cancel is heard while a query runs.
    for frame in map(json.loads, pool.makefile("rb")):
        if frame["type"] == "query":
            cancelled.clear()  # Whatever was cancelled before, it was not this one.
        elif frame["type"] == "cancel":
            cancelled.set()
        frames.put(frame)
    os._exit(0)  # The pool is gone.

def count(request, to, delay=0):
    for n in range(1, to + 1):
        if cancelled.wait(delay):
            return send("error", requestId=request, error="cancelled", code="cancelled")
        send("message", requestId=request, content={"n": n})
    send("complete", requestId=request, result={"counted": to})

threading.Thread(target=listen, daemon=True).start()
send("ready", name="count")
while (frame := frames.get())["type"] != "shutdown":
    if frame["type"] == "health_check":
        send("health_ok", uptime=time.monotonic() - born, queriesProcessed=processed)
    elif frame["type"] == "query":
        processed += 1
        try:
            count(frame["requestId"], **frame["payload"])
        except (TypeError, ValueError, OverflowError):  # The payload is wrong, the worker is fine.
            send("error", requestId=frame["requestId"], code="bad_payload", error="expected {to: int, delay?: seconds}")
send("shutdown_ack")
