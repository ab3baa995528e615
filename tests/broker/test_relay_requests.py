"""A tool asks, the consumer that it names answers, the tool gets that (broker.md 10.4)."""
from __future__ import annotations

from typing import Any

import pytest

from mqcore.wire.codes import version_ordinal
from mqcore.wire.command import Command
from mqcore.wire.ids import offset_message_id
from tests.broker.fakes import Bench

TOOL, MEMBER = 9, 1
ASKED = {"consumerGroup": "G", "clientId": f"client-{MEMBER}", "jstackEnable": "true"}


def forwarded(bench: Bench) -> Command:
    (connection, command), = bench.connections.sent
    bench.connections.sent.clear()
    assert connection == MEMBER
    return command


def reply(bench: Bench, question: Command, **fields: Any) -> None:
    assert bench.broker.core.calls.answered(
        MEMBER, Command(fields.pop("code", 0), flag=1, opaque=question.opaque, **fields))


def answer(bench: Bench) -> Command:
    (connection, command), = bench.connections.sent
    assert connection == TOOL
    return command


@pytest.fixture
def online(bench: Bench) -> Bench:
    bench.heartbeat("G", {"T": 1}, connection=MEMBER)
    bench.connections.sent.clear()
    return bench


def test_the_consumers_answer_is_passed_on_as_it_is(online: Bench) -> None:
    assert online.ask(307, ASKED, connection=TOOL) is None
    question = forwarded(online)
    assert (question.code, question.ext, question.is_oneway) == (307, ASKED, False)
    assert len(online.connections.sent) == 0

    reply(online, question, remark="not set any response code", ext={"a": "b"}, body=b"{...}")
    found = answer(online)
    assert (found.code, found.opaque, found.remark, found.ext, found.body) == (
        0, 7, "not set any response code", {"a": "b"}, b"{...}")


def test_neither_side_hears_of_the_others_account(online: Bench) -> None:
    account = {"AccessKey": "key", "Signature": "proof", "SecurityToken": "token", "#Layout": "0",
               "zz": "whatever", "accessKey": "other"}
    assert online.ask(307, {**ASKED, **account}, body=b"more", connection=TOOL) is None
    question = forwarded(online)
    assert (question.ext, question.body) == (ASKED, b"")

    reply(online, question, ext={**account, "a": "b"})
    assert answer(online).ext == {"a": "b", "zz": "whatever", "accessKey": "other"}


def test_a_message_to_consume_goes_along_with_the_question(online: Bench) -> None:
    online.store.records[500] = b"the record"
    fields = {"consumerGroup": "G", "clientId": "client-1",
              "msgId": offset_message_id("127.0.0.2", 40911, 500)}
    assert online.ask(309, fields, connection=TOOL) is None

    question = forwarded(online)
    assert (question.ext, question.body) == (
        {**fields, "brokerName": "broker-a"}, b"the record")


@pytest.mark.parametrize(("message_id", "reason"), [
    ("7F000002", "expected 32 or 56 hex digits"),
    (offset_message_id("127.0.0.2", 40911, 400), "there is no message at position 400"),
])
def test_a_message_that_is_not_there_is_refused(
    online: Bench, message_id: str, reason: str
) -> None:
    found = online.ask(309, {**ASKED, "msgId": message_id}, connection=TOOL)

    assert (found.code, reason in found.remark) == (1, True)
    assert online.connections.sent == []


@pytest.mark.parametrize("fields", [
    {"consumerGroup": "G", "clientId": "nobody"}, {"consumerGroup": "U", "clientId": "client-1"},
])
def test_a_consumer_that_is_not_connected_is_refused(
    online: Bench, fields: dict[str, str]
) -> None:
    found = online.ask(307, fields, connection=TOOL)

    assert (found.code, found.remark) == (
        1, f"The Consumer <{fields['consumerGroup']}> <{fields['clientId']}> not online")


def test_a_consumer_that_is_too_old_is_not_asked(bench: Bench) -> None:
    bench.ask(34, None, {"clientID": "client-1", "consumerDataSet": [
        {"groupName": "G", "messageModel": "CLUSTERING", "subscriptionDataSet": []}]},
        version=version_ordinal("3.1.7"))
    found = bench.ask(307, ASKED, connection=TOOL)

    assert (found.code, "V3_1_7" in found.remark) == (1, True)


def test_a_consumer_that_does_not_answer_is_given_up_after_ten_seconds(online: Bench) -> None:
    online.ask(307, ASKED, connection=TOOL)
    forwarded(online)
    online.broker.tick(online.now_ms + 9_900)
    assert online.connections.sent == []

    online.broker.tick(online.now_ms + 10_000)
    assert answer(online).code == 207


def test_a_consumer_that_leaves_ends_the_question(online: Bench) -> None:
    online.ask(307, ASKED, connection=TOOL)
    forwarded(online)
    online.broker.connection_closed(MEMBER)

    assert answer(online).code == 1
