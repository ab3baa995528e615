"""The fields of an account go nowhere but to the broker: every request code is tried."""
from __future__ import annotations

from pathlib import Path

import pytest

from mqcore.broker.requests.table import HANDLERS
from mqcore.wire import fastjson
from mqcore.wire.ids import offset_message_id
from mqcore.wire.properties import encode_properties
from tests.broker.fakes import Bench, make_bench, settings_in
from tests.broker.test_hostile import COMPLETE, MESSAGE

MEMBER, ASKER = 1, 9
SECRETS = {"AccessKey": "an-access-key", "Signature": "a-signature=", "SecurityToken": "a-token",
           "#Layout": "a-layout"}
FIELDS = COMPLETE | {
    "clientId": f"client-{MEMBER}", "msgId": offset_message_id("127.0.0.2", 40911, 0),
    "jstackEnable": "false", "key": "k", "maxNum": "1", "beginTimestamp": "0",
    "endTimestamp": "9", "commitOrRollback": "8", "tranStateTableOffset": "0",
    "commitLogOffset": "0", "unitMode": "false", "consumeRetryTimes": "0",
    "i": encode_properties({"REPLY_TO_CLIENT": f"client-{MEMBER}"}), "q": "0",
    "properties": encode_properties({"REPLY_TO_CLIENT": f"client-{MEMBER}"})}
CONSUMER = {"groupName": "G", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [{"topic": "T", "subString": "*"}]}
LOCKS = {"clientId": "c", "consumerGroup": "G", "mqSet": []}
BODIES = {41: LOCKS, 42: LOCKS, 34: {
    "clientID": "other", "producerDataSet": [], "consumerDataSet": [CONSUMER]}}


def made(folder: Path, *, store_replies: bool) -> Bench:
    bench = make_bench(settings_in(
        folder / str(store_replies), f"broker.store_reply_messages={str(store_replies).lower()}"))
    bench.store.queues["T", 0] = (0, 9)
    bench.store.records[0] = MESSAGE
    bench.ask(17, {**COMPLETE, "readQueueNums": "1", "writeQueueNums": "1"})
    bench.ask(34, {}, fastjson.dumps({
        "clientID": f"client-{MEMBER}", "producerDataSet": [{"groupName": "P"}],
        "consumerDataSet": [CONSUMER]}), connection=MEMBER)
    bench.broker.core.offsets.commit("G", "T", 0, 5)
    return bench


def left(bench: Bench, code: int) -> str:
    """All that a request of this code made the broker send or store, but its own answer."""
    bench.connections.sent.clear()
    bench.ask(code, {**FIELDS, **SECRETS}, fastjson.dumps(BODIES[code]) if code in BODIES else b"",
              connection=ASKER)
    for _ in range(2):
        bench.registrar.finish()
        bench.queues.finish()
        bench.appender.finish()
        bench.broker.tick(bench.now_ms)
    others = [command for connection, command in bench.connections.sent if connection != ASKER]
    return f"{others!r} {bench.appender.appended!r} {bench.registrar.registered!r}"


def test_nothing_of_an_account_leaves_towards_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    questions = set()
    for store_replies in (False, True):
        for code in map(int, HANDLERS):
            bench = made(tmp_path / str(code), store_replies=store_replies)
            bench.connections.sent.clear()
            text = left(bench, code) + caplog.text
            assert not [name for name in SECRETS.values() if name in text], (code, text)
            questions |= {command.code for connection, command in bench.connections.sent
                          if connection == MEMBER}
    assert questions >= {307, 309, 326, 220, 221, 40}      # it has seen them leave
