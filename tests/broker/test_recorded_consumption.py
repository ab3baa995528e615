"""
Recorded requests about groups, retries and replies get the answers that a stock 4.9.8 broker gave.

As tests/broker/test_recorded.py has it, for CONSUMER_SEND_MSG_BACK, replies and what follows them.
"""
from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from mqcore.wire.command import Command, response
from mqcore.wire.ids import parse_offset_message_id
from mqcore.wire.properties import decode_properties
from tests.broker.fakes import Bench
from tests.broker.test_recorded import WIRE, ask, fields, frame, recorded


@pytest.mark.parametrize("exchange", recorded("send", 324, 325))
def test_replies_are_pushed_and_answered_alike(bench: Bench, exchange: dict[str, Any]) -> None:
    asked = fields(exchange["request"])
    properties = decode_properties(asked.get("properties") or asked["i"])
    pushed_alike = next((
        found for found in recorded_to_clients(326)
        if decode_properties(fields(found["request"])["properties"])["CORRELATION_ID"]
        == properties["CORRELATION_ID"]), None)
    wanted = frame(exchange["response"]) if exchange["response"] else None
    if wanted is None or wanted.code == 0:
        bench.ask(34, None, {"clientID": properties["REPLY_TO_CLIENT"],
                             "producerDataSet": [{"groupName": "G"}]}, connection=2)
    assert ask(bench, exchange) is None
    if wanted is None or wanted.code == 0:
        (connection, push), = bench.connections.sent
        assert connection == 2
        if pushed_alike is not None:
            assert_pushed_alike(pushed_alike, push)
        bench.connections.sent.clear()
        bench.broker.handle_response(2, response(push, 0))
    if wanted is None:
        return                             # the recording ends before its answer
    ext = wanted.ext or {}
    position = parse_offset_message_id(ext["msgId"] or "")[2]
    bench.appender.finish(queue_offset=int(ext["queueOffset"] or 0), position=position)
    (_, found), = bench.connections.sent
    assert found == wanted


def recorded_to_clients(code: int) -> list[dict[str, Any]]:
    """The exchanges of a code that the broker began."""
    with gzip.open(WIRE / "to-client.jsonl.gz", "rt") as lines:
        found = [json.loads(line) for line in lines]
    return [exchange for exchange in found
            if exchange["code"] == code and exchange["request"]["direction"].startswith("broker")]


def assert_pushed_alike(exchange: dict[str, Any], push: Command) -> None:
    """All but times and the address of the sender, which differ from run to run."""
    wanted = frame(exchange["request"])
    assert (push.code, push.flag, push.body, push.codec) == (
        wanted.code, wanted.flag, wanted.body, wanted.codec)
    found, stock = dict(push.ext or {}), dict(wanted.ext or {})
    assert set(found) == set(stock)
    for name in ("storeTimestamp", "bornHost"):
        assert found.pop(name)
        assert stock.pop(name)
    texts = [decode_properties(side.pop("properties") or "") for side in (found, stock)]
    for text in texts:
        assert int(text.pop("PUSH_REPLY_TIME")) > 0
    assert texts[0] == texts[1]
    assert found == stock
