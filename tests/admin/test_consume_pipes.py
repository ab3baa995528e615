"""`mqcore message consume` into a program that has read enough."""
from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from mqcore.client import Admin, Consumer, Message, MessageQueue, Producer
from tests.support.mqcore_process import MQCORE, mqcore_up
from tests.support.waiting import WAIT_S

BODY = "x" * 2_000              # 200 bodies are more than a pipe holds


@pytest.mark.parametrize("count", [1, 200], ids=["quiet", "more comes"])
def test_consume_ends_when_nothing_reads_its_output_and_the_group_gets_the_rest(
        tmp_path: Path, count: int) -> None:
    with mqcore_up(tmp_path) as broker:
        with Admin(broker.namesrv_addr) as admin:
            admin.create_topic("T", queues=1)
        with Producer("P", namesrv=broker.namesrv_addr) as producer:
            for number in range(count):
                name = producer.send(Message("T", BODY, keys=str(number))).queue.broker_name
        with subprocess.Popen(
                [*MQCORE, "message", "consume", "-n", broker.namesrv_addr, "-t", "T", "-g", "G"],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE) as command:
            try:
                assert command.stdout is not None
                assert command.stderr is not None
                first = json.loads(command.stdout.readline())
                command.stdout.close()
                command.wait(WAIT_S)
                told = command.stderr.read().decode()
            finally:
                command.kill()
        assert first["keys"] == ["0"]
        assert "Traceback" not in told
        with Admin(broker.namesrv_addr) as admin:
            assert admin.max_offset(MessageQueue("%RETRY%G", name, 0)) == 0
            done = admin.committed("G", MessageQueue("T", name, 0))
        assert 1 <= (done or 0) <= count
        with Consumer("G", "T", namesrv=broker.namesrv_addr) as consumer:
            rest = [next(consumer).keys[0] for _ in range(count - done)]
    assert rest == [str(number) for number in range(done, count)]
