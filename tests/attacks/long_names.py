"""Heartbeats and locks with a name or text of many megabytes."""
from __future__ import annotations

import json
import random
import time
from typing import Any

from mqcore.wire.codes import RequestCode as Code
from tests.wire_live.peer import Closed, Peer

TEXT_BYTES = 12 << 20


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


def run(broker_addr: str, namesrv_addr: str, seconds: float, rng: random.Random) -> None:
    """For the soak: any of them, one after the other."""
    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        number += 1
        code, body = rng.choice(list(bodies(number).values()))
        try:
            with Peer(broker_addr) as peer:
                peer.ask(code, None, json.dumps(body).encode())
        except (Closed, TimeoutError):
            continue                      # the broker may end such a connection
