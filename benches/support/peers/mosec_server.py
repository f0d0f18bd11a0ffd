"""The worker function behind mosec: HTTP in front, as many processes as asked for, its own JSON both ways."""
import os

from mosec import Server, Worker
from work import work


class NoOp(Worker):
    def forward(self, data):
        return work(data)


if __name__ == "__main__":
    server = Server()
    server.append_worker(NoOp, num=int(os.environ["PEER_WORKERS"]))
    server.run()
