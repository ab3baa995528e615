"""Times of delivery of messages (client.md 2.14), and the handles that take them back."""
from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from mqcore.client import ConfigError, Message
from mqcore.wire.recall_handle import HandleError, RecallHandle

PARIS = timezone(timedelta(hours=2))


@pytest.mark.parametrize(("delay", "ms"), [
    (0, "0"), (90.5, "90500"), (0.001, "1"), (0.0001, "1"), (1.1, "1100"), (2, "2000"),
    (timedelta(days=40), "3456000000"), (timedelta(microseconds=1), "1"),
])
def test_a_delay_is_rounded_up_to_milliseconds(delay: float | timedelta, ms: str) -> None:
    message = Message("t", b"x", delay=delay)
    assert message.properties["TIMER_DELAY_MS"] == ms
    assert message.delay == int(ms) / 1000
    assert message.deliver_at is None


@pytest.mark.parametrize(("at", "ms"), [
    (datetime(2027, 1, 1, tzinfo=UTC), "1798761600000"),
    (datetime(2027, 1, 1, 2, tzinfo=PARIS), "1798761600000"),
    (datetime(2027, 1, 1, 0, 0, 0, 1, tzinfo=UTC), "1798761600001"),
    (datetime(1969, 1, 1, tzinfo=UTC), "0"),
])
def test_a_time_is_in_milliseconds_since_1970(at: datetime, ms: str) -> None:
    message = Message("t", b"x", deliver_at=at)
    assert message.properties["TIMER_DELIVER_MS"] == ms
    assert message.deliver_at == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=int(ms))


@pytest.mark.parametrize(("fields", "named"), [
    ({"delay": -1}, "delay"), ({"delay": "5"}, "delay"), ({"delay": True}, "delay"),
    ({"delay": float("nan")}, "delay"), ({"delay": float("inf")}, "delay"),
    ({"deliver_at": datetime(2027, 1, 1)}, "zone"), ({"deliver_at": 5}, "deliver_at"),
    ({"delay": 1, "delay_level": 2}, "only one"),
    ({"delay": 1, "deliver_at": datetime(2027, 1, 1, tzinfo=UTC)}, "only one"),
])
def test_what_is_no_time_is_refused_by_name(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        Message("t", b"x", **fields)


def test_an_application_cannot_set_them_as_its_own_properties() -> None:
    with pytest.raises(ConfigError, match="reserved"):
        Message("t", b"x", properties={"TIMER_DELIVER_MS": "5"})


def handle(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


def test_a_handle_says_topic_broker_second_and_message() -> None:
    read = RecallHandle.read(handle("v1 orders a-1 1798761600001 0A"))
    assert read == RecallHandle("orders", "a-1", 1_798_761_600_000, "0A")


@pytest.mark.parametrize("text", [
    "", "?", handle(""), handle("v1 orders a 5"), handle("v2 orders a 5 0A"),
    handle("v1 orders a x 0A"), handle("v1 orders a -5 0A"), handle("v1 orders a 5 0A more"),
    handle("v1  a 5 0A"), handle("v1 orders a 99999999999999999 0A"), "Ü", "x" * 1025,
    base64.b64encode(b"\xff\xfe").decode(),
])
def test_what_is_no_handle_is_refused(text: str) -> None:
    with pytest.raises(HandleError):
        RecallHandle.read(text)
