"""Single calls: what is answered to good and bad requests, and what is stored."""
from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

from mqcore.client import Admin, Consumer
from tests.grpc.caller import NATIVE, Caller, Message, receive_request
from tests.grpc.world import GrpcBroker
from tests.support.waiting import wait_until

OK = 20000


def test_every_call_needs_a_client_id(caller: Caller) -> None:
    messages, status = caller.call("QueryRoute", b"", {})
    assert status == 0
    assert NATIVE.decode("StatusOnly", messages[0])["status"]["code"] == 40017


def test_a_method_that_is_none_ends_with_a_status_of_the_protocol(caller: Caller) -> None:
    assert caller.call("SyncLiteSubscription", b"") == ([], 12)


@pytest.mark.parametrize("request_bytes", [b"\xff\xff\xff", b"\x0a\x7f", b"\x08\x80"])
@pytest.mark.parametrize("method", [
    "QueryRoute", "Heartbeat", "SendMessage", "QueryAssignment", "ReceiveMessage", "AckMessage",
    "ChangeInvisibleDuration", "EndTransaction", "NotifyClientTermination", "GetOffset",
    "UpdateOffset", "QueryOffset"])
def test_bytes_that_are_no_message_are_refused(
        caller: Caller, method: str, request_bytes: bytes) -> None:
    messages, status = caller.call(method, request_bytes)
    assert status == 0
    assert 40000 <= NATIVE.decode("StatusOnly", messages[0])["status"]["code"] <= 50100


def route(caller: Caller, topic: str, **more: Any) -> Message:
    return caller.unary("QueryRoute", "QueryRouteRequest", {"topic": {"name": topic}, **more},
                        "QueryRouteResponse")


def test_a_route_has_the_queues_and_the_address_by_which_it_was_asked(caller: Caller) -> None:
    asked = {"scheme": 3, "addresses": [{"host": "broker.example", "port": 8081}]}
    said = route(caller, "Routed", endpoints=asked)
    assert said["status"]["code"] == OK
    assert [queue["id"] for queue in said["message_queues"]] == list(range(8))
    (first, *_) = said["message_queues"]
    assert first["permission"] == 4
    assert first["broker"]["endpoints"] == asked
    assert first["accept_message_types"] == [1, 2, 3, 4]


@pytest.mark.parametrize(("topic", "code"), [
    ("", 40002), ("a b", 40002), ("x" * 128, 40002), ("SCHEDULE_TOPIC_XXXX", 40002),
    ("%RETRY%unknown", 40402)])
def test_topics_without_a_route(caller: Caller, topic: str, code: int) -> None:
    assert route(caller, topic)["status"]["code"] == code


@pytest.mark.parametrize(("system", "body", "code"), [
    ({}, b"", 41302),
    ({"tag": " "}, b"x", 40004), ({"tag": "a|b"}, b"x", 40004), ({"tag": "a\x01"}, b"x", 40004),
    ({"keys": ["good", " "]}, b"x", 40005), ({"message_id": " "}, b"x", 40009),
    ({"message_group": ""}, b"x", 40006), ({"message_group": "g" * 64}, b"x", 40006),
    ({"orphaned_transaction_recovery_duration": {"seconds": 3601}}, b"x", 40000),
    ({"delivery_timestamp": {"seconds": 1 << 40}}, b"x", 41301),
])
def test_messages_that_are_refused(
        caller: Caller, system: Message, body: bytes, code: int) -> None:
    assert caller.send("Refusing", body, **system)["status"]["code"] == code


@pytest.mark.parametrize("properties", [
    {"KEYS": "x"}, {"TIMER_DELIVER_MS": "1"}, {"": "x"}, {"a\x01b": "x"}, {"a": "x\x02TAGS\x01y"}])
def test_properties_that_would_be_the_brokers_own(
        caller: Caller, properties: dict[str, str]) -> None:
    said = caller.unary("SendMessage", "SendMessageRequest", {"messages": [{
        "topic": {"name": "Refusing"}, "body": b"x", "user_properties": properties,
        "system_properties": {"message_id": "id"}}]}, "SendMessageResponse")
    assert said["status"]["code"] == 40007


def test_a_message_of_this_protocol_reads_in_the_other(live: GrpcBroker, caller: Caller) -> None:
    sent = caller.send("Crossing", b"body", tag="tag", keys=["one", "two"],
                       born_timestamp={"seconds": 1_700_000_000, "nanos": 5_000_000})
    (entry,) = sent["entries"]
    assert (entry["status"]["code"], entry["message_id"]) == (OK, "id-body")
    with Consumer("CrossingGroup", "Crossing", namesrv=live.process.namesrv_addr,
                  start="earliest") as consumer:
        message = next(iter(consumer))
    assert (message.body, message.tags, message.keys) == (b"body", "tag", ["one", "two"])
    assert message.message_id == "id-body"


# what Guava 31 says of the groups' String.hashCode and 8 queues
QUEUES = {"group": 0, "order-4711": 3, "größe": 4, "\U0001f600": 4, "a": 0, "b": 5, "zz": 3}


def test_messages_of_a_group_go_to_the_queue_of_stock(caller: Caller) -> None:
    assert len(route(caller, "Ordered")["message_queues"]) == 8
    for group in QUEUES:
        caller.send("Ordered", group.encode(), message_group=group)
    found: dict[str, int] = {}
    while len(found) < len(QUEUES):
        for message in caller.receive("Ordered", "OrderedGroup")[1]:
            system = message["system_properties"]
            assert message["body"].decode() == system["message_group"]
            found[system["message_group"]] = system["queue_id"]
    assert found == QUEUES


def test_what_is_not_acknowledged_comes_again(caller: Caller) -> None:
    caller.send("Again", b"one")
    caller.send("Again", b"two")
    code, messages = caller.receive("Again", "AgainGroup")
    assert code == OK
    got = {message["body"]: message["system_properties"] for message in messages}
    while len(got) < 2:
        got |= {message["body"]: message["system_properties"]
                for message in caller.receive("Again", "AgainGroup")[1]}
    assert caller.ack("Again", "AgainGroup", got[b"one"]["receipt_handle"]) == OK
    assert caller.receive("Again", "AgainGroup", wait_s=0) == (40401, [])
    began = time.monotonic()
    code, (message,) = caller.receive("Again", "AgainGroup", wait_s=20)
    assert time.monotonic() - began > 5
    assert message["body"] == b"two"
    assert message["system_properties"]["delivery_attempt"] == 2
    assert caller.ack("Again", "AgainGroup", got[b"two"]["receipt_handle"]) in (OK, 40013)
    assert caller.ack("Again", "AgainGroup", message["system_properties"]["receipt_handle"]) == OK


def test_a_reset_moves_a_group_that_receives(live: GrpcBroker, caller: Caller) -> None:
    for number in range(3):
        caller.send("Reset", b"%d" % number, message_group="one queue")

    def receive_all() -> set[bytes]:
        got = set()
        while len(got) < 3:
            for message in caller.receive("Reset", "ResetGroup")[1]:
                handle = message["system_properties"]["receipt_handle"]
                assert caller.ack("Reset", "ResetGroup", handle) == OK
                got.add(message["body"])
        return got

    assert receive_all() == {b"0", b"1", b"2"}
    with Admin(namesrv=live.process.namesrv_addr) as admin:
        wait_until(lambda: admin.lag("ResetGroup", "Reset").total == 0, "the committed offsets")
        for one in admin.lag("ResetGroup", "Reset").queues:
            if one.broker_offset:
                admin.set_offset("ResetGroup", one.queue, 0)
    assert receive_all() == {b"0", b"1", b"2"}       # within some seconds


def test_a_change_of_the_invisible_time_gives_another_handle(caller: Caller) -> None:
    caller.send("Changed", b"one")
    _, (message,) = caller.receive("Changed", "ChangedGroup", invisible_s=60)
    handle = message["system_properties"]["receipt_handle"]
    asked = {"group": {"name": "ChangedGroup"}, "topic": {"name": "Changed"},
             "receipt_handle": handle, "invisible_duration": {"seconds": 1}}
    said = caller.unary("ChangeInvisibleDuration", "ChangeInvisibleDurationRequest", asked,
                        "ChangeInvisibleDurationResponse")
    assert said["status"]["code"] == OK
    assert said["receipt_handle"] != handle
    _, (message,) = caller.receive("Changed", "ChangedGroup", wait_s=20)
    assert message["system_properties"]["delivery_attempt"] == 2


@pytest.mark.parametrize("handle", [
    "", "x", "1 2 3", "0 1 10000 0 0 b 0 0 -1", "0 1 10000 0 0 b 0 999999 0",
    "0 99999999999999999999 10000 0 0 b 0 0 0"])
def test_handles_that_are_none(caller: Caller, handle: str) -> None:
    caller.receive("Changed", "HandleGroup", wait_s=0)
    assert caller.ack("Changed", "HandleGroup", handle) in (50001, 40013)


@pytest.mark.parametrize(("more", "code"), [
    ({"invisible_duration": {"seconds": 9}}, 40011),
    ({"invisible_duration": {"seconds": 43_201}}, 40011),
    ({"invisible_duration": {"seconds": -1}}, 40011),
    ({"batch_size": -1}, 40000)])
def test_receives_that_are_refused(caller: Caller, more: Message, code: int) -> None:
    request = {"group": {"name": "G"}, "message_queue": {"topic": {"name": "Refusing"}},
               "batch_size": 1, "invisible_duration": {"seconds": 10}, **more}
    messages, _ = caller.call("ReceiveMessage", NATIVE.encode("ReceiveMessageRequest", request))
    said = NATIVE.decode("ReceiveMessageResponse", messages[0])
    assert said["status"]["code"] == code


@pytest.mark.parametrize(("topic", "group", "code"), [
    ("a b", "G", 40002), ("Refusing", "", 40003), ("Refusing", "CID_RMQ_SYS_X", 40003)])
def test_names_of_receives(caller: Caller, topic: str, group: str, code: int) -> None:
    assert caller.receive(topic, group, wait_s=0) == (code, [])


def test_a_receive_waits_for_a_message(live: GrpcBroker, caller: Caller) -> None:
    caller.send("Awaited", b"before", message_group="one queue")
    _, (before,) = caller.receive("Awaited", "AwaitedGroup")
    caller.ack("Awaited", "AwaitedGroup", before["system_properties"]["receipt_handle"])
    caller.begin("ReceiveMessage", receive_request("Awaited", "AwaitedGroup", wait_s=20))
    with Sender(live.address) as sender:
        began = time.monotonic()
        sender.send("Awaited", b"now", message_group="one queue")
        messages, status = caller.end()
    assert status == 0
    assert time.monotonic() - began < 15              # not when its time is over
    assert NATIVE.decode("ReceiveMessageResponse", messages[1])["message"]["body"] == b"now"


class Sender(Caller):
    def __enter__(self) -> Sender:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


def test_a_killed_process_loses_no_message_and_no_ack(live: GrpcBroker, caller: Caller) -> None:
    """Acknowledged messages stay so; the others come again."""
    for number in range(20):
        caller.send("Killed", b"%d" % number)
    got: dict[bytes, str] = {}
    while len(got) < 20:
        for message in caller.receive("Killed", "KilledGroup", invisible_s=10)[1]:
            got[message["body"]] = message["system_properties"]["receipt_handle"]
    acked = {b"%d" % number for number in range(0, 20, 2)}
    for body in acked:
        assert caller.ack("Killed", "KilledGroup", got[body]) == OK
    os.kill(live.serving_pid(), signal.SIGKILL)
    again: set[bytes] = set()

    def receive() -> bool:
        with Sender(live.address) as other:
            try:
                _, messages = other.receive("Killed", "KilledGroup", wait_s=5)
            except AssertionError:                   # the process is not there yet
                return False
        again.update(message["body"] for message in messages)
        return again >= set(got) - acked

    wait_until(receive, "what was not acknowledged")
    assert again == set(got) - acked
