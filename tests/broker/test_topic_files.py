"""What is stored for a new topic waits for the topic's file, and no longer (broker.md 9.2)."""
from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mqcore.broker import core
from mqcore.broker.handlers import (
    AWAITED_PER_GAP_MS,
    CHANGE_GAP_MS,
    ENTRIES_PER_GAP_MS,
    TOPICS_PER_GAP_MS,
)
from mqcore.broker.ports import AtOnce
from mqcore.broker.request import REDO, Answer, PendingOutcome
from mqcore.broker.requests.check_sender import CheckSender
from mqcore.broker.saving import Saving
from mqcore.turns import finished
from mqcore.wire.topics import TopicConfig
from tests.broker.fakes import NOW_MS, Bench
from tests.broker.test_replies import answers, reply
from tests.broker.test_send_rules import send

MANY = 4_000
GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"


class Later:
    """A thread that writes when it is told to (ports.Background)."""

    def __init__(self, bench: Bench) -> None:
        self.begun: list[tuple[Iterator[None], Callable[[OSError | None], None]]] = []
        bench.broker.core.saving = Saving(self)

    def run(self, steps: Iterator[None], done: Callable[[OSError | None], None]) -> None:
        self.begun.append((steps, done))

    def write(self) -> None:
        """What is being written, to its end."""
        AtOnce().run(*self.begun.pop(0))


@pytest.fixture
def later(bench: Bench) -> Later:
    return Later(bench)


def file_of(bench: Bench, name: str = "topics.json") -> Path:
    return Path(bench.broker.core.settings.store.path, "config", name)


def refuse(file: Path) -> None:
    """Nothing can be put in its place."""
    file.unlink(missing_ok=True)
    file.mkdir(parents=True)


def are_held(*outcomes: Any) -> bool:
    return all(isinstance(one, PendingOutcome) and not one.known for one in outcomes)


def test_nothing_is_stored_under_a_topic_before_it_is_in_the_file(bench: Bench) -> None:
    send(bench, topic="T")                     # its file is written; the next one waits a moment
    held = [send(bench, topic="U"), send(bench, topic="U")]
    assert are_held(*held)
    assert bench.tables.unsaved == {"U"}       # other serving processes ask, too
    told: list[object] = []
    held[1].then = told.append

    bench.broker.tick(bench.now_ms + 1000)

    assert '"U"' in file_of(bench).read_text(encoding="utf-8")
    assert [one.outcome for one in held] == [REDO, REDO]
    assert all(one.known for one in held)
    assert told == [REDO]
    assert bench.tables.unsaved == set()
    assert send(bench, topic="U") is REDO


def test_a_large_table_is_written_soon_when_messages_wait_for_it(bench: Bench) -> None:
    def gap_ms(entries_a_ms: int) -> int:
        return CHANGE_GAP_MS + bench.broker.core.topics.count // entries_a_ms

    for number in range(MANY):
        bench.broker.core.topics.update(TopicConfig(f"T{number}", 1, 1), NOW_MS)
    send(bench, topic="T")                     # its file is written, and name servers are told
    bench.broker.core.topics.update(TopicConfig("H", 1, 1), NOW_MS)
    assert bench.broker.change_due_in_ms(bench.now_ms) == gap_ms(ENTRIES_PER_GAP_MS)
    told = len(bench.registrar.registered)

    held = send(bench, topic="U")
    soon_ms = bench.broker.change_due_in_ms(bench.now_ms)
    assert soon_ms == gap_ms(AWAITED_PER_GAP_MS)
    bench.broker.tick(bench.now_ms + soon_ms)
    assert held.known
    assert len(bench.registrar.registered) == told       # its text is made as seldom as ever

    bench.broker.tick(bench.now_ms + gap_ms(TOPICS_PER_GAP_MS))
    assert "U" in bench.registrar.topics()[-1]


def is_refused(outcome: Any, *words: str) -> bool:
    answer = outcome.outcome if isinstance(outcome, PendingOutcome) and outcome.known else outcome
    return isinstance(answer, Answer) and answer.code == 1 and all(
        word in (answer.remark or "") for word in (*words, "saved"))


def test_a_topic_that_the_disk_refuses_takes_no_messages(bench: Bench) -> None:
    """A kill would lose the way to them."""
    send(bench, topic="T")
    held = send(bench, topic="U")
    refuse(file_of(bench))
    bench.now_ms += 1000
    bench.broker.tick(bench.now_ms)

    assert is_refused(held, "U")
    assert "U" not in bench.tables.topics
    assert send(bench, topic="T") is REDO
    file_of(bench).rmdir()
    bench.broker.tick(bench.now_ms + 60_000)
    saved = file_of(bench).read_text(encoding="utf-8")
    assert '"T"' in saved
    assert '"U"' not in saved


def test_nobody_waits_for_a_disk_until_it_takes_a_file_again(bench: Bench) -> None:
    send(bench, topic="T")
    refuse(file_of(bench))
    bench.now_ms += 1000
    assert is_refused(send(bench, topic="U"))               # the disk has been asked
    assert is_refused(send(bench, topic="V"), "Is a directory")    # ... and is not, for seconds
    assert bench.broker.change_due_in_ms(bench.now_ms) == 5_000

    file_of(bench).rmdir()
    bench.now_ms += 60_000
    bench.broker.tick(bench.now_ms)
    held = send(bench, topic="W")
    bench.broker.tick(bench.now_ms + 1000)
    assert held.outcome is REDO


def test_a_topic_made_beside_a_file_that_the_disk_refuses_does_not_wait_for_the_next_try(
        bench: Bench, later: Later) -> None:
    first = send(bench, topic="U")
    second = send(bench, topic="V")            # the file that is being written has it not
    assert are_held(first, second)

    refuse(file_of(bench))
    later.write()

    assert is_refused(first, "U")
    assert is_refused(second, "V")
    assert not {"U", "V"} & bench.tables.topics.keys()
    assert bench.tables.unsaved == set()


def make(bench: Bench, name: str, queues: int) -> Answer | None:
    return bench.ask(17, {"topic": name, "readQueueNums": queues, "writeQueueNums": queues,
                          "perm": 6, "topicFilterType": "SINGLE_TAG"})


def test_a_changed_topic_is_as_before_when_the_disk_refuses_the_change(
        bench: Bench, later: Later) -> None:
    """More queues, another topic, none: what a kill would take away is not given out."""
    before = bench.broker.core.topics.version
    for name in ("MORE", "GONE", "TWICE"):
        make(bench, name, 1)
        later.write()
    refuse(file_of(bench))
    make(bench, "MORE", 4)
    held = send(bench, topic="MORE")           # is decided anew by what is in force then
    assert are_held(held)
    later.write()
    assert bench.tables.topics["MORE"].write_queue_count == 1
    assert held.outcome is REDO

    bench.ask(215, {"topic": "GONE"})
    assert "GONE" not in bench.tables.topics
    later.write()
    assert bench.tables.topics["GONE"].write_queue_count == 1

    make(bench, "TWICE", 2)                    # the second change comes while a file is made
    make(bench, "TWICE", 3)
    make(bench, "NEW", 3)
    later.write()
    assert bench.tables.topics["TWICE"].write_queue_count == 3
    later.write()
    assert bench.tables.topics["TWICE"].write_queue_count == 1
    assert "NEW" not in bench.tables.topics
    assert bench.tables.unsaved == set()
    assert bench.broker.core.topics.version.counter > before.counter
    assert [answer.code for _, answer in bench.connections.sent][-4:] == [1] * 4

    file_of(bench).rmdir()
    bench.broker.tick(bench.now_ms + 60_000)
    later.write()
    saved = json.loads(file_of(bench).read_text(encoding="utf-8"))["topicConfigTable"]
    assert [saved[name]["writeQueueNums"] for name in ("MORE", "GONE", "TWICE")] == [1, 1, 1]


def registered(bench: Bench) -> tuple[int, dict[str, int]]:
    """The version that name servers heard of last, and the queues of each topic of this test."""
    body, _ = bench.registrar.registered[-1]
    said = json.loads(body.body)["topicConfigSerializeWrapper"]
    return said["dataVersion"]["counter"], {
        name: one["writeQueueNums"] for name, one in said["topicConfigTable"].items()
        if name in ("A", "B", "C", "U")}


def test_name_servers_hear_of_what_is_saved_only(bench: Bench, later: Later) -> None:
    def tell() -> tuple[int, dict[str, int]]:
        finished(bench.broker._register())     # as for an interval, whatever is being written
        return registered(bench)

    make(bench, "A", 1)
    later.write()
    first = tell()
    assert first[1] == {"A": 1}

    make(bench, "B", 1)                        # is being written ...
    make(bench, "A", 4)                        # ... and what comes meanwhile
    send(bench, topic="U")
    bench.ask(215, {"topic": "C"})
    assert tell() == first
    later.write()
    between = tell()
    assert between[1] == {"A": 1, "B": 1}
    later.write()
    second = tell()
    assert second[1] == {"A": 4, "B": 1, "U": 4}
    assert first[0] < between[0] < second[0]   # name servers pass over a version that they know

    refuse(file_of(bench))
    make(bench, "C", 1)
    assert tell() == second
    make(bench, "C", 2)                        # again within a second
    later.write()
    assert tell() == second
    later.write()
    assert tell()[1] == second[1]


def test_a_topic_made_for_a_message_is_registered_when_it_is_saved(
        bench: Bench, later: Later) -> None:
    send(bench, topic="U")
    bench.broker.tick(bench.now_ms + 1_000)
    assert all("U" not in names for names in bench.registrar.topics())
    later.write()
    bench.broker.tick(bench.now_ms + 2_000)
    assert registered(bench)[1] == {"U": 4}


def test_a_group_is_as_before_when_the_disk_refuses_the_change(bench: Bench) -> None:
    bench.ask(200, None, {"groupName": "G", "retryMaxTimes": 3})
    bench.heartbeat("MEMBERS")
    bench.broker.core.offsets.commit("G", "T", 0, 5)
    bench.broker.tick(bench.now_ms + 1000)
    refuse(file_of(bench, "subscriptionGroup.json"))

    assert bench.ask(200, None, {"groupName": "G", "consumeEnable": False}).code == 1
    assert bench.ask(200, None, {"groupName": "NEW"}).code == 1
    assert bench.tables.groups["G"].consume_enable
    assert bench.tables.groups["G"].retry_times_max == 3
    assert "NEW" not in bench.tables.groups
    assert bench.ask(207, {"groupName": "G", "removeOffset": "true"}).code == 1
    assert bench.tables.groups["G"].retry_times_max == 3
    assert bench.broker.core.offsets.committed("G", "T", 0) == 5
    bench.heartbeat("MORE")                    # its members would make it again
    bench.broker.tick(bench.now_ms + 60_000)
    assert {"MEMBERS", "MORE"} <= bench.tables.groups.keys()


def test_groups_that_the_disk_refuses_keep_no_topic_from_its_file(bench: Bench) -> None:
    refuse(file_of(bench, "subscriptionGroup.json"))
    bench.heartbeat("G")                       # its group, its retry topic
    bench.now_ms += 1000
    held = send(bench, topic="U")
    bench.broker.tick(bench.now_ms + 1000)

    assert held is REDO
    assert '"U"' in file_of(bench).read_text(encoding="utf-8")


def test_a_topic_that_is_deleted_and_made_again_waits_for_a_file_that_has_it(
        bench: Bench, later: Later) -> None:
    send(bench, topic="T")
    first = send(bench, topic="U")
    bench.ask(215, {"topic": "U"})
    later.write()                              # of T alone ...
    second = send(bench, topic="U")
    assert '"U"' not in file_of(bench).read_text(encoding="utf-8")
    assert are_held(first, second)

    later.write()
    assert '"U"' not in file_of(bench).read_text(encoding="utf-8")     # ... and of the time between
    assert are_held(first, second)
    bench.broker.tick(bench.now_ms + 1000)
    later.write()
    assert '"U"' in file_of(bench).read_text(encoding="utf-8")
    assert first.known
    assert second.known
    assert bench.tables.unsaved == set()


def test_a_stored_reply_is_answered_when_the_topic_that_it_made_is_in_its_file(
        bench: Bench) -> None:
    send(bench, topic="T")
    reply(bench, topic="U")
    bench.appender.finish()
    assert answers(bench) == []

    bench.broker.tick(bench.now_ms + 1000)
    assert len(answers(bench)) == 1


def test_no_more_than_so_many_answers_wait_for_a_file(
        bench: Bench, later: Later, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "HELD_ANSWERS_MAX", 3)
    send(bench, topic="T")                     # waits, too
    for _ in range(5):
        reply(bench, topic="U")
    bench.appender.finish()
    assert len(answers(bench)) == 3

    later.write()                              # of T
    bench.broker.tick(bench.now_ms + 1000)
    later.write()
    assert len(answers(bench)) == 5


def test_the_topic_of_the_given_up_is_made_again_when_a_kill_came_before_its_file(
        bench: Bench) -> None:
    checks = CheckSender(bench.broker.core)
    checks.progress(0, 0, bench.now_ms)
    assert GIVEN_UP not in bench.tables.topics

    bench.queues.queues[GIVEN_UP, 0] = 1
    checks.progress(0, 0, bench.now_ms)
    assert bench.tables.topics[GIVEN_UP] == TopicConfig(GIVEN_UP, 1, 1)
