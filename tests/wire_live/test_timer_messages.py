"""
A message that asks for a time of delivery, as clients of 5.x write it, is refused on every way in:
4.9.8 acknowledges it and delivers it at once. `broker.timer_messages = "deliver"` does as 4.9.8.
"""
from __future__ import annotations

import time

import pytest

from mqcore.wire.records import BatchItem, encode_batch
from tests.support.mqcore_process import MqcoreProcess
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer, send_fields
from tests.wire_live.state import State

SEND_V2, SEND_BATCH, REPLY_V2, UPDATE_CONFIG = 310, 320, 325, 25
ILLEGAL = 13
WISHES = ("TIMER_DELAY_SEC\x0110", "TIMER_DELAY_MS\x01500", "TIMER_DELIVER_MS\x014000000000000",
          "TIMER_DELAY_SEC\x01soon")


def properties(*others: str) -> str:
    return "\x02".join(("UNIQ_KEY\x0100", *others)) + "\x02"


@pytest.mark.parametrize("wish", WISHES)
def test_a_message_that_asks_for_a_time_is_refused(state: State, wish: str) -> None:
    name = wish.partition("\x01")[0]
    state.topic("Timed", 1)
    for others in ((wish,), (wish, "WAIT\x01false"), ("TRAN_MSG\x01true", wish),
                   ("DELAY\x012", wish)):
        answer = state.ask(SEND_V2, send_fields("Timed", properties=properties(*others)), b"body")
        assert answer.code == ILLEGAL
        assert name in (answer.remark or "")
        assert "delay level" in (answer.remark or "")
    state.consumer("Timed", "Timed")
    retry = state.ask(SEND_V2, send_fields("%RETRY%Timed", properties=properties(wish)), b"body")
    assert retry.code == ILLEGAL
    reply = state.ask(REPLY_V2, send_fields("Timed", properties=properties(wish)), b"body")
    assert reply.code == ILLEGAL
    assert state.queue_end("Timed", 0) == 0


def test_a_batch_with_one_such_message_is_refused_whole(state: State) -> None:
    state.topic("Batched", 1)
    body = encode_batch([BatchItem(b"a", {"KEYS": "k"}),
                         BatchItem(b"b", {"A": "a", "TIMER_DELAY_MS": "1000"})])
    plain = encode_batch([BatchItem(b"a", {"XTIMER_DELAY_MS": "1"}),
                          BatchItem(b"b", {"KEYS": "TIMER_DELAY_MS"})])
    envelope = send_fields("Batched", properties=properties(WISHES[0]), batch=True)
    for code in (SEND_V2, SEND_BATCH):
        answer = state.ask(code, send_fields("Batched", batch=True), body)
        assert (answer.code, "TIMER_DELAY_MS" in (answer.remark or "")) == (ILLEGAL, True)
        assert state.ask(code, envelope, plain).code == ILLEGAL
    assert state.queue_end("Batched", 0) == 0
    assert state.ask(SEND_BATCH, send_fields("Batched", batch=True), plain).code == 0


def test_a_time_that_has_come_and_a_retry_are_stored(state: State) -> None:
    """A message that was delivered before does not wait any more."""
    past = f"TIMER_DELIVER_MS\x01{int(time.time() * 1000) - 1000}"
    for wish in (past, "TIMER_DELAY_SEC\x010", "TIMER_DELAY_MS\x01-5"):
        assert state.ask(SEND_V2, send_fields("Now", properties=properties(wish)), b"x").code == 0
    again = send_fields("%RETRY%Now", properties=properties(WISHES[0]), reconsume_times=1)
    state.consumer("Now", "Now")
    assert state.ask(SEND_V2, again, b"x").code == 0


def test_a_setting_delivers_at_once_as_stock_does(live: MqcoreProcess, state: State) -> None:
    def put(value: str) -> None:
        with Peer(live.broker_addr) as peer:
            answer = peer.ask(UPDATE_CONFIG, {}, f"broker.timer_messages={value}\n".encode())
            assert answer.code == 0, answer.remark
    put("deliver")
    try:
        fields = send_fields("AsStock", properties=properties(WISHES[0]))
        wait_until(lambda: state.ask(SEND_V2, fields, b"x").code == 0, "the setting")
        items = encode_batch([BatchItem(b"b", {"TIMER_DELAY_MS": "1000"})])
        wait_until(lambda: state.ask(
            SEND_BATCH, send_fields("AsStock", batch=True), items).code == 0, "the same natively")
    finally:
        put("refuse")
    wait_until(lambda: state.ask(SEND_V2, fields, b"x").code == ILLEGAL, "the setting")
