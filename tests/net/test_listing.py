"""
A message comes between a pull's look at its queue and its entry in the queue's list (H2). Serving
process and dispatcher are the product's; the first is stopped at the store of its interest byte.
"""
from __future__ import annotations

import threading
from pathlib import Path

from mqcore.net.probes.write_stop import InterestStop
from mqcore.participants import COORDINATOR, SERVING
from mqcore.shm.retention import QueueLives
from mqcore.shm.tables import TableWriter
from mqcore.store.probes.append_probe import AppendProbe
from mqcore.wire.command import encode, request
from tests.net.serving import Serving
from tests.wire_live.peer import DEADLINE_S, pull_fields

TOPIC, GROUP = "T", "G"
PULL, WAITS_WITH_SUBSCRIPTION = 11, 6
QUEUES = 1 << 14                        # bytes of a listener's row: pages of its own
BEFORE = QUEUES // 2
TURN_MS = 20_000


def test_a_message_that_comes_while_a_pull_is_listed_answers_it(tmp_path: Path) -> None:
    serving = Serving(tmp_path, queues=QUEUES)
    store = serving.store
    tables = TableWriter(store.segment)
    tables.publish_topic(TOPIC, read_queues=1, write_queues=1, perm=6)
    tables.publish_group(GROUP)
    lives = QueueLives(store.segment)
    for number in range(BEFORE):
        lives.set_restart("Others", number, 0)
    writer, dispatcher = store.writer("async", 0), store.dispatcher()
    probe = AppendProbe(store.segment, producer=COORDINATOR.producer)

    def message_comes() -> None:
        assert probe.send(TOPIC, 0, [b"body"], opaque=1)
        writer.run(TURN_MS)
        assert dispatcher.run(TURN_MS) == 0

    message_comes()
    with serving.connect() as peer:
        serving.turn()                  # it hears of the queue: nothing else is stored in that page
        stop = InterestStop(store.segment, SERVING.listener, lives.number(TOPIC, 0))
        stopped = threading.Event()

        def turn() -> None:
            while not stopped.is_set():
                serving.one_turn()

        turning = threading.Thread(target=turn)
        turning.start()
        try:
            peer.send(encode(request(PULL, pull_fields(
                TOPIC, group=GROUP, offset=1, sys_flag=WAITS_WITH_SUBSCRIPTION,
                suspend_ms=60_000))))
            assert stop.wait(int(DEADLINE_S))
            message_comes()             # the dispatcher has looked: no process is interested
        finally:
            stopped.set()
            stop.resume()
            turning.join()
            stop.end()
        assert serving.figure("held_pulls") == 0         # it was answered in the same turn
        serving.turn()
        assert peer.receive(timeout_s=10).code == 0
