"""Whatever a peer puts into header and body, the broker answers and goes on."""
from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from mqcore.broker.request import Answer, PendingOutcome, Redo
from mqcore.broker.requests.table import HANDLERS
from mqcore.broker.tables.client_calls import TIMEOUT_MS_MAX
from mqcore.wire import fastjson
from mqcore.wire.records import Record, encode_record
from tests.broker.fakes import Bench, make_bench, settings_in
from tests.support.dice import dice, real, text, whole

NAMES = [
    "topic", "queueId", "consumerGroup", "offset", "timestamp", "queueOffset", "maxMsgNums",
    "sysFlag", "commitOffset", "suspendTimeoutMillis", "subVersion", "subscription", "a", "b", "c",
    "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "producerGroup", "defaultTopic",
    "defaultTopicQueueNums", "bornTimestamp", "flag", "properties", "clientID", "readQueueNums",
    "writeQueueNums", "perm", "topicFilterType", "expressionType", "group", "delayLevel",
    "groupName", "srcGroup", "destGroup", "isForce", "maxReconsumeTimes", "clientAddr",
]
MEMBERS = [
    "clientID", "consumerDataSet", "producerDataSet", "groupName", "subscriptionDataSet", "topic",
    "subString", "codeSet", "tagsSet", "subVersion", "messageModel", "consumeType", "mqSet",
    "consumerGroup", "clientId", "brokerName", "queueId", "subscriptionData", "expressionType",
]
COMPLETE = dict.fromkeys(NAMES, "0") | {
    "topic": "T", "consumerGroup": "G", "b": "T", "c": "TBW102", "i": "", "properties": "",
    "defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "subscription": "*",
    "expressionType": "TAG", "perm": "6", "group": "G", "groupName": "G", "srcGroup": "G",
    "clientAddr": "",
}
CHOSEN = ("0", "1", "4", "-1", "TBW102", "T", "%RETRY%G", "G", "*", "||", "true", "SINGLE_TAG",
          "9" * 30, "", "TAGS\x01a\x02DELAY\x01x\x02")
REQUESTS = 2_000
DEPTH = 4


def field(dice: Random) -> str:
    """What stands behind a name of a header."""
    kind = dice.randrange(3)
    if kind == 0:
        return dice.choice(CHOSEN)
    return text(dice, 20) if kind == 1 else str(whole(dice, -(2**70), 2**70))


def scalar(dice: Random) -> object:
    return dice.choice((
        None, True, False, whole(dice, -(2**65), 2**65), real(dice), text(dice, 5),
        dice.choice(("G", "T", "0", "CLUSTERING", "SQL92"))))


def member(dice: Random, depth: int = DEPTH) -> object:
    """What a member of a body holds."""
    kind = dice.randrange(5) if depth else 0
    if kind < 3:
        return scalar(dice)
    if kind == 3:
        return [member(dice, depth - 1) for _ in range(dice.randint(0, 4))]
    return {dice.choice(MEMBERS): member(dice, depth - 1) for _ in range(dice.randint(0, 5))}


def body(dice: Random) -> bytes:
    if dice.randrange(2):
        return dice.randbytes(dice.randint(0, 40))
    return fastjson.dumps({dice.choice(MEMBERS): member(dice) for _ in range(dice.randint(0, 6))})


MESSAGE = encode_record(Record(
    topic="T", queue_id=0, queue_offset=0, physical_offset=0, flag=0, sys_flag=0, body_crc=0,
    born_timestamp_ms=1, born_host=("10.0.0.1", 1), store_timestamp_ms=2,
    store_host=("10.0.0.2", 2), reconsume_times=0, prepared_transaction_offset=0, body=b"",
    properties={}, size=0))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    folder: Path = tmp_path_factory.mktemp("hostile")
    bench = make_bench(settings_in(folder / "store"))
    bench.store.queues["T", 0] = (5, 9)
    bench.store.records[0] = MESSAGE
    return bench


def answer_of(bench: Bench) -> Answer:
    """What comes when the writer, the dispatcher, the name servers and the clients are through."""
    for _ in range(2):               # what is stored may have made a topic, which is registered
        bench.registrar.finish()
        bench.queues.finish()
        bench.appender.finish()
        bench.now_ms += TIMEOUT_MS_MAX                       # no client answers here
        bench.broker.tick(bench.now_ms)
    (_, command), = [each for each in bench.connections.sent if each[1].is_response]
    return Answer(command.code, command.remark, command.ext, command.body)


def test_no_request_makes_the_broker_fail(shared: Bench) -> None:
    cases = dice()
    codes = [*map(int, HANDLERS)]
    for number in range(REQUESTS):
        changed = {cases.choice(NAMES): field(cases) for _ in range(cases.randint(0, 6))}
        missing = cases.sample(NAMES, cases.randint(0, 2))
        ext = {name: value for name, value in (COMPLETE | changed).items() if name not in missing}
        request = codes[number % len(codes)], ext, body(cases)
        shared.connections.sent.clear()
        try:
            outcome: Any = shared.ask(*request)
            if outcome is None:                    # it comes later, by a frame of its own
                outcome = answer_of(shared)
            held = isinstance(outcome, PendingOutcome)       # by how the saving of a topic ends
            for each in (outcome.outcome, outcome.otherwise) if held else (outcome,):
                assert isinstance(each, Answer | Redo)
                if isinstance(each, Answer) and each.code:
                    assert each.remark
        except Exception as error:
            raise AssertionError(f"it fails at {request}") from error
