"""A running broker deletes, removes and refuses while clients are at work."""
from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mqcore.wire.codes import RequestCode
from tests.retention.client import (
    AGAIN,
    FOUND,
    MOVED,
    NOTHING_NEW,
    Client,
    pull_frame,
)
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.waiting import WAIT_S, wait_until
from tests.workers.processes import by_role

SEGMENT = 1 << 20
BODY = b"x" * 4000
SMALL: dict[str, object] = {
    "store.segment_size_bytes": SEGMENT, "store.message_size_max_bytes": 65_536,
    "store.queue_file_entry_count": 300, "store.index_slot_count": 500,
    "store.index_entry_count": 400, "store.clean_interval_ms": 50, "store.clean_pause_ms": 0,
    "store.checkpoint_interval_ms": 300, "store.flush_interval_ms": 10,   # 16 segments at most wait
    "processes.serving_count": 1,
}
NEVER: dict[str, object] = {           # no hour, no disk: only who asks for it
    "store.delete_when_hours": [(time.localtime().tm_hour + 12) % 24],
    "store.disk_used_max_percent": 100, "store.disk_clean_percent": 100,
    "store.disk_refuse_percent": 100,
}
ALWAYS: dict[str, object] = {"store.disk_used_max_percent": 1, "store.disk_clean_percent": 1,
                             "store.disk_refuse_percent": 100}


@pytest.fixture
def hungry(tmp_path: Path) -> Iterator[MqcoreProcess]:
    """A broker that deletes whatever it may, all the time."""
    with mqcore_up(tmp_path, {**SMALL, **ALWAYS}) as broker:
        yield broker


def numbered(first: int, count: int) -> list[bytes]:
    return [b"%d " % number + BODY for number in range(first, first + count)]


def number_of(body: bytes) -> int:
    return int(body.split(b" ", 1)[0])


def first_segment(broker: MqcoreProcess) -> int:
    return min(int(path.name) for path in (broker.store / "commitlog").iterdir())


def deleted_and_mapped(broker: MqcoreProcess) -> set[str]:
    """Deleted store files that a process of the broker has mapped."""
    found = set()
    for pid in broker.family():
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            if str(broker.store) in line and line.endswith("(deleted)"):
                found.add(line.split()[5])
    return found


def runtime(client: Client) -> dict[str, str]:
    answer = client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
    table: dict[str, str] = json.loads(answer.body)["table"]
    return table


def bytes_of(text: str) -> float:
    """The reverse of `512 B`, `1.6 KiB`."""
    number, unit = text.split()
    return float(number) * 1024 ** ("B", "KiB", "MiB", "GiB").index(unit)


def wait_for_flush(client: Client) -> None:
    """Sixteen segments may wait for the flush, and these are small."""
    wait_until(lambda: bytes_of(runtime(client)["remainHowManyDataToFlush"]) < 4 * SEGMENT,
               "the log is flushed")


def test_a_consumer_of_old_messages_is_overtaken_by_their_deletion_and_goes_on(
    hungry: MqcoreProcess,
) -> None:
    producer, consumer = Client(hungry.broker_addr), Client(hungry.broker_addr)
    producer.make_topic("T")
    processes = by_role(hungry)
    sent, offset, codes, received = 0, 0, set(), []
    deadline = time.monotonic() + WAIT_S

    while sent < 6000 or offset < sent:
        assert time.monotonic() < deadline, (sent, offset, codes)
        if sent < 6000:
            wait_for_flush(producer)
            assert producer.send_many("T", numbered(sent, 200)) == list(range(sent, sent + 200))
            sent += 200
        if sent == 3000:
            wait_until(lambda: first_segment(hungry) > 0, "the oldest messages are deleted")
        for _ in range(3 if sent >= 3000 else 0):            # half as fast as the producer
            code, offset, records = consumer.pull("T", offset)
            codes.add(code)
            for record in records:
                assert number_of(record.body) == record.queue_offset
                received.append(record.queue_offset)

    assert received == sorted(set(received))
    assert received[-1] == sent - 1
    assert len(received) < sent                  # some were deleted before they were read
    assert codes <= {FOUND, NOTHING_NEW, AGAIN, MOVED}
    assert codes & {AGAIN, MOVED}
    assert by_role(hungry) == processes          # nobody died
    wait_until(lambda: not deleted_and_mapped(hungry), "the space of deleted segments is free")
    producer.close()
    consumer.close()


def test_an_offset_below_the_log_is_answered_with_again_then_with_moved(
    hungry: MqcoreProcess,
) -> None:
    client = Client(hungry.broker_addr)
    client.make_topic("T")
    client.send_many("T", numbered(0, 200))
    seen: list[int] = []
    sent = 200
    deadline = time.monotonic() + WAIT_S
    while MOVED not in seen:
        assert time.monotonic() < deadline, seen
        wait_for_flush(client)
        client.send_many("T", numbered(sent, 100))
        sent += 100
        code, begin, _ = client.pull("T", 0)
        if code != (seen or [None])[-1]:
            seen.append(code)
        assert begin > 0

    assert seen in ([FOUND, AGAIN, MOVED], [AGAIN, MOVED], [FOUND, MOVED], [MOVED])
    wait_until(lambda: len(list((hungry.store / "commitlog").iterdir())) <= 2,
               "all but the last one, and the one made ahead, are deleted")

    def fits() -> bool:
        """All that is said of the beginning, unless something is deleted between two questions."""
        begin = client.offset(RequestCode.GET_MIN_OFFSET, "T")
        code, _, records = client.pull("T", begin)
        return (code == FOUND and records[0].queue_offset == begin
                and client.pull("T", 0)[:2] == (MOVED, begin)
                and int(runtime(client)["commitLogMinOffset"]) == first_segment(hungry))

    wait_until(fits, "the first offset is that of a message which is there, and is told as such")
    client.close()


def test_a_client_that_reads_its_answers_late_gets_them_whole(tmp_path: Path) -> None:
    with mqcore_up(tmp_path, {**SMALL, **NEVER, "store.reserved_hours": 0}) as broker:
        producer = Client(broker.broker_addr)
        producer.make_topic("T")
        for first in range(0, 2000, 200):
            producer.send_many("T", numbered(first, 200))
        wait_until(lambda: producer.offset(RequestCode.GET_MAX_OFFSET, "T") == 2000, "all is there")
        slow = Client(broker.broker_addr, receive_buffer_bytes=4096)
        slow.peer.send(b"".join(pull_frame("T", offset, opaque=turn * 2000 + offset)
                                for turn in range(4) for offset in range(0, 1984, 32)))
        answers = [slow.answer()]                            # the broker is at work on the rest
        assert producer.ask(RequestCode.DELETE_EXPIRED_COMMITLOG).code == 0
        wait_until(lambda: first_segment(broker) >= 7 * SEGMENT, "the segments below are deleted")

        answers += [slow.answer() for _ in range(4 * 62 - 1)]
        codes = {}
        for answer in answers:
            codes[answer.opaque], _, records = slow.opened(answer)
            offsets = [record.queue_offset for record in records]
            assert offsets == [number_of(record.body) for record in records]
            assert offsets == sorted(set(offsets))
            assert min(offsets, default=2000) >= answer.opaque % 2000
        assert len(codes) == 4 * 62
        assert codes[1952] == codes[3 * 2000 + 1952] == FOUND
        assert set(codes.values()) <= {FOUND, AGAIN, MOVED}  # whole, or told that it is too late
        producer.close()
        slow.close()


def test_expired_files_go_when_somebody_asks_and_their_queues_too(tmp_path: Path) -> None:
    with mqcore_up(tmp_path, {**SMALL, **NEVER, "store.reserved_hours": 0}) as broker:
        client = Client(broker.broker_addr)
        client.send_many("quiet", [b"old 0", b"old 1"])
        client.send_many("T", numbered(0, 1000))
        wait_until(lambda: int(runtime(client)["dispatchBehindBytes"]) == 0, "all is dispatched")
        assert client.ask(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE).code == 0
        assert client.offset(RequestCode.GET_MAX_OFFSET, "quiet") == 2

        assert client.ask(RequestCode.DELETE_EXPIRED_COMMITLOG).code == 0
        wait_until(lambda: first_segment(broker) > 2 * SEGMENT, "expired segments are deleted")
        assert client.ask(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE).code == 0
        assert client.offset(RequestCode.GET_MAX_OFFSET, "quiet") == 0
        assert client.send_many("quiet", [b"new 0"]) == [0]
        wait_until(lambda: client.consume("quiet") == [b"new 0"], "the new message is there")
        client.close()


def remove_and_send_again(broker: MqcoreProcess) -> None:
    client = Client(broker.broker_addr)
    client.send_many("T", [b"old %d" % number for number in range(700)])
    client.send_many("U", [b"other"])
    wait_until(lambda: len(client.consume("T")) == 700, "all are there")
    assert client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == 0
    assert client.offset(RequestCode.GET_MAX_OFFSET, "T") == 0
    for number in range(2):
        answer = client.send("T", b"new %d" % number)
        assert (answer.ext or {})["queueOffset"] == str(number)
    wait_until(lambda: client.consume("T") == [b"new 0", b"new 1"], "the new ones are there")
    assert client.consume("U") == [b"other"]
    client.close()


@pytest.mark.parametrize("clean", [True, False])
def test_a_deleted_topic_stays_empty_over_a_restart(tmp_path: Path, clean: bool) -> None:
    settings = {**SMALL, **NEVER, "store.checkpoint_interval_ms": 60_000}
    with mqcore_up(tmp_path, settings) as broker:
        remove_and_send_again(broker)
        if not clean:
            broker.kill()
    with mqcore_up(tmp_path, settings) as broker:
        client = Client(broker.broker_addr)
        wait_until(lambda: client.consume("T") == [b"new 0", b"new 1"], "what was there is there")
        assert client.consume("U") == [b"other"]
        assert client.send_many("T", [b"new 2"]) == [2]
        wait_until(lambda: client.consume("T")[2:] == [b"new 2"], "and what came then")
        client.close()


def test_a_topic_is_removed_under_load_without_harm(tmp_path: Path) -> None:
    with mqcore_up(tmp_path, {**SMALL, **NEVER}) as broker:
        producer, admin = Client(broker.broker_addr), Client(broker.broker_addr)
        processes = by_role(broker)
        lives = 0
        last = -1
        for turn in range(40):
            offsets = producer.send_many("T", numbered(turn * 50, 50))
            breaks = [b for a, b in zip([last, *offsets], offsets, strict=False) if b != a + 1]
            assert breaks in ([], [0])               # a new life begins at 0, and numbers go on
            lives += len(breaks)
            last = offsets[-1]
            if turn % 8 == 7:
                assert admin.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == 0
                last = -1
        admin.send_many("U", [b"end"])
        wait_until(lambda: admin.consume("U") == [b"end"], "all is dispatched")
        assert admin.offset(RequestCode.GET_MAX_OFFSET, "T") == 0
        assert by_role(broker) == processes
        producer.close()
        admin.close()


def answer_of(client: Client, topic: str, body: bytes) -> tuple[int, str]:
    answer = client.send(topic, body)
    return answer.code, answer.remark or ""


def test_a_disk_that_is_too_full_refuses_messages_and_serves_those_it_has(
    tmp_path: Path,
) -> None:
    with mqcore_up(tmp_path, {**SMALL, **NEVER}) as broker:
        client = Client(broker.broker_addr)
        client.send_many("T", [b"stored"])
        client.close()
    with mqcore_up(tmp_path, {**SMALL, **NEVER, "store.disk_refuse_percent": 1}) as broker:
        client = Client(broker.broker_addr)
        wait_until(lambda: answer_of(client, "T", b"more")[0] == 14, "messages are refused")
        remark = answer_of(client, "T", b"more")[1]
        assert remark.startswith("service not available now: the disk of the store is ")
        assert remark.endswith(" % full")
        assert client.consume("T")[0] == b"stored"
        client.close()


def query(client: Client, key: str, **changes: str) -> Any:
    return client.ask(RequestCode.QUERY_MESSAGE, {
        "topic": "T", "key": key, "maxNum": "64", "beginTimestamp": "0",
        "endTimestamp": str((1 << 63) - 1), **changes})


def test_messages_are_found_by_key_until_they_are_deleted(tmp_path: Path) -> None:
    with mqcore_up(tmp_path, {**SMALL, **NEVER, "store.reserved_hours": 0}) as broker:
        client = Client(broker.broker_addr)
        for number in range(1000):
            answer = client.send(
                "T", BODY, properties=f"KEYS\x01all n{number}\x02UNIQ_KEY\x01U{number}")
            assert answer.code == 0
        wait_until(lambda: query(client, "n999").code == 0, "the last one is indexed")
        assert [query(client, f"n{number}").code for number in (0, 500, 999)] == [0, 0, 0]
        assert query(client, "U7", _UNIQUE_KEY_QUERY="true").code == 0
        assert query(client, "nobody").code == 22
        assert query(client, "all").body.count(b"all n") == 64

        assert client.ask(RequestCode.DELETE_EXPIRED_COMMITLOG).code == 0
        wait_until(lambda: first_segment(broker) > 2 * SEGMENT, "expired segments are deleted")
        assert query(client, "n0").code == 22
        assert query(client, "n999").code == 0
        wait_until(lambda: len(list((broker.store / "index").iterdir())) < 8, "index files follow")
        client.close()
