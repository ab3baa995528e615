"""
Messages that changed on the disk between two runs: a clean start does not read the log, so a pull
looks at what an earlier run has stored before it is served.
"""
from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from mqcore.store.recovery.queue_ends import COPIED_NS
from mqcore.wire.records import decode_record, decode_records
from tests.pull.puller import Puller
from tests.support.mqcore_process import mqcore_up
from tests.support.waiting import wait_until
from tests.wire_live.peer import pull_fields
from tests.wire_live.state import State

TOPIC = "Damaged"
# What is flipped, from the start of the record; the topic and the body from its end (store.md 2.1).
FIELDS = {"size": 3, "magic": 4, "body CRC": 8, "queue id": 15, "queue offset": 27, "position": 35,
          "body": 88, "topic": -1, "flag": 19, "sys flag": 39, "born time": 47, "store time": 63,
          "properties": -2}


def store_messages(folder: Path) -> dict[str, int]:
    """Three messages in a queue for each field; returns the position of each queue's second."""
    positions: dict[str, int] = {}
    with mqcore_up(folder) as broker, State(broker.broker_addr) as state:
        state.topic(TOPIC, len(FIELDS))
        for queue_id, name in enumerate(FIELDS):
            ids = [(state.message(TOPIC, queue_id, f"{name} {number}".encode()).ext or {})["msgId"]
                   for number in range(3)]
            positions[name] = int((ids[1] or "")[-16:], 16)
        wait_until(lambda: state.queue_end(TOPIC, len(FIELDS) - 1) == 3,
                   "all messages in their queues")
    return positions


def flip(folder: Path, positions: dict[str, int]) -> None:
    with (folder / "store" / "commitlog" / f"{0:020d}").open("r+b") as log:
        for name, at in FIELDS.items():
            log.seek(positions[name])
            record = log.read(400)
            if at == FIELDS["topic"]:
                at = record.index(TOPIC.encode())
            elif at == FIELDS["properties"]:
                at = int.from_bytes(record[:4]) - 3
            log.seek(positions[name] + at)
            log.write(bytes([record[at] ^ 1]))


@pytest.fixture(scope="module")
def flipped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int]]:
    folder = tmp_path_factory.mktemp("damaged")
    positions = store_messages(folder)
    flip(folder, positions)
    written = (folder / "store" / "config" / "queueEnds.bin").stat().st_mtime_ns
    wait_until(lambda: time.time_ns() - written > COPIED_NS, "a copy is known by its times")
    return folder, positions


@pytest.fixture
def damaged(flipped: tuple[Path, dict[str, int]], tmp_path: Path) -> tuple[Path, dict[str, int]]:
    """A copy for each test, in a folder of its own, as old as what it is a copy of."""
    folder, positions = flipped
    return Path(shutil.copytree(folder, tmp_path / "copy")), positions


def test_a_message_that_changed_at_rest_is_refused_by_name_and_the_others_are_served(
    damaged: tuple[Path, dict[str, int]],
) -> None:
    folder, positions = damaged
    with mqcore_up(folder) as broker, Puller(broker.broker_addr) as puller:
        for queue_id, name in enumerate(FIELDS):
            first, second, third = (
                puller.ask(11, pull_fields(TOPIC, queue_id=queue_id, offset=offset))
                for offset in range(3))

            assert [record.body for record in decode_records(first.body)] == [f"{name} 0".encode()]
            assert second.code == 1, name
            assert second.remark == (f"the message at log position {positions[name]} is damaged: "
                                     "see mqcore store verify and mqcore store repair")
            assert [record.body for record in decode_records(third.body)] == [f"{name} 2".encode()]


def test_a_look_by_id_shows_no_message_whose_body_changed(
    damaged: tuple[Path, dict[str, int]],
) -> None:
    folder, positions = damaged
    with mqcore_up(folder) as broker, Puller(broker.broker_addr) as puller:
        for name in ("size", "magic", "body CRC", "position", "body"):
            answer = puller.ask(33, {"offset": str(positions[name])})
            assert answer.code == 1, name


def test_what_this_run_has_stored_is_not_checked_again(
    damaged: tuple[Path, dict[str, int]],
) -> None:
    """Its pages come from this broker's own memory: only what lay on a disk may have changed."""
    folder, _ = damaged
    with mqcore_up(folder) as broker, State(broker.broker_addr) as state:
        state.topic("Fresh", 1)
        sent = state.message("Fresh", 0, b"fresh")
        position = int(((sent.ext or {})["msgId"] or "")[-16:], 16)
        wait_until(lambda: state.queue_end("Fresh", 0) == 1, "the message in its queue")
        with (folder / "store" / "commitlog" / f"{0:020d}").open("r+b") as log:
            log.seek(position + 88)
            log.write(b"F")
        (record,) = state.stored("Fresh")
        assert record == decode_record(state.ask(33, {"offset": str(position)}).body)
        assert record.body == b"Fresh"
