"""What heartbeats and locks say is kept in the coordinator's memory, within bounds."""
from __future__ import annotations

import json
import re
from typing import Any

import pytest

from mqcore.wire.codes import RequestCode as Code
from tests.hostile.watch import Watch
from tests.support.mqcore_process import MqcoreProcess
from tests.wire_live.peer import Peer

TEXT_BYTES = 12 << 20
FRAMES = 10
GROWTH_KIB = 64 << 10                  # of a process: a few such frames on their way


def consumer(number: int, **subscription: object) -> dict[str, object]:
    return {"clientID": "c", "consumerDataSet": [{
        "groupName": f"Long-{number}", "subscriptionDataSet": [
            {"topic": "T", "subVersion": 1, "subString": "x", **subscription}]}]}


def bodies(number: int) -> dict[str, tuple[int, dict[str, Any]]]:
    text = f"{number}" + "x" * TEXT_BYTES
    beat, lock = Code.HEART_BEAT, Code.LOCK_BATCH_MQ
    queue = {"topic": "T", "brokerName": text, "queueId": 1}
    return {
        "a producer's group": (beat, {"clientID": "c", "producerDataSet": [{"groupName": text}]}),
        "an expression": (beat, consumer(number, subString=text)),
        "a tag": (beat, consumer(number, codeSet=[1], tagsSet=[text])),
        "a type": (beat, consumer(number, expressionType=text)),
        "a client": (beat, {**consumer(number), "clientID": text}),
        "a broker": (lock, {"consumerGroup": "G", "clientId": "c", "mqSet": [queue]}),
    }


@pytest.mark.parametrize("kind", list(bodies(0)))
def test_long_names_are_refused_and_take_no_memory(
    target: MqcoreProcess, watch: Watch, kind: str
) -> None:
    for number in range(FRAMES):
        code, body = bodies(number)[kind]
        with Peer(target.broker_addr) as peer:
            answer = peer.ask(code, None, json.dumps(body).encode())
        assert answer.code == 1
        assert re.search("expected at most|of more than [0-9]+ bytes", answer.remark or "")
    growth = watch.growth_kib()
    assert max(growth.values()) <= GROWTH_KIB, growth
