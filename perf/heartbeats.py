"""
What heartbeats cost: many clients, one connection each, tell a broker every 30 s who they are.

    python -m perf.heartbeats [--groups 1000] [--members 10] [--seconds 30]

Starts a broker of its own in a temporary folder, connects groups x members clients, lets each send
its heartbeat (one consumer group with two subscriptions, one producer group, as a Java client)
evenly spread over the interval, and prints the CPU time of all of the broker's processes as percent
of a core, per heartbeat, and the same while the clients are only connected.
"""
from __future__ import annotations

import argparse
import resource
import selectors
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

from mqcore.bench.cpu import CpuMeter
from mqcore.wire import fastjson
from mqcore.wire.codes import RequestCode
from mqcore.wire.command import encode, request
from tests.support.mqcore_process import mqcore_up

INTERVAL_S = 30.0               # of a client
IDLE_S = 5.0
JOIN_BATCH = 50                 # clients that join before their answers are awaited
RECEIVE_BYTES = 1 << 16
SETTLE_S = 2.0


def heartbeat_frame(group: str, client_id: str) -> bytes:
    """A heartbeat as the Java client 4.9.8 sends it."""

    def subscription(topic: str, expression: str, tags: dict[str, int]) -> dict[str, Any]:
        return {"classFilterMode": False, "codeSet": list(tags.values()), "expressionType": "TAG",
                "subString": expression, "subVersion": 1_795_227_850_907, "tagsSet": list(tags),
                "topic": topic}

    body: dict[str, Any] = {
        "clientID": client_id,
        "consumerDataSet": [{
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "consumeType": "CONSUME_PASSIVELY",
            "groupName": group, "messageModel": "CLUSTERING", "unitMode": False,
            "subscriptionDataSet": [
                subscription("orders", "TagA || TagB", {"TagA": 2_598_919, "TagB": 2_598_920}),
                subscription(f"%RETRY%{group}", "*", {}),
            ]}],
        "producerDataSet": [{"groupName": "CLIENT_INNER_PRODUCER"}],
    }
    return encode(request(RequestCode.HEART_BEAT, None, fastjson.dumps(body)))


class Clients:
    """All clients, in one thread: they send when told and throw away what comes."""

    def __init__(self, address: str, groups: int, members: int) -> None:
        host, _, port = address.rpartition(":")
        self._selector = selectors.DefaultSelector()
        self._sockets: list[socket.socket] = []
        self._frames: list[bytes] = []
        self.received = 0               # bytes
        for number in range(groups * members):
            connection = socket.create_connection((host, int(port)))
            connection.setblocking(False)
            self._selector.register(connection, selectors.EVENT_READ)
            self._sockets.append(connection)
            group, member = divmod(number, members)
            self._frames.append(heartbeat_frame(f"group-{group}", f"10.0.0.1@{group}-{member}"))

    def __len__(self) -> int:
        return len(self._sockets)

    def beat(self, number: int) -> None:
        self._sockets[number].sendall(self._frames[number])

    def take(self, timeout_s: float) -> None:
        """Read what comes until it is quiet for `timeout_s`, in seconds."""
        deadline = time.monotonic() + timeout_s
        while (left_s := deadline - time.monotonic()) > 0:
            for key, _ in self._selector.select(left_s):
                data = key.fileobj.recv(RECEIVE_BYTES)              # type: ignore[union-attr]
                if not data:
                    raise ConnectionError("the broker closed a connection")
                self.received += len(data)

    def join(self) -> None:
        """First heartbeats: every member of a group hears of every later one."""
        for first in range(0, len(self), JOIN_BATCH):
            for number in range(first, min(first + JOIN_BATCH, len(self))):
                self.beat(number)
            self.take(0.01)
        self.take(SETTLE_S)

    def beat_evenly(self, seconds: float) -> int:
        """Heartbeats at the rate of one each INTERVAL_S per client; returns how many."""
        rate = len(self) / INTERVAL_S
        begun, sent = time.monotonic(), 0
        while (elapsed := time.monotonic() - begun) < seconds:
            while sent < int(elapsed * rate):
                self.beat(sent % len(self))
                sent += 1
            self.take(0.05)
        return sent


def measure(groups: int, members: int, seconds: float, folder: Path) -> dict[str, float]:
    """Percent of a core with heartbeats and without, and microseconds of CPU per heartbeat."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    settings: dict[str, object] = {"processes.connection_count_max": groups * members + 100}
    try:
        with mqcore_up(folder, settings) as broker:
            clients = Clients(broker.broker_addr, groups, members)
            begun = time.monotonic()
            clients.join()
            joined_s = time.monotonic() - begun - SETTLE_S
            meter = CpuMeter([broker.process.pid])
            meter.start()
            clients.take(IDLE_S)
            idle = meter.read() / IDLE_S
            meter.start()
            begun = time.monotonic()
            sent = clients.beat_evenly(seconds)
            elapsed = time.monotonic() - begun
            used = meter.read()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return {"clients": groups * members, "joined_s": joined_s, "heartbeats": sent,
            "percent_of_a_core": used / elapsed * 100, "percent_without": idle * 100,
            "us_each": (used - idle * elapsed) / max(sent, 1) * 1e6}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else None)
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--members", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=INTERVAL_S)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mqcore-heartbeats-") as folder:
        found = measure(options.groups, options.members, options.seconds, Path(folder))
    for name, value in found.items():
        print(f"{name:20} {value:12.2f}")


if __name__ == "__main__":
    main()
