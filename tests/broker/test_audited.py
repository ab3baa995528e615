"""Lines of the audit about values that a request has changed; request codes that are not served."""
from __future__ import annotations

import logging

import pytest

from mqcore.acl.unserved import Unserved
from mqcore.broker.request import Answer
from mqcore.wire import fastjson
from tests.broker.fakes import Bench

TOPIC = {"topic": "T", "defaultTopic": "TBW102", "readQueueNums": "2", "writeQueueNums": "2",
         "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}


def told(bench: Bench, caplog: pytest.LogCaptureFixture, code: int, ext: dict[str, str],
         body: bytes = b"") -> str:
    """The changes in a request's line; '': there is no line."""
    caplog.clear()
    caplog.set_level(logging.INFO, "mqcore.audit")
    bench.ask(code, ext, body)
    bench.registrar.finish()
    bench.queues.finish()
    lines = [line for line in caplog.messages if " changed " in line]
    assert len(lines) < 2
    return lines[0].partition(" changed ")[2] if lines else ""


def test_topics_and_groups(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    made = told(bench, caplog, 17, TOPIC)
    assert "topicName from nothing to T" in made
    assert "perm from nothing to 6" in made
    assert told(bench, caplog, 17, TOPIC) == ""
    assert told(bench, caplog, 17, {**TOPIC, "perm": "4"}) == "perm from 6 to 4"
    assert "perm from 4 to nothing" in told(bench, caplog, 215, {"topic": "T"})
    assert told(bench, caplog, 215, {"topic": "T"}) == ""

    def group(**values: object) -> bytes:
        return fastjson.dumps({"groupName": "G", **values})

    assert "retryMaxTimes from nothing to 3" in told(bench, caplog, 200, {},
                                                     group(retryMaxTimes=3))
    assert told(bench, caplog, 200, {}, group(retryMaxTimes=4, consumeEnable=False)) == (
        "consumeEnable from True to False, retryMaxTimes from 3 to 4")
    assert "retryMaxTimes from 4 to nothing" in told(bench, caplog, 207, {"groupName": "G"})


def test_settings_and_what_is_refused(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    assert told(bench, caplog, 25, {}, b"fileReservedTime=48\n") == (
        "fileReservedTime from 72 to 48")
    assert told(bench, caplog, 25, {}, b"fileReservedTime=48\n") == ""
    assert told(bench, caplog, 25, {}, b"fileReservedTime=never\n") == ""
    assert told(bench, caplog, 25, {}, b"unknown=1\n") == ""


def test_offsets(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.heartbeat("G", {"T": 1})
    bench.ask(17, TOPIC)
    offsets = bench.broker.core.offsets
    for queue_id in (0, 1):
        offsets.commit("G", "T", queue_id, 7)
    bench.store.queues["T", 0] = (0, 9)
    assert told(bench, caplog, 222, {"topic": "T", "group": "G", "timestamp": "-1",
                                     "isForce": "true"}) == (
        "offset of queue 0 from 7 to 9, offset of queue 1 from 7 to 0")
    offsets.commit("H", "T", 0, 1)
    assert told(bench, caplog, 314, {"topic": "T", "srcGroup": "G", "destGroup": "H",
                                     "offline": "true"}) == (
        "offset of queue 0 from 1 to 7, offset of queue 1 from nothing to 7")


def test_a_code_that_is_not_served_is_counted_and_named_once(
    bench: Bench, caplog: pytest.LogCaptureFixture,
) -> None:
    for code in (39, 9999, 39, 39):
        answer = bench.ask(code, {})
        assert isinstance(answer, Answer)
        assert (answer.code, answer.remark) == (3, f" request type {code} not supported")
    lines = [line for line in caplog.messages if "is not supported" in line]
    assert [line.split(" from ")[0] for line in lines] == [
        "CHECK_TRANSACTION_STATE (39)", "code 9999 (9999)"]
    assert bench.broker.core.counts["unserved_requests"] == 4


def test_codes_are_named_up_to_a_hundred(caplog: pytest.LogCaptureFixture) -> None:
    unserved = Unserved(logging.getLogger("a"))
    for code in range(1000, 2000):
        unserved.note(code, "10.0.0.1:7")
    assert unserved.count == 1000
    assert len(caplog.messages) == 101
    assert caplog.messages[-1] == (
        "more than 100 request codes are not supported: further ones are counted only")
