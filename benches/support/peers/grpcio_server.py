"""The worker function behind a grpcio server and a ProcessPoolExecutor, which answers `remuda.v1.WorkerPool/Execute`.

PEER_FRONT chooses between the two servers that grpcio has: `aio`, on asyncio, and `threads`. A pool that broke is replaced, as a careful
user would do; the queries that it held have failed by then.
"""
import asyncio
import multiprocessing
import os
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import grpc
from remuda.v1 import types_pb2
from remuda.v1 import worker_pool_pb2 as messages
from remuda.v1 import worker_pool_pb2_grpc as services
from work import work_on_text

WORKERS = int(os.environ["PEER_WORKERS"])
CONCURRENCY = int(os.environ["PEER_CONCURRENCY"])


class Pool:
    """An executor, and another one in its place once it broke."""

    def __init__(self):
        self.lock = threading.Lock()
        self.executor = self.start()

    def start(self):
        # Not by plain fork, which is not safe in a process that runs gRPC's threads.
        executor = ProcessPoolExecutor(WORKERS, mp_context=multiprocessing.get_context("forkserver"))
        for _ in range(WORKERS):  # The processes start with the first tasks.
            executor.submit(work_on_text, "{}")
        return executor

    def submit(self, text):
        executor = self.executor
        try:
            future = executor.submit(work_on_text, text)
        except BrokenProcessPool:
            self.replace(executor)
            raise
        future.add_done_callback(lambda done: self.check(executor, done))
        return future

    def check(self, executor, done):
        if not done.cancelled() and isinstance(done.exception(), BrokenProcessPool):
            self.replace(executor)

    def replace(self, broken):
        with self.lock:
            if self.executor is broken:
                self.executor = self.start()
                broken.shutdown(wait=False)


def accepted():
    state = types_pb2.QUERY_STATE_PROCESSING
    return messages.ExecuteResponse(accepted=messages.SubmitResponse(query_id="q", kind="noop", state=state))


def complete(result):
    event = types_pb2.Event(attempt=1, complete=types_pb2.CompleteEvent(result=result))
    return messages.ExecuteResponse(event=event)


class Asynchronous(services.WorkerPoolServicer):
    def __init__(self, pool):
        self.pool = pool

    async def Execute(self, request, context):
        yield accepted()
        try:
            yield complete(await asyncio.wrap_future(self.pool.submit(request.query.payload)))
        except BrokenProcessPool as error:
            await context.abort(grpc.StatusCode.INTERNAL, str(error))


class Threaded(services.WorkerPoolServicer):
    def __init__(self, pool):
        self.pool = pool

    def Execute(self, request, context):
        yield accepted()
        try:
            yield complete(self.pool.submit(request.query.payload).result())
        except BrokenProcessPool as error:
            context.abort(grpc.StatusCode.INTERNAL, str(error))


async def serve_asynchronous(address):
    server = grpc.aio.server()
    services.add_WorkerPoolServicer_to_server(Asynchronous(Pool()), server)
    server.add_insecure_port(address)
    await server.start()
    await server.wait_for_termination()


def serve_threaded(address):
    server = grpc.server(ThreadPoolExecutor(CONCURRENCY))
    services.add_WorkerPoolServicer_to_server(Threaded(Pool()), server)
    server.add_insecure_port(address)
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    if os.environ["PEER_FRONT"] == "aio":
        asyncio.run(serve_asynchronous(os.environ["PEER_ADDRESS"]))
    else:
        serve_threaded(os.environ["PEER_ADDRESS"])
