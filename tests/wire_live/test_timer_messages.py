"""
Messages with a time of delivery, as clients of 5.x write it, on every way in: 4.9.8 acknowledges
them and delivers them at once. `broker.timer_messages` has what else a broker may do.
"""
from __future__ import annotations

import base64
import time

import pytest

from mqcore.wire.recall_handle import RecallHandle
from mqcore.wire.records import BatchItem, encode_batch
from tests.support.mqcore_process import MqcoreProcess
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer, send_fields
from tests.wire_live.state import State

SEND_V2, SEND_BATCH, REPLY_V2, UPDATE_CONFIG, RECALL = 310, 320, 325, 25, 370
SYSTEM_ERROR, ILLEGAL, TOPIC_NOT_EXIST, ILLEGAL_OPERATION = 1, 13, 17, 604
FAR = ("TIMER_DELAY_SEC\x013456001", "TIMER_DELAY_MS\x013456001000",
       "TIMER_DELIVER_MS\x014000000000000", "TIMER_DELAY_SEC\x019223372036854775807",
       "TIMER_DELAY_MS\x019223372036854775807")
WISHES = ("TIMER_DELAY_SEC\x0110", "TIMER_DELAY_MS\x0110000", "TIMER_DELIVER_MS\x01{later}")
HANDLE = "v1 {topic} {broker} {ms} 00"


def properties(*others: str) -> str:
    later = int(time.time() * 1000) + 10_000
    return "\x02".join(("UNIQ_KEY\x0100", *others)).format(later=later) + "\x02"


def encoded(topic: str, broker: str, ms: object) -> str:
    return base64.urlsafe_b64encode(
        HANDLE.format(topic=topic, broker=broker, ms=ms).encode()).decode()


def put(broker: MqcoreProcess, value: str) -> None:
    with Peer(broker.broker_addr) as peer:
        answer = peer.ask(UPDATE_CONFIG, {}, f"broker.timer_messages={value}\n".encode())
        assert answer.code == 0, answer.remark


@pytest.mark.parametrize("wish", WISHES)
def test_a_message_waits_and_its_answer_has_a_handle(state: State, wish: str) -> None:
    state.topic("Waits", 1)
    before_ms = int(time.time() * 1000)
    answer = state.ask(SEND_V2, send_fields("Waits", properties=properties(wish)), b"body")
    assert answer.code == 0, answer.remark
    assert answer.ext is not None
    said = base64.urlsafe_b64decode(answer.ext["recallHandle"] or "").decode().split(" ")
    assert (said[0], said[1], said[4]) == ("v1", "Waits", "00")
    assert int(said[3]) % 1000 == 1
    assert before_ms + 8_900 < int(said[3]) <= time.time() * 1000 + 10_001
    assert state.queue_end("Waits", 0) == 0


@pytest.mark.parametrize("wish", [*FAR, "TIMER_DELAY_SEC\x01soon", "TIMER_DELIVER_MS\x011e9"])
def test_what_is_too_far_or_no_time_is_refused_and_named(state: State, wish: str) -> None:
    state.topic("Timed", 1)
    for others in ((wish,), (wish, "WAIT\x01false"), ("TRAN_MSG\x01true", wish)):
        answer = state.ask(SEND_V2, send_fields("Timed", properties=properties(*others)), b"body")
        assert answer.code == ILLEGAL
        assert wish.partition("\x01")[0] in (answer.remark or "")
    assert state.queue_end("Timed", 0) == 0


def test_a_delay_level_goes_before_a_time(state: State) -> None:
    answer = state.ask(SEND_V2, send_fields(
        "Level", properties=properties("DELAY\x0118", WISHES[0])), b"body")
    assert answer.code == 0
    assert "recallHandle" not in (answer.ext or {})


def test_a_batch_or_reply_with_a_time_is_refused_whole(state: State) -> None:
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
    reply = state.ask(REPLY_V2, send_fields("Batched", properties=properties(WISHES[0])), b"body")
    assert reply.code == ILLEGAL
    assert state.queue_end("Batched", 0) == 0
    assert state.ask(SEND_BATCH, send_fields("Batched", batch=True), plain).code == 0


def test_a_time_that_has_come_and_a_retry_are_stored_where_they_go(state: State) -> None:
    """A message that was delivered before does not wait any more."""
    state.topic("Now", 1)
    past = f"TIMER_DELIVER_MS\x01{int(time.time() * 1000) - 1000}"
    wishes = (past, "TIMER_DELAY_SEC\x010", "TIMER_DELAY_MS\x01-5",
              "TIMER_DELAY_SEC\x010\x02" + past)
    for count, wish in enumerate(wishes, 1):
        assert state.ask(SEND_V2, send_fields("Now", properties=properties(wish)), b"x").code == 0
        wait_until(lambda count=count: state.queue_end("Now", 0) == count, "it to be readable")
    again = send_fields("%RETRY%Now", properties=properties(WISHES[0]), reconsume_times=1)
    state.consumer("Now", "Now")
    answer = state.ask(SEND_V2, again, b"x")
    assert answer.code == 0
    assert "recallHandle" not in (answer.ext or {})


def test_no_peer_sends_to_the_timer_or_speaks_for_it(state: State) -> None:
    sent = state.ask(SEND_V2, send_fields("rmq_sys_wheel_timer", properties=properties()), b"x")
    assert sent.code == 16                                            # NO_PERMISSION
    words = properties("TIMER_DEL_UNIQKEY\x01Other+00", "TIMER_OUT_MS\x010",
                       "TIMER_ROLL_TIMES\x0177", "TIMER_DELAY_MS\x011")
    state.topic("Spoken", 1)
    assert state.ask(SEND_V2, send_fields("Spoken", properties=words), b"kept").code == 0
    wait_until(lambda: state.queue_end("Spoken", 0) == 1, "the message, which was no recall")


@pytest.mark.parametrize(("topic", "handle", "code"), [
    ("Recalled", "", SYSTEM_ERROR), ("Recalled", "?", ILLEGAL_OPERATION),
    ("Recalled", "x" * 2000, ILLEGAL_OPERATION),
    ("Recalled", encoded("Recalled", "other", "{now}"), ILLEGAL_OPERATION),
    ("Recalled", encoded("Other", "mqcore-a", 4_000_000_000_001), ILLEGAL_OPERATION),
    ("Recalled", encoded("Recalled", "mqcore-a", 1), ILLEGAL_OPERATION),
    ("Recalled", encoded("Recalled", "mqcore-a", 4_000_000_000_001), ILLEGAL_OPERATION),
    ("Recalled", encoded("Recalled", "mqcore-a", "1e3"), ILLEGAL_OPERATION),
    ("NeverMade", encoded("NeverMade", "mqcore-a", 1), TOPIC_NOT_EXIST),
])
def test_a_handle_that_is_none_is_refused(
    state: State, topic: str, handle: str, code: int,
) -> None:
    state.topic("Recalled", 1)
    answer = state.ask(RECALL, {"producerGroup": "g", "topic": topic, "recallHandle": handle}
                       if handle else {"producerGroup": "g", "topic": topic})
    assert answer.code == code, answer.remark


def test_a_message_is_taken_back_once_or_twice_and_its_neighbour_is_not(state: State) -> None:
    state.topic("Taken", 1)
    handles = {}
    for key in ("0A", "0B"):
        sent = state.ask(SEND_V2, send_fields("Taken", properties=(
            f"UNIQ_KEY\x01{key}\x02TIMER_DELAY_MS\x012500\x02")), key.encode())
        assert sent.ext is not None
        handles[key] = sent.ext["recallHandle"]
    for _ in range(2):
        answer = state.ask(RECALL, {"producerGroup": "g", "topic": "Taken",
                                    "recallHandle": handles["0A"]})
        assert (answer.code, answer.ext) == (0, {"msgId": "0A", "outcome": "recalled"})
    later = state.ask(SEND_V2, send_fields("Taken", properties=(
        "UNIQ_KEY\x010C\x02TIMER_DELAY_MS\x013600\x02")), b"0C")
    assert later.code == 0
    wait_until(lambda: state.queue_end("Taken", 0) == 2, "the two others")
    for key, outcome in (("0A", "recalled"), ("0B", "delivered")):       # behind its time, too

        def told(key: str = key, outcome: str = outcome) -> bool:
            late = state.ask(RECALL, {"producerGroup": "g", "topic": "Taken",
                                      "recallHandle": handles[key]})
            assert late.ext is not None
            return late.code == ILLEGAL_OPERATION and late.ext["outcome"] == outcome

        wait_until(told, f"the outcome of {key}")


def test_a_recall_of_what_no_message_is_says_that_it_is_unknown(state: State) -> None:
    state.topic("Nothing", 1)
    sent = state.ask(SEND_V2, send_fields("Nothing", properties=(
        "UNIQ_KEY\x01other\x02TIMER_DELAY_MS\x013600\x02")), b"x")
    broker = RecallHandle.read((sent.ext or {})["recallHandle"] or "").broker_name
    for ahead_ms in (900, 60_000):
        second = (time.time_ns() // 1_000_000 + ahead_ms) // 1000 * 1000 + 1
        answer = state.ask(RECALL, {"producerGroup": "g", "topic": "Nothing",
                                    "recallHandle": encoded("Nothing", broker, second)})
        assert answer.ext is not None
        if ahead_ms > 1_000 or answer.code == 0:
            assert (answer.code, answer.ext["outcome"]) == (0, "unknown")


@pytest.mark.parametrize("wish", WISHES)
def test_settings_refuse_them_or_deliver_them_at_once(
    live: MqcoreProcess, state: State, wish: str,
) -> None:
    state.topic("AsStock", 1)
    fields = send_fields("AsStock", properties=properties(wish))
    items = encode_batch([BatchItem(b"b", {"TIMER_DELAY_MS": "1000"})])
    try:
        put(live, "refuse")
        wait_until(lambda: state.ask(SEND_V2, fields, b"x").code == ILLEGAL, "the setting")
        refused = state.ask(SEND_V2, fields, b"x")
        assert "delay level" in (refused.remark or "")
        put(live, "at_once")
        end = state.queue_end("AsStock", 0)
        wait_until(lambda: state.ask(SEND_V2, fields, b"x").code == 0, "the setting")
        wait_until(lambda: state.queue_end("AsStock", 0) > end, "the message, at once")
        wait_until(lambda: state.ask(
            SEND_BATCH, send_fields("AsStock", batch=True), items).code == 0, "the same natively")
    finally:
        put(live, "at_time")
