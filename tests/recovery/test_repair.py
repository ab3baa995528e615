"""`mqcore store repair`: a damaged store starts again, and no good record is lost on the way."""
from __future__ import annotations

import contextlib
import json
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from mqcore.admin.cli import main
from mqcore.admin.store import records
from mqcore.store import files
from mqcore.store.repair.records import LOST_TOPIC
from mqcore.store.repair.store import Outcome, repair
from mqcore.store.verify.store import verify
from mqcore.wire.records import Record
from tests.support.mqcore_process import mqcore_up
from tests.verify.conftest import stopped  # noqa: F401 (a fixture)
from tests.verify.stores import (
    OWN_SETTINGS,
    SEGMENT_BYTES,
    STOPPED_MESSAGES,
    TOPIC,
    copy,
    expired,
)

QUEUES = 4
MESSAGES = STOPPED_MESSAGES


@pytest.fixture
def root(stopped: Path, tmp_path: Path) -> Path:  # noqa: F811
    return copy(stopped, tmp_path)


def good(root: Path) -> dict[int, Record]:
    """The records of a store that were sent, by log position."""
    return sent(list(records(root)))


def sent(found: list[Record]) -> dict[int, Record]:
    return {one.physical_offset: one for one in found
            if one.topic != LOST_TOPIC.decode() and "MQCORE_LOST" not in one.properties}


def segment(root: Path, number: int) -> Path:
    return root / "commitlog" / f"{number * SEGMENT_BYTES:020d}"


def overwrite(path: Path, position: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)


def repaired(root: Path, **options: object) -> Outcome:
    return repair(root, root.parent / "found", dry=False, **options)  # type: ignore[arg-type]


def started(root: Path) -> None:
    """One run of a broker; afterwards the store is sound."""
    with mqcore_up(root.parent, OWN_SETTINGS):
        pass
    report = verify(root)
    assert [one.line() for one in report.findings if one.severity != "note"] == []


def middle_record(root: Path) -> Record:
    found = sorted(good(root).values(), key=lambda one: one.physical_offset)
    return found[len(found) // 2]


def at(root: Path, one: Record) -> tuple[Path, int]:
    return (segment(root, one.physical_offset // SEGMENT_BYTES),
            one.physical_offset % SEGMENT_BYTES)


def one_bad_body(root: Path) -> int:
    one = middle_record(root)
    path, position = at(root, one)
    overwrite(path, position + 95, b"\xee" * 8)
    return 1


def one_bad_magic(root: Path) -> int:
    one = middle_record(root)
    path, position = at(root, one)
    overwrite(path, position + 4, b"\xee" * 4)
    return 1


def wild_size(root: Path) -> int:
    path, position = at(root, middle_record(root))
    overwrite(path, position, struct.pack(">i", 0x7FFFFFF0))
    return 1


def zeros_over_several(root: Path) -> int:
    one = middle_record(root)
    path, position = at(root, one)
    overwrite(path, position, bytes(one.size * 3 + 10))
    return 4


def first_of_a_segment(root: Path) -> int:
    overwrite(segment(root, 1), 0, b"\xee" * 50)
    return 1


def last_of_a_segment(root: Path) -> int:
    last = max((one for one in good(root).values()
                if one.physical_offset < 2 * SEGMENT_BYTES), key=lambda one: one.physical_offset)
    overwrite(segment(root, 1), last.physical_offset % SEGMENT_BYTES + 4, b"\xee" * 60)
    return 1


def blank_magic(root: Path) -> int:
    last = max((one for one in good(root).values()
                if one.physical_offset < 2 * SEGMENT_BYTES), key=lambda one: one.physical_offset)
    overwrite(segment(root, 1), (last.physical_offset + last.size) % SEGMENT_BYTES, b"\xee" * 8)
    return 0


def blank_size(root: Path) -> int:
    last = max((one for one in good(root).values()
                if one.physical_offset < 2 * SEGMENT_BYTES), key=lambda one: one.physical_offset)
    overwrite(segment(root, 1), (last.physical_offset + last.size) % SEGMENT_BYTES, b"\0\0\0\x08")
    return 0


def lost_segment(root: Path) -> int:
    count = sum(SEGMENT_BYTES <= position < 2 * SEGMENT_BYTES for position in good(root))
    segment(root, 1).unlink()
    return count


def torn_segment(root: Path) -> int:
    """Half a segment, as a copy that was interrupted leaves it."""
    before = good(root)
    with segment(root, 1).open("r+b") as file:
        file.truncate(SEGMENT_BYTES // 2)
    return sum(SEGMENT_BYTES <= position < 2 * SEGMENT_BYTES
               and position + one.size > SEGMENT_BYTES * 3 // 2
               for position, one in before.items())


def wrong_queue_id(root: Path) -> int:
    path, position = at(root, middle_record(root))
    overwrite(path, position + 12, struct.pack(">i", 3 if middle_record(root).queue_id != 3 else 2))
    return 0


def negative_queue_id(root: Path) -> int:
    path, position = at(root, middle_record(root))
    overwrite(path, position + 12, b"\xff")
    return 0


def wild_queue_offset(root: Path) -> int:
    path, position = at(root, middle_record(root))
    overwrite(path, position + 22, b"\x01")
    return 0


def small_queue_offset(root: Path) -> int:
    path, position = at(root, middle_record(root))
    overwrite(path, position + 20, struct.pack(">q", 1))
    return 0


def wrong_topic(root: Path) -> int:
    one = middle_record(root)
    path, position = at(root, one)
    overwrite(path, position + 88 + len(one.body) + 1, b"w")
    return 0


def impossible_port(root: Path) -> int:
    path, position = at(root, middle_record(root))
    overwrite(path, position + 52, b"\x7f")
    return 0


def unknown_flags(root: Path) -> int:
    path, position = at(root, middle_record(root))
    overwrite(path, position + 36, b"\x40")
    return 0


def no_store_time(root: Path) -> int:
    path, position = at(root, middle_record(root))
    overwrite(path, position + 56, bytes(8))
    return 0


def negative_store_time(root: Path) -> int:
    path, position = at(root, middle_record(root))
    overwrite(path, position + 56, b"\xff\xff")
    return 0


def wrong_entry(root: Path) -> int:
    overwrite(sorted((root / "consumequeue" / TOPIC / "1").iterdir())[2], 27, b"\x55" * 5)
    return 0


def index_garbage(root: Path) -> int:
    overwrite(min((root / "index").iterdir()), 40 + 4 * 233 + 20 * 5, b"\x55" * 100)
    return 0


def checkpoint_ahead(root: Path) -> int:
    overwrite(root / "checkpoint", 0, b"\x7f")
    return 0


def foreign_file(root: Path) -> int:
    (root / "commitlog" / "notes.txt").write_text("mind the gap")
    return 0


def topics_not_json(root: Path) -> int:
    (root / "config" / "topics.json").write_text("{")
    (root / "config" / "topics.json.bak").unlink(missing_ok=True)
    return 0


def topic_of_a_wrong_kind(root: Path) -> int:
    path = root / "config" / "topics.json"
    path.write_text(path.read_text().replace('"perm":6', '"perm":"six"', 1))
    return 0


DAMAGES = [one_bad_body, one_bad_magic, wild_size, zeros_over_several, first_of_a_segment,
           last_of_a_segment, blank_magic, blank_size, lost_segment, torn_segment, wrong_queue_id,
           negative_queue_id, wild_queue_offset, small_queue_offset, wrong_topic, impossible_port,
           unknown_flags, no_store_time, negative_store_time, wrong_entry, index_garbage,
           checkpoint_ahead, foreign_file, topics_not_json, topic_of_a_wrong_kind]


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES, ids=[damage.__name__ for damage in DAMAGES])
def test_after_a_repair_a_broker_starts_and_all_that_was_whole_is_there(
    damage: Callable[[Path], int], root: Path,
) -> None:
    before = good(root)
    lost = damage(root)
    assert verify(root).status == 1

    outcome = repaired(root)

    assert outcome.status in (0, 3), outcome.after and outcome.after.lines()
    started(root)
    found = list(records(root))
    after = sent(found)
    assert len(after) == len(before) - lost
    assert all(before[position].body == one.body and before[position].queue_offset
               == one.queue_offset for position, one in after.items())
    placeholders = [one for one in found if "MQCORE_LOST" in one.properties]
    numbers = sorted((one.queue_id, one.queue_offset)
                     for one in [*after.values(), *placeholders] if one.topic == TOPIC)
    assert numbers == [(queue, number) for queue in range(QUEUES)
                       for number in range(MESSAGES // QUEUES)]


@pytest.mark.parametrize("damage", [one_bad_body, lost_segment, wild_queue_offset])
def test_without_queues_the_gaps_in_the_log_say_what_was_lost(
    damage: Callable[[Path], int], root: Path,
) -> None:
    before = good(root)
    lost = damage(root)
    shutil.rmtree(root / "consumequeue")

    outcome = repaired(root)

    assert outcome.status == 3
    started(root)
    assert len(good(root)) == len(before) - lost
    queues = [queue for queue in verify(root).queues if queue["topic"] == TOPIC]
    assert [queue["records"] for queue in queues] == [MESSAGES // QUEUES] * QUEUES


def test_a_dry_run_changes_nothing_and_says_what_it_would_do(root: Path) -> None:
    one_bad_body(root)
    lost_segment(root)
    wrong_entry(root)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}

    outcome = repair(root, root.parent / "found", dry=True)

    assert outcome.status == 1
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
    assert not (root.parent / "found").exists()
    text = "\n".join(outcome.actions)
    assert "are bridged, 1 lost messages of" in text
    assert f"commitlog/{SEGMENT_BYTES:020d}: missing: made again" in text


def test_what_a_repair_overwrites_is_kept_beside_the_store(root: Path) -> None:
    one = middle_record(root)
    path, position = at(root, one)
    one_bad_body(root)
    raw = path.read_bytes()[position:position + one.size]

    outcome = repaired(root)

    assert outcome.report is not None
    actions = json.loads(outcome.report.read_text())["actions"]
    saved = next(action for action in actions if action.get("saved"))
    assert saved["logPosition"] == one.physical_offset
    assert saved["messages"] == [[TOPIC, one.queue_id, one.queue_offset]]
    assert (root.parent / "found" / saved["saved"]).read_bytes() == raw


def test_a_store_that_is_not_damaged_is_left_as_it_is(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")
    before = sorted(root.rglob("*"))
    outcome = repaired(root)
    assert (outcome.status, outcome.actions) == (3, [])
    assert sorted(root.rglob("*")) == before


def test_a_second_repair_finds_nothing(root: Path) -> None:
    zeros_over_several(root)
    repaired(root)
    assert repaired(root).actions == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_random_garbage_all_over_the_log_is_repaired(seed: int, root: Path) -> None:
    dice = random.Random(seed)
    before = good(root)
    for path in sorted((root / "commitlog").iterdir())[:-1]:
        for _ in range(dice.randrange(1, 6)):
            overwrite(path, dice.randrange(SEGMENT_BYTES - 600), dice.randbytes(
                dice.choice([1, 4, 40, 500])))

    outcome = repaired(root)

    assert outcome.status in (0, 3), outcome.after and outcome.after.lines()
    started(root)
    after = good(root)
    assert len(after) > len(before) * 9 // 10
    assert set(after) <= set(before)


# -- the command -----------------------------------------------------------------------------------


def test_the_command_asks_before_it_changes_anything(root: Path) -> None:
    one_bad_body(root)
    before = segment(root, 1).read_bytes()

    refused = CliRunner().invoke(main, ["store", "repair", str(root)], input="n\n")

    assert refused.exit_code == 1
    assert "are bridged" in refused.output
    assert segment(root, 1).read_bytes() == before


def test_the_command_repairs_and_ends_with_the_status_of_verify(root: Path) -> None:
    one_bad_body(root)
    dry = CliRunner().invoke(main, ["store", "repair", "--dry-run", str(root)])
    done = CliRunner().invoke(main, ["store", "repair", "--yes", str(root)])
    again = CliRunner().invoke(main, ["store", "repair", "--yes", str(root)])

    assert (dry.exit_code, done.exit_code, again.exit_code) == (1, 3, 3)
    assert "nothing was changed" in dry.output
    assert "lost+found-" in done.output
    assert "nothing to repair" in again.output
    assert [path.name for path in root.parent.glob("store.lost+found-*/report.json")] == [
        "report.json"]


def test_the_command_leaves_a_running_store_alone(tmp_path: Path) -> None:
    with mqcore_up(tmp_path, OWN_SETTINGS) as broker:
        refused = CliRunner().invoke(main, ["store", "repair", "--yes", str(broker.store)])
    assert refused.exit_code == 2
    assert "a broker runs on this store" in refused.output


def test_a_start_that_damage_stops_names_place_and_both_commands(root: Path) -> None:
    one = middle_record(root)
    one_bad_body(root)
    shutil.rmtree(root / "consumequeue")

    with pytest.raises(AssertionError) as start, mqcore_up(root.parent, OWN_SETTINGS):
        pass

    path, position = at(root, one)
    text = str(start.value)
    assert f"{path}: at {position} (log position {one.physical_offset})" in text
    assert "wrong body CRC" in text
    assert f"mqcore store verify {root}" in text
    assert f"mqcore store repair --dry-run {root}" in text


def test_a_start_without_a_segment_in_between_names_both_commands(root: Path) -> None:
    segment(root, 1).unlink()

    with pytest.raises(AssertionError) as start, mqcore_up(root.parent, OWN_SETTINGS):
        pass

    assert "no segment between" in str(start.value)
    assert f"mqcore store repair --dry-run {root}" in str(start.value)


@pytest.mark.parametrize("call", ["write_at", "sync", "truncate", "rename"])
@pytest.mark.parametrize("number", [0, 1, 2, 5])
def test_a_repair_that_the_disk_stops_can_be_started_again(
    number: int, call: str, root: Path,
) -> None:
    before = good(root)
    lost = zeros_over_several(root)
    calls = 0

    def failing(*args: object) -> object:
        nonlocal calls
        calls += 1
        if calls == number + 1:
            raise OSError(5, "Input/output error")
        return original(*args)

    original = getattr(files.calls, call)
    with files.replaced(**{call: failing}), contextlib.suppress(OSError):
        repair(root, root.parent / "found", dry=False)
    outcome = repair(root, root.parent / "found again", dry=False)

    assert outcome.status in (0, 3), outcome.after and outcome.after.lines()
    after = good(root)
    assert len(after) == len(before) - lost
    assert all(before[position].body == one.body for position, one in after.items())


def test_a_queue_whose_messages_have_all_expired_keeps_its_numbers(
    stopped: Path, tmp_path: Path,  # noqa: F811
) -> None:
    """At 0 its groups, which are at 9, would pass over the next nine messages."""
    root = copy(stopped, tmp_path)
    folder = expired(root, 9)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    wrong = max((root / "consumequeue" / TOPIC / "1").iterdir())
    overwrite(wrong, 0, b"\0\0\0\0\0\0\0\x4d")
    assert verify(root).status == 1
    assert [line for line in repair(root, tmp_path / "dry", dry=True).actions
            if "but for 1 queues" in line]

    assert repaired(root).status in (0, 3)

    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert not (root / "consumequeue" / TOPIC).exists()
    assert (tmp_path / "found" / "consumequeue" / TOPIC / "1" / wrong.name).exists()
    started(root)
    ends = {(queue["topic"], queue["queueId"]): queue["end"] for queue in verify(root).queues}
    assert ends["idle", 0] == 9
