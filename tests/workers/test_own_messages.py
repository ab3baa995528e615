"""Messages of the coordinator's own are handed over in order and settled once each."""
from __future__ import annotations

from typing import Any

import pytest

from mqcore.broker.ports import AppendStatus, Put
from mqcore.workers.coordinator import own_messages
from mqcore.workers.coordinator.own_messages import OwnMessages


class FakeProducer:
    """A ring with room for `room` messages of at most `size` bytes."""

    def __init__(self, room: int = 10, size: int = 8) -> None:
        self.size = size
        self.room = room
        self.taken: list[tuple[str, int, bytes, bytes, dict[str, Any]]] = []
        self.results: list[tuple[int, int, int, int]] = []
        self.refuses = False

    def append(self, topic: str, queue_id: int, body: bytes, properties: bytes, **rest: Any
               ) -> bool:
        if len(body) > self.size:
            raise ValueError("message: too large")
        if len(self.taken) >= self.room:
            return False
        self.taken.append((topic, queue_id, body, properties, rest))
        return True

    def refused(self) -> bool:
        return self.refuses

    def has_results(self) -> bool:
        return bool(self.results)

    def take_results(self) -> list[tuple[int, int, int, int]]:
        results, self.results = self.results, []
        return results


@pytest.fixture
def producer() -> FakeProducer:
    return FakeProducer()


@pytest.fixture
def own(producer: FakeProducer) -> OwnMessages:
    return OwnMessages(producer, "C")


def append(own: OwnMessages, body: bytes = b"x", **properties: str) -> list[Put]:
    settled: list[Put] = []
    own.append("T", 1, body, properties, born_ms=5, store_host=("10.0.0.1", 2), waits=True,
               done=settled.append)
    return settled


def test_each_message_is_settled_with_its_own_result(
    own: OwnMessages, producer: FakeProducer
) -> None:
    first, second = append(own), append(own)
    tags = [rest["tag"] for *_, rest in producer.taken]
    producer.results = [(tags[1], 0, 8, 900), (tags[0], 99, 0, 0)]
    assert own.has_results()
    own.push()

    assert second == [Put(AppendStatus.PUT_OK, 8, 900)]
    assert [put.status for put in first] == [AppendStatus.UNKNOWN_ERROR]
    producer.results = [(tags[1], 0, 8, 900)]
    own.push()
    assert len(second) == 1


def test_hosts_times_and_the_cluster_go_along(own: OwnMessages, producer: FakeProducer) -> None:
    append(own, a="b")
    append(own, CLUSTER="D")

    assert producer.taken[0][:4] == ("T", 1, b"x", b"CLUSTER\x01C\x02a\x01b")
    assert producer.taken[1][3] == b"CLUSTER\x01D"
    assert producer.taken[0][4] | {"tag": 0} == {
        "born_ms": 5, "flag": 0, "sys_flag": 0, "reconsume_times": 0, "born_host": None,
        "store_host": ("10.0.0.1", 2), "prepared_position": 0, "waits": True, "tag": 0}


def test_what_finds_no_room_waits_in_order(own: OwnMessages, producer: FakeProducer) -> None:
    producer.room = 1
    for body in (b"1", b"2", b"3"):
        append(own, body)
    assert [body for _, _, body, _, _ in producer.taken] == [b"1"]

    producer.room = 3
    own.push()
    assert [body for _, _, body, _, _ in producer.taken] == [b"1", b"2", b"3"]


@pytest.mark.parametrize(("name", "limit"), [("WAITING_COUNT_MAX", 2), ("WAITING_BYTES_MAX", 2)])
def test_too_much_that_waits_is_refused(
    own: OwnMessages, producer: FakeProducer, monkeypatch: pytest.MonkeyPatch, name: str, limit: int
) -> None:
    monkeypatch.setattr(own_messages, name, limit)
    producer.room = 0

    assert [append(own), append(own)] == [[], []]
    assert append(own) == [Put(AppendStatus.SERVICE_NOT_AVAILABLE)]
    producer.room = 2
    own.push()
    assert append(own) == []


def test_a_store_that_takes_no_writes_refuses_at_once(
    own: OwnMessages, producer: FakeProducer
) -> None:
    producer.refuses = True

    assert append(own) == [Put(AppendStatus.SERVICE_NOT_AVAILABLE)]
    assert producer.taken == []


def test_what_fits_no_record_is_refused_and_lets_the_next_pass(
    own: OwnMessages, producer: FakeProducer
) -> None:
    assert append(own, b"too large") == [Put(AppendStatus.MESSAGE_ILLEGAL)]
    assert append(own, a="\x02") == [Put(AppendStatus.MESSAGE_ILLEGAL)]
    assert append(own) == []
    assert len(producer.taken) == 1


def test_a_lost_message_that_nobody_waits_for_is_logged(
    own: OwnMessages, producer: FakeProducer, caplog: pytest.LogCaptureFixture
) -> None:
    producer.refuses = True
    own.append("T", 0, b"", {}, born_ms=1)

    assert "for T was not stored: SERVICE_NOT_AVAILABLE" in caplog.text
