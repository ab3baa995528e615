"""A message that was acknowledged has a topic, however soon afterwards the broker is killed."""
from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.retention.client import Client
from tests.support.mqcore_process import mqcore_up
from tests.support.waiting import wait_until
from tests.workers.processes import pid_of

TOPICS = [f"new{number}" for number in range(5)]


def test_topics_that_sends_made_outlive_a_kill_behind_the_last_answer(tmp_path: Path) -> None:
    with mqcore_up(tmp_path) as broker:
        client = Client(broker.broker_addr)
        coordinator = pid_of(broker, "coordinator")
        codes = [client.send(topic, b"one").code for topic in TOPICS]
        os.kill(coordinator, signal.SIGKILL)                # it writes no file any more
        broker.kill()
        client.close()
    assert codes == [0] * len(TOPICS)
    with mqcore_up(tmp_path) as broker:
        client = Client(broker.broker_addr)
        for topic in TOPICS:
            wait_until(lambda topic=topic: client.consume(topic) == [b"one"], topic)
        client.close()
