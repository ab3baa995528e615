"""
One client process of perf.client_compare: our client, or the PyPI package `rocketmq`.

usage: python_client.py mqcore|rocketmq send|soon|oneway|push NAMESRV TOPIC SECONDS COUNT

Prints a line of JSON: count, seconds, and cpu, the processor seconds of this process. Sends for
SECONDS after a warm-up; `push` reads COUNT messages, and times them from the first one on.
"""
from __future__ import annotations

import importlib
import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

BODY = b"x" * 128
WARM_UP_S = 1.0
WINDOW = 2_000                      # asynchronous sends under way
TURN = 100                          # sends between two looks at the clock
WAIT_S = 120.0

Turn = Callable[[], None]
Figures = dict[str, float]


def measured(turn: Turn, per_turn: int, finish: Turn, seconds: float) -> Figures:
    """How often `turn` went in `seconds`, with all that it began finished."""
    end = time.monotonic() + WARM_UP_S
    while time.monotonic() < end:
        turn()
    finish()
    count, began, used = 0, time.monotonic(), time.process_time()
    while time.monotonic() < began + seconds:
        turn()
        count += per_turn
    finish()
    return {"count": count, "seconds": time.monotonic() - began,
            "cpu": time.process_time() - used}


class Reading:
    """A listener that counts; the time goes from its first message to its last."""

    def __init__(self, count: int) -> None:
        self._left = self._count = count
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._began = self._ended = (0.0, 0.0)

    def __call__(self, message: Any) -> None:
        with self._lock:
            if self._left == self._count:
                self._began = time.monotonic(), time.process_time()
            self._left -= 1
            if self._left == 0:
                self._ended = time.monotonic(), time.process_time()
                self._done.set()

    def wait(self) -> Figures:
        if not self._done.wait(WAIT_S):
            raise TimeoutError(f"{self._left} of {self._count} messages did not come")
        return {"count": self._count, "seconds": self._ended[0] - self._began[0],
                "cpu": self._ended[1] - self._began[1]}


def of_mqcore(role: str, namesrv: str, topic: str, seconds: float, count: int) -> Figures:
    client = importlib.import_module("mqcore.client")
    if role == "push":
        reading = Reading(count)
        group = f"{topic}-{time.time_ns()}"
        with client.PushConsumer(group, topic, reading, namesrv=namesrv, start="earliest"):
            return reading.wait()
    with client.Producer("compare", namesrv=namesrv, topics=[topic],
                         max_in_flight=WINDOW) as producer:
        def send() -> None:
            producer.send(client.Message(topic, BODY))

        def soon() -> None:
            for _ in range(TURN):
                producer.send_soon(client.Message(topic, BODY))

        def oneway() -> None:
            for _ in range(TURN):
                producer.send_oneway(client.Message(topic, BODY))

        turn = {"send": send, "soon": soon, "oneway": oneway}[role]
        return measured(turn, 1 if role == "send" else TURN, producer.flush, seconds)


def of_rocketmq(role: str, namesrv: str, topic: str, seconds: float, count: int) -> Figures:
    client = importlib.import_module("rocketmq.client")
    if role == "push":
        reading = Reading(count)
        consumer = client.PushConsumer(f"{topic}-{time.time_ns()}")
        consumer.set_namesrv_addr(namesrv)
        consumer.subscribe(topic, reading)
        consumer.start()
        figures = reading.wait()
        consumer.shutdown()
        return figures
    producer = client.Producer("compare")
    producer.set_namesrv_addr(namesrv)
    producer.start()
    room = threading.Semaphore(WINDOW)

    def message() -> Any:
        made = client.Message(topic)
        made.set_body(BODY)
        return made

    def send() -> None:
        producer.send_sync(message())

    def soon() -> None:
        for _ in range(TURN):
            room.acquire()
            producer.send_async(message(), lambda result: room.release(), failed)

    def oneway() -> None:
        for _ in range(TURN):
            producer.send_oneway(message())

    def failed(error: BaseException) -> None:
        print(error, file=sys.stderr)
        room.release()

    def finish() -> None:
        for _ in range(WINDOW):
            room.acquire()
        for _ in range(WINDOW):
            room.release()

    turn = {"send": send, "soon": soon, "oneway": oneway}[role]
    figures = measured(turn, 1 if role == "send" else TURN, finish, seconds)
    producer.shutdown()
    return figures


def main() -> None:
    library, role, namesrv, topic, seconds, count = sys.argv[1:]
    run = {"mqcore": of_mqcore, "rocketmq": of_rocketmq}[library]
    print(json.dumps(run(role, namesrv, topic, float(seconds), int(count))), flush=True)


if __name__ == "__main__":
    main()
