"""Whatever a peer puts into header and body, the broker answers and goes on."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mqcore.broker.handlers import _HANDLERS
from mqcore.broker.request import Answer, Redo
from mqcore.broker.tables.client_calls import TIMEOUT_MS_MAX
from mqcore.wire import fastjson
from mqcore.wire.records import Record, encode_record
from tests.broker.fakes import NOW_MS, Bench, make_bench, settings_in

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
VALUES = st.one_of(
    st.sampled_from(["0", "1", "4", "-1", "TBW102", "T", "%RETRY%G", "G", "*", "||", "true",
                     "SINGLE_TAG", "9" * 30, "", "TAGS\x01a\x02DELAY\x01x\x02"]),
    st.text(max_size=20),
    st.integers(-(2**70), 2**70).map(str),
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**65), 2**65), st.floats(allow_nan=False),
              st.text(max_size=5), st.sampled_from(["G", "T", "0", "CLUSTERING", "SQL92"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from(MEMBERS), inner, max_size=5),
    ),
    max_leaves=20,
)
BODIES = st.one_of(
    st.binary(max_size=40),
    st.dictionaries(st.sampled_from(MEMBERS), JSON, max_size=6).map(fastjson.dumps),
)


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
    bench.registrar.finish()
    bench.queues.finish()
    bench.appender.finish()
    bench.broker.tick(NOW_MS + TIMEOUT_MS_MAX)     # no client answers here
    bench.appender.finish()
    (_, command), = [each for each in bench.connections.sent if each[1].is_response]
    return Answer(command.code, command.remark, command.ext, command.body)


@pytest.mark.slow
@settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    code=st.sampled_from([*(int(code) for code in _HANDLERS), 17]),
    changed=st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=6),
    missing=st.sets(st.sampled_from(NAMES), max_size=2),
    body=BODIES,
)
def test_no_request_makes_the_broker_fail(
    shared: Bench, code: int, changed: dict[str, str], missing: set[str], body: bytes
) -> None:
    complete = COMPLETE | changed
    ext = {name: value for name, value in complete.items() if name not in missing}
    shared.connections.sent.clear()
    outcome: Any = shared.ask(code, ext, body)

    if outcome is None:                            # it comes later, by a frame of its own
        outcome = answer_of(shared)
    assert isinstance(outcome, Answer | Redo)
    if isinstance(outcome, Answer) and outcome.code:
        assert outcome.remark
