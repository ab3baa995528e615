"""Which offsets a pull reads and how many messages it takes (broker.md 6.2, 6.4; store.md 10)."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcore.wire import fastjson
from mqcore.wire.codes import RequestCode
from tests.pull.puller import (
    COMMITS,
    HAS_SUBSCRIPTION,
    REPLAYS,
    SUSPENDS,
    Puller,
    next_offset,
    numbered,
    offsets,
    records,
)
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until

SCAN_LEAST, SCAN_MOST = 800, 1_024
KIB = 1 << 10


def fields(answer: object) -> dict[str, str]:
    return answer.ext                                  # type: ignore[attr-defined]


# -- offsets ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("offset", "code", "remark", "begin"), [
    (-1, 21, "OFFSET_TOO_SMALL", 0), (0, 0, "FOUND", 3), (1, 0, "FOUND", 3), (2, 0, "FOUND", 3),
    (3, 19, "OFFSET_OVERFLOW_ONE", 3), (4, 21, "OFFSET_OVERFLOW_BADLY", 3),
    (2**62, 21, "OFFSET_OVERFLOW_BADLY", 3),
])
def test_the_offset_decides_what_a_pull_of_three_messages_gives(
    puller: Puller, topic: str, offset: int, code: int, remark: str, begin: int
) -> None:
    puller.batch(topic, numbered(3))

    found = puller.pull(topic, queueOffset=offset)

    assert (found.code, found.remark) == (code, remark)
    assert fields(found) == {"suggestWhichBrokerId": "0", "nextBeginOffset": str(begin),
                             "minOffset": "0", "maxOffset": "3"}
    assert offsets(found) == (list(range(offset, 3)) if code == 0 else [])


@pytest.mark.parametrize(("offset", "code"), [(0, 19), (1, 21), (-1, 21)])
def test_an_empty_queue_has_no_message_and_knows_offset_0_alone(
    puller: Puller, topic: str, offset: int, code: int
) -> None:
    found = puller.pull(topic, queueOffset=offset)

    assert (found.code, found.remark) == (code, "NO_MESSAGE_IN_QUEUE")
    assert (fields(found)["nextBeginOffset"], fields(found)["maxOffset"]) == ("0", "0")


def test_an_offset_that_moves_is_made_known_and_its_commit_counts(
    puller: Puller, topic: str
) -> None:
    puller.batch(topic, numbered(2))
    first = puller.queue_end("OFFSET_MOVED_EVENT", 0)

    puller.pull(topic, consumerGroup="moves", queueOffset=9, commitOffset=1,
                sysFlag=HAS_SUBSCRIPTION | COMMITS)

    wait_until(lambda: bool(puller.stored("OFFSET_MOVED_EVENT", 0, first)), "an event message")
    (event,) = puller.stored("OFFSET_MOVED_EVENT", 0, first)
    assert fastjson.loads(event.body) == {
        "consumerGroup": "moves", "offsetRequest": 9, "offsetNew": 2,
        "messageQueue": {"brokerName": "mqcore-a", "queueId": 0, "topic": topic},
    }
    assert (event.properties["TAGS"], event.properties["KEYS"]) == ("moves", "moves")
    assert puller.committed("moves", topic, 0) == 1


@pytest.mark.parametrize(("offset", "group"), [(0, "found"), (2, "none")])
def test_a_pull_commits_whether_it_finds_something_or_not(
    puller: Puller, topic: str, offset: int, group: str
) -> None:
    puller.batch(topic, numbered(2))
    puller.pull(topic, consumerGroup=group, queueOffset=offset, commitOffset=1)
    puller.pull(topic, consumerGroup=group, queueOffset=offset, commitOffset=2,
                sysFlag=HAS_SUBSCRIPTION | COMMITS)

    wait_until(lambda: puller.committed(group, topic, 0) == 2, "offset 2 committed")


def test_a_refused_pull_commits_nothing(puller: Puller, topic: str) -> None:
    puller.batch(topic, numbered(1))
    puller.pull(topic, consumerGroup="refused", queueOffset=0, commitOffset=7, queueId=5,
                sysFlag=HAS_SUBSCRIPTION | COMMITS)
    puller.pull(topic, consumerGroup="refused", queueOffset=0, commitOffset=7, subscription="||",
                sysFlag=HAS_SUBSCRIPTION | COMMITS)
    puller.pull(topic, consumerGroup="after", queueOffset=0, commitOffset=1,
                sysFlag=HAS_SUBSCRIPTION | COMMITS)
    wait_until(lambda: puller.committed("after", topic, 0) == 1, "a later commit")

    found = puller.ask(14, {"consumerGroup": "refused", "topic": topic, "queueId": "0"})
    assert fields(found).get("offset") != "7"


# -- how many --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("asked", "given"), [(1, 1), (5, 5), (32, 32), (33, 32), (1000, 32),
                                              (0, 1), (-3, 1)])
def test_a_pull_takes_as_many_as_asked_and_at_most_32(
    puller: Puller, topic: str, asked: int, given: int
) -> None:
    puller.batch(topic, numbered(40))

    found = puller.pull(topic, maxMsgNums=asked)

    assert offsets(found) == list(range(given))
    assert next_offset(found) == given


@pytest.mark.parametrize(("size", "given"), [
    (300 * KIB, 1),                                    # the first one comes whatever its size
    (127 * KIB, 2), (60 * KIB, 4), (40 * KIB, 6),
])
def test_a_pull_takes_at_most_256_kib_but_always_one_message(
    puller: Puller, topic: str, size: int, given: int
) -> None:
    puller.batch(topic, numbered(8), b"x" * size)

    found = puller.pull(topic)

    assert offsets(found) == list(range(given))


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreProcess]:
    """A broker to which everything counts as lying on the disk: 0 % of memory."""
    settings: dict[str, object] = {
        "store.memory_ratio_percent": 0, "broker.slave_read_enable": True,
        "store.queue_file_entry_count": 100,
    }
    with mqcore_up(tmp_path_factory.mktemp("disk"), settings) as running:
        yield running


@pytest.mark.parametrize(("size", "given"), [(10, 8), (15 * KIB, 4), (31 * KIB, 2), (70 * KIB, 1)])
def test_of_messages_on_disk_a_pull_takes_8_and_at_most_64_kib(
    on_disk: MqcoreProcess, size: int, given: int
) -> None:
    with Puller(on_disk.broker_addr) as one:
        topic = f"Disk{size}"
        one.topic(topic, 1)
        one.batch(topic, numbered(20), b"x" * size)

        found = one.pull(topic)

        assert offsets(found) == list(range(given))
        assert next_offset(found) == given


@pytest.mark.parametrize(("asked", "size", "given"), [
    (33, 10, 33), (1024, 10, 100), (1024, 2 * KIB, 59), (1024, 31 * KIB, 4), (1024, 130 * KIB, 1),
])
def test_a_pull_that_replays_takes_as_many_as_asked_and_at_most_128_kib(
    on_disk: MqcoreProcess, puller: Puller, asked: int, size: int, given: int
) -> None:
    """On the disk and in memory; 100 are in one file of a queue."""
    with Puller(on_disk.broker_addr) as far:
        for one in (puller, far):
            topic = f"Replayed{asked}-{size}"
            one.topic(topic, 1)
            one.batch(topic, numbered(100), b"x" * size)

            found = one.pull(topic, maxMsgNums=asked, sysFlag=HAS_SUBSCRIPTION | REPLAYS)

            assert offsets(found) == list(range(given))
            assert next_offset(found) == given
            assert sum(record.size for record in records(found)) <= max(
                128 * KIB, records(found)[0].size)


def test_a_pull_that_replays_and_waits_gets_what_comes(puller: Puller, topic: str) -> None:
    waiting = puller.ask_to_pull(
        topic, sysFlag=HAS_SUBSCRIPTION | REPLAYS | SUSPENDS, suspendTimeoutMillis=30_000)
    puller.batch(topic, numbered(1))

    assert offsets(puller.answer_to(waiting)) == [0]


def test_limits_of_replays_are_changed_while_the_broker_runs(puller: Puller, topic: str) -> None:
    puller.batch(topic, numbered(60))

    def change(count: int) -> None:
        body = f"store.transfer_replay_count_max={count}".encode()
        assert puller.ask(RequestCode.UPDATE_BROKER_CONFIG, None, body).code == 0

    def replayed() -> int:
        return len(offsets(puller.pull(topic, maxMsgNums=1024, sysFlag=HAS_SUBSCRIPTION | REPLAYS)))

    assert replayed() == 60
    change(40)
    try:
        wait_until(lambda: replayed() == 40, "the smaller limit")
    finally:
        change(1_024)
        wait_until(lambda: replayed() == 60, "the limit that others expect")


def test_a_consumer_far_behind_is_told_the_group_s_broker_for_slow_ones(
    on_disk: MqcoreProcess
) -> None:
    with Puller(on_disk.broker_addr) as one:
        one.topic("Slow", 1)
        one.group("slow", brokerId=5, whichBrokerWhenConsumeSlowly=7)
        one.batch("Slow", numbered(20))
        end = one.queue_end("Slow", 0)

        assert fields(one.pull("Slow", consumerGroup="slow"))["suggestWhichBrokerId"] == "7"
        at_end = one.pull("Slow", consumerGroup="slow", queueOffset=end)
        assert (at_end.code, fields(at_end)["suggestWhichBrokerId"]) == (19, "5")
        moved = one.pull("Slow", consumerGroup="slow", queueOffset=end + 1)
        assert (moved.code, fields(moved)["suggestWhichBrokerId"]) == (21, "5")
        nothing = one.pull("Slow", consumerGroup="slow", subscription="other")
        assert (nothing.code, fields(nothing)["suggestWhichBrokerId"]) == (20, "7")
        assert fields(one.pull("Slow", consumerGroup="usual"))["suggestWhichBrokerId"] == "1"


def test_broker_ids_beyond_32_bits_are_taken_and_outlive_a_restart(tmp_path: Path) -> None:
    """Nobody has such a broker; a client that looks for it reads from the master."""
    large = dict.fromkeys(("brokerId", "whichBrokerWhenConsumeSlowly"), 1 << 40)
    settings: dict[str, object] = {"broker.slave_read_enable": True}
    with mqcore_up(tmp_path, settings) as running, Puller(running.broker_addr) as one:
        one.topic("Far", 1)
        one.group("far", **large)
    with mqcore_up(tmp_path, settings) as running, Puller(running.broker_addr) as one:
        answer = one.pull("Far", consumerGroup="far")
        groups = fastjson.loads(one.ask(201).body)["subscriptionGroupTable"]

    assert fields(answer)["suggestWhichBrokerId"] == str(2**31 - 1)
    assert {name: groups["far"][name] for name in large} == large


def test_without_slave_reads_the_master_is_suggested(puller: Puller, topic: str) -> None:
    puller.group("anywhere", brokerId=5, whichBrokerWhenConsumeSlowly=7)
    puller.batch(topic, numbered(1))

    assert fields(puller.pull(topic, consumerGroup="anywhere"))["suggestWhichBrokerId"] == "0"


def test_a_pull_does_not_cross_a_consume_queue_file(on_disk: MqcoreProcess) -> None:
    with Puller(on_disk.broker_addr) as one:
        one.topic("Files", 1)
        one.batch("Files", numbered(250))

        assert offsets(one.pull("Files", queueOffset=98)) == [98, 99]
        nothing = one.pull("Files", queueOffset=40, subscription="other")
        assert (nothing.code, next_offset(nothing)) == (20, 100)


def test_no_message_is_skipped_where_a_queue_file_is_missing(tmp_path: Path) -> None:
    """Stock names the next file's first offset: clients would commit that."""
    settings: dict[str, object] = {"store.queue_file_entry_count": 100}
    with mqcore_up(tmp_path, settings) as broker, Puller(broker.broker_addr) as one:
        one.topic("Gone", 1)
        one.batch("Gone", numbered(250))
        (broker.store / "consumequeue" / "Gone" / "0" / f"{100 * 20:020d}").unlink()

        found = one.pull("Gone", queueOffset=150)

        assert found.code == 1
        assert "cannot be read now" in (found.remark or "")
        assert offsets(one.pull("Gone", queueOffset=98)) == [98, 99]
        assert offsets(one.pull("Gone", queueOffset=200, maxMsgNums=2)) == [200, 201]


# -- what is looked at -----------------------------------------------------------------------------


def test_a_pull_that_nothing_matches_looks_at_800_entries(puller: Puller, topic: str) -> None:
    puller.batch(topic, numbered(1000))

    found = puller.pull(topic, subscription="absent")
    assert (found.code, found.remark) == (20, "NO_MATCHED_MESSAGE")
    assert next_offset(found) == SCAN_LEAST
    found = puller.pull(topic, subscription="absent", queueOffset=SCAN_LEAST)
    assert (found.code, next_offset(found)) == (20, 1000)
    found = puller.pull(topic, subscription="absent", maxMsgNums=900)
    assert (found.code, next_offset(found)) == (20, 900)


def test_a_pull_that_asks_for_any_number_looks_at_1024_entries(
    puller: Puller, topic: str
) -> None:
    puller.batch(topic, numbered(SCAN_MOST + 100))

    found = puller.pull(topic, subscription="absent", maxMsgNums=2**31 - 1)
    assert (found.code, next_offset(found)) == (20, SCAN_MOST)
    found = puller.pull(topic, subscription="absent", queueOffset=SCAN_MOST,
                        maxMsgNums=2**31 - 1)
    assert (found.code, next_offset(found)) == (20, SCAN_MOST + 100)


def test_a_filtered_batch_ends_behind_its_last_message(puller: Puller, topic: str) -> None:
    puller.batch(topic, numbered(1000))

    found = puller.pull(topic, subscription="t3", maxMsgNums=5)
    assert offsets(found) == [3, 13, 23, 33, 43]
    assert next_offset(found) == 44                    # full before the next entry is looked at

    assert [record.tags for record in records(found)] == ["t3"] * 5


def test_a_store_that_cannot_be_read_for_the_moment_skips_nothing(tmp_path: Path) -> None:
    settings: dict[str, object] = {
        "store.segment_size_bytes": 1 << 20, "processes.serving_count": 1,
        "store.message_size_max_bytes": 256 << 10}
    with mqcore_up(tmp_path, settings) as broker, Puller(broker.broker_addr) as one:
        one.topic("Away", 1)
        one.batch("Away", numbered(40), b"x" * (100 * KIB))
        first = min((broker.store / "commitlog").iterdir())
        away = first.rename(tmp_path / "away")

        found = one.pull("Away", queueOffset=0)
        assert found.code == 1
        assert "cannot be read now" in (found.remark or "")
        assert offsets(one.pull("Away", queueOffset=30)) == [30, 31]
        away.rename(first)
        assert offsets(one.pull("Away", queueOffset=0)) == [0, 1]
