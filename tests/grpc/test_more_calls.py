"""Dead letters that a client forwards, messages that it takes back, and pulls."""
from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from mqcore.client import Admin, Message, Producer
from tests.grpc.caller import NATIVE, Caller, calling
from tests.grpc.test_calls import OK
from tests.grpc.world import GrpcBroker

NOT_FOUND, ILLEGAL_OFFSET, INTERNAL = 40401, 40019, 50001


# -- ForwardMessageToDeadLetterQueue ---------------------------------------------------------------

def forward(caller: Caller, topic: str, group: str, handle: str) -> int:
    method = "ForwardMessageToDeadLetterQueue"
    return int(caller.unary(method, f"{method}Request", {
        "group": {"name": group}, "topic": {"name": topic}, "receipt_handle": handle,
        "message_id": "id", "delivery_attempt": 1, "max_delivery_attempts": 1})["status"]["code"])


def received(caller: Caller, topic: str, group: str) -> dict[str, Any]:
    code, (message, *_) = caller.receive(topic, group)
    assert code == OK
    return message


def handle_of(message: dict[str, Any]) -> str:
    return str(message["system_properties"]["receipt_handle"])


def test_a_forwarded_message_is_a_dead_letter_once(caller: Caller) -> None:
    caller.send("Failing", b"fails for ever")
    handle = handle_of(received(caller, "Failing", "Patient"))
    assert [forward(caller, "Failing", "Patient", handle) for _ in range(3)] == [OK, OK, OK]
    assert caller.ack("Failing", "Patient", handle) == OK
    code, (letter,) = caller.receive("%DLQ%Patient", "Undertaker")
    assert (code, letter["body"]) == (OK, b"fails for ever")
    assert caller.ack("%DLQ%Patient", "Undertaker", handle_of(letter)) == OK
    assert caller.receive("%DLQ%Patient", "Undertaker", wait_s=0) == (NOT_FOUND, [])
    assert caller.receive("Failing", "Patient", wait_s=0) == (NOT_FOUND, [])


def test_what_is_forwarded_is_what_the_queue_has(caller: Caller) -> None:
    """A log position in a handle names no message of another group."""
    secret = caller.send("Secret", b"not for the group")
    assert secret["status"]["code"] == OK
    foreign = handle_of(received(caller, "Secret", "Owners")).split()[-1]
    caller.send("Own", b"its own")
    fields = handle_of(received(caller, "Own", "Thieves")).split()
    assert forward(caller, "Own", "Thieves", " ".join([*fields[:-1], foreign])) == OK
    assert received(caller, "%DLQ%Thieves", "Undertaker")["body"] == b"its own"


@pytest.mark.parametrize(("change", "code"), [
    (lambda fields: [], INTERNAL), (lambda fields: ["x"], INTERNAL),
    (lambda fields: [*fields[:7], str(int(fields[7]) + 1), fields[8]], INTERNAL),     # the next
    (lambda fields: [*fields[:6], "7", *fields[7:]], INTERNAL),            # another queue
    # of an earlier delivery, as far as anybody knows: settled, nothing is forwarded
    (lambda fields: [fields[0], str(int(fields[1]) - 5), *fields[2:]], OK),
    (lambda fields: [fields[0], str(int(fields[1]) - 90_000), *fields[2:]], 40013)])
def test_handles_that_no_delivery_has(
        caller: Caller, change: Callable[[list[str]], list[str]], code: int) -> None:
    caller.send("Forged", b"stays")
    handle = handle_of(received(caller, "Forged", "Forgers"))
    got = forward(caller, "Forged", "Forgers", " ".join(change(handle.split())))
    assert forward(caller, "Forged", "Others", handle) == INTERNAL
    assert caller.ack("Forged", "Forgers", handle) == OK
    assert got == code
    assert caller.receive("%DLQ%Forgers", "Undertaker", wait_s=0)[0] in (40402, NOT_FOUND)


# -- RecallMessage ---------------------------------------------------------------------------------

def test_a_message_that_waits_is_taken_back(caller: Caller, live: GrpcBroker) -> None:
    due_s = int(time.time()) + 3600
    said = caller.send("Later", b"taken-back", delivery_timestamp={"seconds": due_s})
    (entry,) = said["entries"]

    def recall(topic: str, handle: str) -> dict[str, Any]:
        return caller.unary("RecallMessage", "RecallMessageRequest", {
            "topic": {"name": topic}, "recall_handle": handle}, "RecallMessageResponse")

    taken = recall("Later", entry["recall_handle"])
    assert (taken["status"]["code"], taken["message_id"]) == (OK, "id-taken-back")
    for topic, handle in (("Later", "x"), ("Later", ""), ("Later", "x" * 2000),
                          ("Other", entry["recall_handle"])):
        assert recall(topic, handle)["status"]["code"] in (INTERNAL, 40402)
    assert recall("", entry["recall_handle"])["status"]["code"] == 40002


# -- PullMessage -----------------------------------------------------------------------------------

def pull(caller: Caller, topic: str, offset: int, *, group: str = "Pullers", queue: int = 0,
         wait_s: int = 0, **more: Any) -> tuple[int, list[dict[str, Any]], int | None]:
    """Code, messages, next offset."""
    messages, status = caller.call("PullMessage", NATIVE.encode("PullMessageRequest", {
        "group": {"name": group}, "message_queue": {"topic": {"name": topic}, "id": queue},
        "offset": offset, "batch_size": 32, "long_polling_timeout": {"seconds": wait_s}, **more}))
    assert status == 0
    said = [NATIVE.decode("PullMessageResponse", one) for one in messages]
    return (said[0]["status"]["code"], [one["message"] for one in said[1:] if "message" in one],
            said[-1].get("next_offset"))


@pytest.fixture(scope="module")
def pulled(live: GrpcBroker) -> str:
    """A topic of one queue: 40 messages of a 4.x producer, every other one with the tag `odd`."""
    with Admin(live.process.namesrv_addr) as admin:
        admin.create_topic("Pulled", queues=1)
        admin.create_group("Pullers")
    with Producer("pulled", namesrv=live.process.namesrv_addr) as producer:
        for i in range(40):
            producer.send(Message("Pulled", f"body {i}".encode(), tags="odd" if i % 2 else "even"))
    return "Pulled"


def test_pulls_walk_a_queue(caller: Caller, pulled: str) -> None:
    code, messages, following = pull(caller, pulled, 0)
    assert (code, following) == (OK, 32)
    assert [one["body"] for one in messages] == [f"body {i}".encode() for i in range(32)]
    assert messages[3]["system_properties"]["queue_offset"] == 3
    assert "receipt_handle" not in messages[3]["system_properties"]
    code, messages, following = pull(caller, pulled, 32, batch_size=5)
    assert (code, len(messages), following) == (OK, 5, 37)
    assert pull(caller, pulled, 40) == (NOT_FOUND, [], 40)


@pytest.mark.parametrize("expression", [
    {"type": 1, "expression": "odd"}, {"type": 2, "expression": "TAGS = 'odd'"}])
def test_pulls_take_what_their_expression_asks_for(
        caller: Caller, pulled: str, expression: dict[str, Any]) -> None:
    code, messages, following = pull(caller, pulled, 0, filter_expression=expression)
    assert code == OK
    assert {one["system_properties"]["tag"] for one in messages} == {"odd"}
    assert following is not None
    assert 1 < following <= 40


def test_a_pull_waits_for_the_next_message(caller: Caller, live: GrpcBroker) -> None:
    with Admin(live.process.namesrv_addr) as admin:
        admin.create_topic("Awaited", queues=1)
        admin.create_group("Pullers")
    with calling(live.address) as waiting:
        waiting.begin("PullMessage", NATIVE.encode("PullMessageRequest", {
            "group": {"name": "Pullers"}, "message_queue": {"topic": {"name": "Awaited"}},
            "batch_size": 1, "long_polling_timeout": {"seconds": 20}}))
        caller.send("Awaited", b"here")
        messages, status = waiting.end()
    assert status == 0
    assert NATIVE.decode("PullMessageResponse", messages[1])["message"]["body"] == b"here"


@pytest.mark.parametrize(("asked", "code"), [
    ({"offset": 41}, ILLEGAL_OFFSET), ({"offset": -1}, ILLEGAL_OFFSET), ({"queue": -1}, 40000),
    ({"group": ""}, 40003), ({"group": "x" * 256}, 40003), ({"topic": ""}, 40002),
    ({"topic": "x" * 128}, 40002), ({"topic": "Unknown-one"}, 40402), ({"batch_size": -1}, 40000),
    ({"filter_expression": {"type": 2, "expression": "x" * 20_000}}, 40010),
    ({"filter_expression": {"type": 2, "expression": ""}}, 40010)])
def test_pulls_that_are_refused(
        caller: Caller, pulled: str, asked: dict[str, Any], code: int) -> None:
    given = {"topic": pulled, "offset": 0, **asked}
    got, messages, following = pull(caller, **given)
    assert messages == []
    assert got == code
    if given["offset"] == 41:
        assert following == 40
