"""
One wrong bit in a store of ours, anywhere in its log or its checksums: it is found, told from a
torn end, and put right. (What a stock broker wrote has no checksums: tests/verify/test_flips.py.)
"""
from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import struct
from pathlib import Path

import pytest

from mqcore.store.crc32 import crc32c, flipped_bit
from mqcore.store.repair.store import repair
from mqcore.store.verify.store import verify
from mqcore.wire.codes import RequestCode
from tests.store.harness import log_records
from tests.support.dice import seed_of_run
from tests.support.mqcore_process import MqcoreError, mqcore_up
from tests.support.waiting import wait_until
from tests.verify.stores import (
    OWN_SETTINGS,
    SEGMENT_BYTES,
    TOPIC,
    kill,
    load,
    wait_for_dispatch,
)
from tests.wire_live.peer import Peer, pull_fields

MESSAGES = 320
DISPATCH_S = 20
SEED = seed_of_run(20261122)
STORE_TIME = 56                  # of a record with an IPv4 born host
PLACES = 150 if os.environ.get("CI") else 60


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("one-bit")
    with mqcore_up(folder, OWN_SETTINGS) as broker:
        load(broker, MESSAGES)
    return broker.store


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    root = tmp_path / "store"
    shutil.copytree(made, root)
    assert verify(root).status == 0
    return root


def records(root: Path) -> list[tuple[Path, int, int]]:
    """(file, first byte, bytes) of each record; of a blank one its first eight bytes."""
    folder = root / "commitlog"
    end = verify(root).figures["end"]
    return [(folder / f"{one['physicalOffset'] // SEGMENT_BYTES * SEGMENT_BYTES:020d}",
             one["physicalOffset"] % SEGMENT_BYTES, 8 if one.get("blank") else one["size"])
            for one in log_records(folder, SEGMENT_BYTES, end)]


def flip(path: Path, at: int, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1 << bit]))


@pytest.mark.slow
def test_a_flipped_bit_in_any_byte_of_a_record_is_damage_and_not_a_torn_end(root: Path) -> None:
    """Each byte of the first record, of one in the middle, of a blank one and of the last."""
    found = records(root)
    blank = next(number for number, one in enumerate(found) if one[2] == 8)
    for number in (0, len(found) // 2, blank, len(found) - 1):
        path, start, length = found[number]
        for at in range(start, start + length, 1 if os.environ.get("CI") else 7):
            flip(path, at, at % 8)
            report = verify(root)
            assert report.status == 1, f"byte {at - start} of record {number}: {report.lines()}"
            flip(path, at, at % 8)
    assert verify(root).status == 0


def test_every_bit_of_a_log_of_64_kib_has_a_checksum_that_notices(root: Path) -> None:
    """And the difference says which bit it was."""
    dice = random.Random(SEED)
    done = 0
    for path, start, length in records(root):
        raw = bytearray(path.read_bytes()[start:start + length])
        crc = crc32c(raw)
        for at in range(length):
            for bit in range(8):
                raw[at] ^= 1 << bit
                assert crc32c(raw) != crc
                if dice.random() < 0.001:
                    assert flipped_bit(raw, crc) == 8 * at + bit
                raw[at] ^= 1 << bit
        done += length
        if done >= 65_536:
            break
    assert done >= 65_536


def test_a_repair_puts_one_wrong_bit_right(root: Path, tmp_path: Path) -> None:
    dice = random.Random(SEED)
    original = {path.name: path.read_bytes() for path in (root / "commitlog").iterdir()}
    found = [one for one in records(root) if one[2] > 8]
    changed = dice.sample(found, PLACES)
    for path, start, length in changed:
        flip(path, start + dice.randrange(length), dice.randrange(8))
    assert verify(root).status == 1

    outcome = repair(root, tmp_path / "found", dry=False)

    assert outcome.status == 0, outcome.after and outcome.after.lines()
    now = {path.name: path.read_bytes() for path in (root / "commitlog").iterdir()}
    assert now == original
    assert not any("MQCORE_LOST" in action for action in outcome.actions)


def test_a_wrong_bit_in_a_checksum_costs_no_message(root: Path, tmp_path: Path) -> None:
    segment = next(iter(sorted((root / "commitlog").iterdir())))
    before = segment.read_bytes()
    path = root / "checksums" / segment.name
    entries = path.read_bytes()
    flip(path, 8 * 10 + 5, 3)
    assert verify(root).status == 1

    outcome = repair(root, tmp_path / "found", dry=False)

    assert outcome.status == 0, outcome.after and outcome.after.lines()
    assert segment.read_bytes() == before
    assert path.read_bytes().rstrip(b"\0") == entries.rstrip(b"\0")


@pytest.mark.parametrize("harm", ["emptied", "zeroed", "of another segment", "of other lengths"])
def test_a_file_of_checksums_that_is_lost_costs_no_message(root: Path, tmp_path: Path,
                                                           harm: str) -> None:
    before = {path.name: path.read_bytes() for path in (root / "commitlog").iterdir()}
    first, second = sorted((root / "checksums").iterdir())[:2]
    entries = first.read_bytes()
    first.write_bytes({"emptied": b"", "zeroed": bytes(len(entries)),
                       "of another segment": second.read_bytes(),
                       "of other lengths": b"".join(
                           struct.pack(">II", end + 10 * (number >= 10), crc ^ 1)
                           for number, (end, crc) in enumerate(
                               struct.iter_unpack(">II", entries)) if end)}[harm])
    assert verify(root).status == 1
    assert repair(root, tmp_path / "none", dry=True).status == 1

    outcome = repair(root, tmp_path / "found", dry=False)

    assert outcome.status == 0, outcome.after and outcome.after.lines()
    assert {path.name: path.read_bytes() for path in (root / "commitlog").iterdir()} == before
    assert first.read_bytes().rstrip(b"\0") == entries.rstrip(b"\0")


def entries_of(path: Path) -> list[tuple[int, int]]:
    return [(end, crc) for end, crc in struct.iter_unpack(">II", path.read_bytes()) if end]


def write_entries(path: Path, entries: list[tuple[int, int]]) -> None:
    path.write_bytes(b"".join(struct.pack(">II", end, crc) for end, crc in entries))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_checksums_of_another_log_with_right_ones_behind_cost_no_message(
    root: Path, tmp_path: Path, share: float
) -> None:
    """Some of them have a record's length by chance; the right ones were written since."""
    before = {path.name: path.read_bytes() for path in (root / "commitlog").iterdir()}
    path = min((root / "checksums").iterdir())
    entries = entries_of(path)
    foreign = int(share * len(entries))
    write_entries(path, [
        (end + 3 * (number % 4 > 1), crc ^ 0x10101) if number < foreign else (end, crc)
        for number, (end, crc) in enumerate(entries)])
    assert verify(root).status == 1

    outcome = repair(root, tmp_path / "found", dry=False)

    assert {path.name: path.read_bytes() for path in (root / "commitlog").iterdir()} == before
    assert (outcome.status, outcome.lost) == (0, 0), outcome.actions
    assert entries_of(path) == entries


def test_a_record_is_not_given_up_for_its_checksum_alone(root: Path, tmp_path: Path) -> None:
    """More than one bit of the checksum is wrong; the record's body, place and entry are right."""
    before = {path.name: path.read_bytes() for path in (root / "commitlog").iterdir()}
    path = min((root / "checksums").iterdir())
    entries = entries_of(path)
    write_entries(path, [(end, crc ^ 0x10101 if number in (0, 9, len(entries) - 2) else crc)
                         for number, (end, crc) in enumerate(entries)])
    assert verify(root).status == 1

    outcome = repair(root, tmp_path / "found", dry=False)

    assert {path.name: path.read_bytes() for path in (root / "commitlog").iterdir()} == before
    assert (outcome.status, outcome.lost) == (0, 0), outcome.actions
    assert sum("it stays" in action for action in outcome.actions) == 3
    assert entries_of(path) == entries


def test_the_verdict_of_a_repair_says_how_many_messages_are_lost(
    root: Path, tmp_path: Path
) -> None:
    for path, start, length in [one for one in records(root) if one[2] > 8][10:13]:
        with path.open("r+b") as file:
            file.seek(start + length // 2)
            file.write(bytes([file.read(1)[0] ^ 0xFF]) + b"some other bytes")
    outcome = repair(root, tmp_path / "found", dry=False)

    assert outcome.lost == 3, outcome.actions
    assert outcome.verdict == ("the next start mends the rest; 3 messages are lost: placeholders "
                               "stand for them")
    report = json.loads((tmp_path / "found" / "report.json").read_text())
    assert (report["lost"], report["after"]["verdict"]) == (3, outcome.verdict)


@pytest.mark.parametrize("misplaced", ["the folder is a file", "a file is a folder"])
def test_what_stands_where_checksums_belong_is_moved_away(
    root: Path, tmp_path: Path, misplaced: str
) -> None:
    before = {path.name: path.read_bytes() for path in (root / "commitlog").iterdir()}
    last = max((root / "checksums").iterdir())
    entries = last.read_bytes()
    if misplaced == "the folder is a file":
        shutil.rmtree(root / "checksums")
        (root / "checksums").write_bytes(b"x")
    else:
        last.unlink()
        last.mkdir()
    with pytest.raises(MqcoreError), mqcore_up(tmp_path, OWN_SETTINGS):
        pytest.fail("it started without checksums")
    assert verify(root).status == 1
    assert repair(root, tmp_path / "none", dry=True).status == 1

    outcome = repair(root, tmp_path / "found", dry=False)

    assert outcome.status == 0, outcome.after and outcome.after.lines()
    assert {path.name: path.read_bytes() for path in (root / "commitlog").iterdir()} == before
    assert last.read_bytes() == entries.rstrip(b"\0").ljust(len(last.read_bytes()), b"\0")
    assert (tmp_path / "found" / "checksums").exists()
    assert messages_of(tmp_path) == MESSAGES


@pytest.mark.parametrize("segments", ["the last", "all"])
def test_checksums_lost_at_the_end_of_a_killed_broker_cost_no_message(
    tmp_path: Path, segments: str
) -> None:
    """A start takes them for damage in the boot that wrote them: then `repair` has to mend it."""
    with mqcore_up(tmp_path, OWN_SETTINGS) as broker:
        load(broker, MESSAGES)
        kill(broker)
    root = broker.store
    files = sorted((root / "checksums").iterdir())
    for path in files if segments == "all" else files[-1:]:
        path.write_bytes(b"")
    with pytest.raises(MqcoreError, match="this is damage, not a torn tail"), mqcore_up(
            tmp_path, OWN_SETTINGS):
        pytest.fail("it started on lost checksums")
    assert verify(root).status == 1

    outcome = repair(root, tmp_path / "found", dry=False)

    assert outcome.status in (0, 3), outcome.after and outcome.after.lines()
    assert messages_of(tmp_path) == MESSAGES


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("killed")
    with mqcore_up(folder, OWN_SETTINGS) as broker:
        load(broker, MESSAGES)
        wait_for_dispatch(broker, MESSAGES)
        kill(broker)
    return broker.store


HARMS = {
    "a bit of a body": lambda raw: raw[:90] + bytes([raw[90] ^ 4]) + raw[91:],
    "two bytes of a body": lambda raw: raw[:90] + bytes(one ^ 255 for one in raw[90:92]) + raw[92:],
    "a bit of a size": lambda raw: raw[:3] + bytes([raw[3] ^ 16]) + raw[4:],
    "zeros": lambda raw: bytes(len(raw)),
}


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("place", [-2, -MESSAGES // 2])
def test_damage_behind_the_checkpoint_of_a_killed_broker_cuts_nothing(
    killed: Path, tmp_path: Path, harm: str, place: int
) -> None:
    """In the boot that wrote it a whole record behind says that nothing can be torn here."""
    root = shutil.copytree(killed, tmp_path / "store")
    path, start, length = [one for one in records(root) if one[2] > 8][place]
    with path.open("r+b") as file:
        file.seek(start)
        raw = file.read(length)
        file.seek(start)
        file.write(HARMS[harm](raw))
    with pytest.raises(MqcoreError, match="this is damage, not a torn tail"), mqcore_up(
            tmp_path, OWN_SETTINGS):
        pytest.fail("it started, and cut what lies behind")
    assert verify(root).status == 1

    outcome = repair(root, tmp_path / "found", dry=False)

    assert outcome.status in (0, 3), outcome.after and outcome.after.lines()
    assert messages_of(tmp_path) == MESSAGES


def test_damage_before_records_of_an_earlier_time_is_found_by_their_checksums(
    killed: Path, tmp_path: Path
) -> None:
    """The clock went back: neither time nor a queue vouches for what lies behind."""
    root = shutil.copytree(killed, tmp_path / "store")
    segment, start, _ = [one for one in records(root) if one[2] > 8][-5]
    shutil.rmtree(root / "consumequeue")
    with segment.open("r+b") as file, (root / "checksums" / segment.name).open("r+b") as entries:
        ends = dict(struct.iter_unpack(">II", entries.read()))
        file.seek(start + 90)
        file.write(b"??")
        for path, at, size in records(root)[-4:]:
            assert path == segment
            file.seek(at)
            record = bytearray(file.read(size))
            record[STORE_TIME:STORE_TIME + 8] = struct.pack(">q", 1)
            file.seek(at)
            file.write(record)
            entries.seek(8 * list(ends).index(at + size))
            entries.write(struct.pack(">II", at + size, crc32c(record)))
    with pytest.raises(MqcoreError, match="this is damage, not a torn tail"), mqcore_up(
            tmp_path, OWN_SETTINGS):
        pytest.fail("it started, and cut what lies behind")
    assert verify(root).status == 1
    assert repair(root, tmp_path / "found", dry=False).status in (0, 3)


def messages_of(folder: Path) -> int:
    """How many a broker started there has in the queues of the load, when it has dispatched."""
    with mqcore_up(folder, OWN_SETTINGS) as broker, Peer(broker.broker_addr) as peer:
        def found() -> int:
            ends = [peer.ask(RequestCode.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": str(queue)})
                    for queue in range(4)]
            return sum(int((end.ext or {})["offset"] or 0) for end in ends)

        with contextlib.suppress(AssertionError):
            wait_until(lambda: found() >= MESSAGES, "all messages in their queues", DISPATCH_S)
        return found()


def test_a_broker_that_starts_on_a_flipped_property_says_damage_to_who_pulls_it(
    root: Path, tmp_path: Path
) -> None:
    """A clean start reads no log: the pull is where it shows."""
    path, start, length = records(root)[1]
    flip(path, start + length - 3, 1)
    with mqcore_up(tmp_path, OWN_SETTINGS) as broker, Peer(broker.broker_addr) as peer:
        answers = [peer.ask(RequestCode.PULL_MESSAGE, pull_fields("verified", queue_id=queue))
                   for queue in range(4)]
    remarks = [answer.remark or "" for answer in answers]
    assert any(f"the message at log position {start}" in remark for remark in remarks), remarks
