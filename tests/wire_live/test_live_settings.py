"""Settings that a request changes have their effect at once, in every process (broker.md 10.5)."""
from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mqcore.wire import fastjson
from mqcore.wire.codes import RequestCode as Code
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer, pull_fields, send_fields
from tests.wire_live.state import State
from tests.workers.processes import kill

MESSAGE_ILLEGAL, NO_PERMISSION, TOPIC_NOT_EXIST = 13, 16, 17


@contextmanager
def changed(state: State, key: str, value: str, before: str) -> Iterator[None]:
    """A setting with another value inside the block."""
    assert state.ask(Code.UPDATE_BROKER_CONFIG, None, f"{key}={value}".encode()).code == 0
    try:
        yield
    finally:
        assert state.ask(Code.UPDATE_BROKER_CONFIG, None, f"{key}={before}".encode()).code == 0


def send(state: State, topic: str) -> int:
    return state.ask(Code.SEND_MESSAGE_V2, send_fields(topic), b"body").code


def permission_at_name_server(live: MqcoreProcess, topic: str) -> int:
    with Peer(live.namesrv_addr) as names:
        route = names.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    (queues,) = fastjson.loads(route.body)["queueDatas"]
    return int(queues["perm"])


def test_producers_are_led_away_from_a_broker_that_may_not_be_written_to(
    live: MqcoreProcess, state: State
) -> None:
    state.topic("ReadOnly", 1)
    state.message("ReadOnly")
    with changed(state, "brokerPermission", "4", before="6"):
        wait_until(lambda: permission_at_name_server(live, "ReadOnly") == 4,
                   "the route without write")
        assert send(state, "ReadOnly") == 0       # as with stock: only ordered topics are refused
    wait_until(lambda: permission_at_name_server(live, "ReadOnly") == 6,
               "the route with write again")


def test_a_broker_that_may_not_be_read_refuses_pulls_until_it_may(
    live: MqcoreProcess, state: State
) -> None:
    state.topic("WriteOnly", 1)
    state.message("WriteOnly")
    wait_until(lambda: state.queue_end("WriteOnly", 0) == 1, "the message in its queue")
    assert state.ask(Code.PULL_MESSAGE, pull_fields("WriteOnly")).code == 0
    with changed(state, "brokerPermission", "2", before="6"):
        assert state.ask(Code.PULL_MESSAGE, pull_fields("WriteOnly")).code == NO_PERMISSION
        assert send(state, "WriteOnly") == 0
    assert state.ask(Code.PULL_MESSAGE, pull_fields("WriteOnly")).code == 0


def test_topics_are_made_by_messages_only_while_that_is_switched_on(
    live: MqcoreProcess, state: State
) -> None:
    with changed(state, "autoCreateTopicEnable", "false", before="true"):
        assert send(state, "MadeByMessage") == TOPIC_NOT_EXIST
    assert send(state, "MadeByMessage") == 0


def permission(address: str) -> str:
    with Peer(address) as peer:
        lines = peer.ask(Code.GET_BROKER_CONFIG).body.decode().splitlines()
    return dict(line.split("=", 1) for line in lines)["brokerPermission"]


def test_changes_outlive_the_coordinator_and_the_broker(tmp_path: Path) -> None:
    settings = {"broker.name": "broker-a"}
    with mqcore_up(tmp_path, settings) as first, State(first.broker_addr) as state:
        state.topic("Kept", 1)
        state.message("Kept")
        wait_until(lambda: state.queue_end("Kept", 0) == 1, "the message in its queue")
        assert state.ask(Code.UPDATE_BROKER_CONFIG, None, b"brokerPermission=2").code == 0
        kill(first, "coordinator")
        assert permission(first.broker_addr) == "2"
        assert state.ask(Code.PULL_MESSAGE, pull_fields("Kept")).code == NO_PERMISSION
    with mqcore_up(tmp_path, settings) as second, State(second.broker_addr) as state:
        assert permission(second.broker_addr) == "2"
        assert state.ask(Code.PULL_MESSAGE, pull_fields("Kept")).code == NO_PERMISSION
        assert "1 settings changed by request: broker.permission = 2 instead of 6" in second.tail()
        assert state.ask(Code.UPDATE_BROKER_CONFIG, None, b"brokerPermission=6").code == 0
    with mqcore_up(tmp_path, settings) as third, State(third.broker_addr) as state:
        assert state.ask(Code.PULL_MESSAGE, pull_fields("Kept")).code == 0
        assert "changed by request" not in third.tail()


@pytest.mark.slow
def test_no_change_for_the_next_start_keeps_a_broker_from_starting(tmp_path: Path) -> None:
    settings = {"broker.name": "broker-a"}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for change in (f"listenPort={taken.getsockname()[1]}",
                       "flushDiskType=ASYNC_FLUSH\ntransientStorePoolEnable=true\n"
                       "transientStorePoolSize=1000"):
            with mqcore_up(tmp_path, settings) as first, State(first.broker_addr) as state:
                state.topic("Kept", 1)
                assert state.ask(Code.UPDATE_BROKER_CONFIG, None,
                                 f"brokerPermission=2\n{change}".encode()).code == 0
            with mqcore_up(tmp_path, settings) as second:
                assert permission(second.broker_addr) == "2"
                assert ("this start is one without the settings that requests changed for it"
                        in second.tail())


# -- each process hears of it ----------------------------------------------------------------------


def test_serving_processes_hear_of_it(live: MqcoreProcess, state: State) -> None:
    state.topic("Region", 1)
    before = state.ask(Code.SEND_MESSAGE_V2, send_fields("Region"), b"body").ext or {}
    assert before["MSG_REGION"] == "DefaultRegion"

    def answered(region: str, trace_on: str) -> bool:
        ext = state.ask(Code.SEND_MESSAGE_V2, send_fields("Region"), b"body").ext
        return ext is not None and (ext["MSG_REGION"], ext["TRACE_ON"]) == (region, trace_on)

    with changed(state, "regionId", "Else where", before="DefaultRegion"), \
            changed(state, "traceOn", "false", before="true"):
        wait_until(lambda: answered("Else where", "false"), "the new region in answers")
    wait_until(lambda: answered("DefaultRegion", "true"), "the old region again")


def test_messages_are_refused_until_the_time_that_was_set(
    live: MqcoreProcess, state: State
) -> None:
    state.topic("Later", 1)
    with changed(state, "startAcceptSendRequestTimeStamp", "4000000000000", before="0"):
        wait_until(lambda: send(state, "Later") == 1, "the refusal")
        refusal = state.ask(Code.SEND_MESSAGE_V2, send_fields("Later"), b"body")
        assert refusal.remark == "no messages are accepted before 2096-10-02 07:06:40 UTC"
    wait_until(lambda: send(state, "Later") == 0, "messages are taken again")


def test_a_pull_returns_no_more_than_was_set(live: MqcoreProcess, state: State) -> None:
    state.topic("Few", 1)
    for _ in range(4):
        state.message("Few")
    wait_until(lambda: state.queue_end("Few", 0) == 4, "the messages in their queue")

    def got() -> int:
        ext = state.ask(Code.PULL_MESSAGE, pull_fields("Few")).ext
        return int((ext or {})["nextBeginOffset"] or 0)

    assert got() == 4
    with changed(state, "maxTransferCountOnMessageInMemory", "2", before="32"):
        wait_until(lambda: got() == 2, "two messages")
    wait_until(lambda: got() == 4, "all messages again")


def test_a_new_delay_level_delivers(live: MqcoreProcess, state: State) -> None:
    state.topic("Delayed", 1)
    levels = settings_of(state)["messageDelayLevel"]
    count = len(levels.split())
    with changed(state, "messageDelayLevel", f"{levels} 1s", before=levels):

        def delivered() -> bool:
            fields = send_fields("Delayed", properties=f"DELAY\x01{count + 1}")
            assert state.ask(Code.SEND_MESSAGE_V2, fields, b"late").code == 0
            return state.queue_end("SCHEDULE_TOPIC_XXXX", count) > 0

        wait_until(delivered, "a message in the new level's queue")
        wait_until(lambda: state.queue_end("Delayed", 0) > 0, "its delivery")


def settings_of(state: State) -> dict[str, str]:
    lines = state.ask(Code.GET_BROKER_CONFIG).body.decode().splitlines()
    return dict(line.split("=", 1) for line in lines)


def flushed(state: State) -> bool:
    table = fastjson.loads(state.ask(Code.GET_BROKER_RUNTIME_INFO).body)["table"]
    return bool(table["remainHowManyDataToFlush"] == "0 B")


def test_the_log_level_and_the_writers_intervals_change(tmp_path: Path) -> None:
    settings = {"broker.name": "broker-a", "store.flush_interval_ms": 3_600_000,
                "store.flush_least_pages": 0}
    with mqcore_up(tmp_path, settings) as broker, State(broker.broker_addr) as state:
        state.topic("Flushed", 1)
        state.message("Flushed")
        assert not flushed(state)
        answer = state.ask(Code.UPDATE_BROKER_CONFIG, None,
                           b"flushIntervalCommitLog=10\nlog.level=debug")
        assert (answer.code, answer.remark) == (0, None)
        wait_until(lambda: flushed(state), "the flush, an hour early")
        kill(broker, "dispatcher")
        wait_until(lambda: "DEBUG   mqcore.dispatcher: running" in broker.tail(),
                   "a line of the new dispatcher, which began with the new level")


def test_a_process_that_begins_anew_has_the_changed_settings(tmp_path: Path) -> None:
    with mqcore_up(tmp_path, {"broker.name": "broker-a"}) as broker, \
            State(broker.broker_addr) as state:
        state.topic("Again", 1)
        state.message("Again")
        assert state.ask(Code.UPDATE_BROKER_CONFIG, None, b"regionId=New").code == 0
        kill(broker, "pull-serving-0")
        with State(broker.broker_addr) as again:
            ext = again.ask(Code.SEND_MESSAGE_V2, send_fields("Again"), b"body").ext or {}
            assert ext["MSG_REGION"] == "New"


def test_messages_are_as_long_as_the_setting_says_from_then_on(
    live: MqcoreProcess, state: State
) -> None:
    def code_of(size: int) -> int:
        return state.ask(Code.SEND_MESSAGE_V2, send_fields("Long"), b"x" * size).code

    state.topic("Long", 1)
    assert code_of(5_000) == 0
    with changed(state, "maxMessageSize", "4096", before=str(4 << 20)):
        wait_until(lambda: code_of(5_000) == MESSAGE_ILLEGAL, "a long message is refused")
        assert code_of(4_096) == 0
    wait_until(lambda: code_of(5_000) == 0, "it is taken again")
