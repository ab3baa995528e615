"""Each rule of the format, broken by hand in a sound store, is named with its file and position."""
from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

from mqcore.store.verify.store import verify
from tests.store.golden import manifest
from tests.verify.stores import changed, copy, damages, flip

SEGMENT = 65_536
SECOND = manifest("basic")["messages"][1]
SECOND_AT = SECOND["physicalOffset"]
LOG = Path("commitlog/00000000000000000000")
QUEUE = Path("consumequeue/golden_orders/0/00000000000000000000")
SLOTS_AT = 40
ENTRIES_AT = 40 + 4 * 500


def first_damage(root: Path) -> tuple[str, int | None, str]:
    found = damages(root)
    assert found, "nothing was found"
    return found[0].file, found[0].position, found[0].text


# -- the commit log --------------------------------------------------------------------------------

@pytest.mark.parametrize(("offset", "what"), [
    (4, "no record magic"), (0, "sizes that do not fit"), (11, "another CRC"),
    (35, "another position"), (90, "another CRC"),
])
def test_a_record_that_is_not_whole_is_found_where_it_lies(
    basic: Path, offset: int, what: str
) -> None:
    with flip(basic / LOG, SECOND_AT + offset):
        file, position, text = first_damage(basic)

    assert (file, position) == (str(LOG), SECOND_AT)
    assert what in text
    assert f"lies at {SECOND_AT}" in text
    assert f"from log position {SECOND_AT + SECOND['size']} on" in text


@pytest.mark.parametrize(("offset", "content", "what"), [
    (12, struct.pack(">i", -1), "queueId is -1"),
    (20, struct.pack(">q", -5), "queueOffset is -5"),
    (36, struct.pack(">i", 0x800), "sysFlag is 2048"),
    (52, struct.pack(">i", 70_000), "bornHost's port is 70000"),
    (56, struct.pack(">q", 0), "storeTimestamp is 0"),
    (68, struct.pack(">i", -1), "storeHost's port is -1"),
    (72, struct.pack(">i", -2), "reconsumeTimes is -2"),
])
def test_a_field_outside_its_range_is_found(
    basic: Path, offset: int, content: bytes, what: str
) -> None:
    with changed(basic / LOG, SECOND_AT + offset, content):
        found = damages(basic)

    assert [finding.position for finding in found if what in finding.text] == [SECOND_AT]


def test_a_blank_record_has_to_fill_its_segment(basic: Path) -> None:
    position, size = manifest("basic")["blankRecords"][0]

    with changed(basic / LOG, position, struct.pack(">i", size - 1)):
        file, at, text = first_damage(basic)

    assert (file, at) == (str(LOG), position)
    assert f"{size - 1} bytes, expected {size}" in text


def test_damage_before_records_that_follow_is_never_taken_for_a_torn_end(basic: Path) -> None:
    """A page of zeros in the last segment, as a disk may hand back, with live records behind it."""
    last = basic / "commitlog" / f"{3 * SEGMENT:020d}"

    with changed(last, 4096, bytes(4096)):
        report = verify(basic)

    assert report.status == 1
    assert any(finding.file == f"commitlog/{last.name}" and "follow from" in finding.text
               for finding in report.findings)


def test_the_broken_last_record_of_a_clean_stop_is_damage(basic: Path) -> None:
    """Its queue still points to it: it was acknowledged, and the next start would cut it."""
    last = manifest("basic")["messages"][-1]

    with flip(basic / "commitlog" / f"{3 * SEGMENT:020d}",
              last["physicalOffset"] % SEGMENT + 90):
        found = damages(basic)

    assert any(f"points to log position {last['physicalOffset']}, expected one before the log's end"
               in finding.text for finding in found)


def test_bytes_behind_the_end_to_which_nothing_points_are_mended(basic: Path) -> None:
    end = manifest("basic")["afterRecovery"]["maxPhyOffset"]

    with changed(basic / "commitlog" / f"{3 * SEGMENT:020d}", end % SEGMENT, b"torn"):
        report = verify(basic)

    assert report.status == 3
    assert [finding.position for finding in report.findings] == [end % SEGMENT]


def test_a_missing_segment_and_a_foreign_file_are_damage(basic: Path, tmp_path: Path) -> None:
    root = copy(basic, tmp_path)
    (root / "commitlog" / f"{SEGMENT:020d}").unlink()
    (root / "commitlog" / "notes.txt").write_text("mine")

    texts = [finding.text for finding in damages(root)]

    assert any(text.startswith(f"no segment {SEGMENT:020d}") for text in texts)
    assert any(text.startswith("not a segment") for text in texts)


def test_a_segment_of_another_length_is_damage(basic: Path, tmp_path: Path) -> None:
    root = copy(basic, tmp_path)
    with (root / LOG).open("r+b") as file:
        file.truncate(SEGMENT - 4096)

    assert any(finding.text == f"{SEGMENT - 4096} bytes, expected {SEGMENT} as the others have"
               for finding in damages(root))


def test_a_commit_log_that_is_gone_is_damage(basic: Path, tmp_path: Path) -> None:
    root = copy(basic, tmp_path)
    shutil.rmtree(root / "commitlog")
    (root / "commitlog").mkdir()

    assert any(finding.file == "commitlog" for finding in damages(root))


# -- consume queues --------------------------------------------------------------------------------

@pytest.mark.parametrize(("offset", "what"), [
    (7, "points to log position"), (11, "has record size"), (19, "has tag code"),
])
def test_a_wrong_queue_entry_is_found_with_what_was_expected(
    basic: Path, offset: int, what: str
) -> None:
    with flip(basic / QUEUE, 20 * 5 + offset):
        file, position, text = first_damage(basic)

    assert (file, position) == (str(QUEUE), 100)
    assert text.startswith(f"entry 5 {what}")
    assert "expected" in text


def test_zeros_among_queue_entries_are_damage_after_a_clean_stop(basic: Path) -> None:
    with changed(basic / QUEUE, 20 * 5, bytes(40)):
        file, position, text = first_damage(basic)

    assert (file, position) == (str(QUEUE), 100)
    assert text.startswith("zeros from entry 5 on")


def test_an_entry_too_many_points_to_no_record_of_its_queue(basic: Path) -> None:
    queue = next(queue for queue in manifest("basic")["consumeQueues"]
                 if (queue["topic"], queue["queueId"]) == ("golden_text", 0))
    entry = struct.pack(">qiq", SECOND_AT, SECOND["size"], 0)

    with changed(basic / "consumequeue/golden_text/0/00000000000000000000", 20 * queue["max"],
                 entry):
        texts = [finding.text for finding in damages(basic)]

    assert any("expected a whole record of this queue and number there" in text for text in texts)


def test_a_queue_that_lost_its_newest_entries_is_mended(basic: Path) -> None:
    queue = next(queue for queue in manifest("basic")["consumeQueues"]
                 if (queue["topic"], queue["queueId"]) == ("golden_text", 0))

    with changed(basic / "consumequeue/golden_text/0/00000000000000000000",
                 20 * (queue["max"] - 3), bytes(60)):
        report = verify(basic)

    assert report.status == 3
    assert [finding.text for finding in report.findings] == [
        f"behind the log: 3 records from number {queue['max'] - 3} on have no entry"]


def test_a_delivery_time_that_is_not_the_levels_is_damage(stock: dict[str, Path]) -> None:
    root = stock["delay_retry_dlq"]

    with flip(root / "consumequeue/SCHEDULE_TOPIC_XXXX/2/00000000000000000000", 17):
        assert first_damage(root)[2].startswith("entry 0 has tag code")

    assert verify(root, delay_levels_ms=[2000] * 18).status == 1


def test_a_light_queues_entry_is_held_against_the_record_that_names_it(
    stock: dict[str, Path]
) -> None:
    light = "consumequeue/%LMQ%alice/0/00000000000000000000"

    with flip(stock["lmq"] / light, 11):
        assert first_damage(stock["lmq"])[:2] == (light, 0)


def test_an_ext_address_has_to_lead_to_the_records_unit(stock: dict[str, Path]) -> None:
    root = stock["filter_ext"]

    with flip(root / "consumequeue_ext/golden_sql/0/00000000000000000000", 9):
        assert "expected a unit with tag code" in first_damage(root)[2]


# -- the key index ---------------------------------------------------------------------------------

@pytest.mark.parametrize(("offset", "what"), [
    (2, "has hash"), (11, "has hash"), (15, " s, expected"), (19, "as the one before in its slot"),
])
def test_a_wrong_index_entry_is_found(basic: Path, offset: int, what: str) -> None:
    index = sorted((basic / "index").iterdir())[0]

    with flip(index, ENTRIES_AT + 20 * 7 + offset):
        found = damages(basic)

    assert any(finding.position == ENTRIES_AT + 140 and finding.file == f"index/{index.name}"
               and what in finding.text for finding in found)


@pytest.mark.parametrize("offset", [7, 15, 23, 31, 35, 39])
def test_a_wrong_index_header_is_found(basic: Path, offset: int) -> None:
    index = sorted((basic / "index").iterdir())[1]

    with flip(index, offset, bit=3):
        assert {finding.file for finding in damages(basic)} == {f"index/{index.name}"}


def test_a_slot_that_names_another_entry_is_found(basic: Path) -> None:
    index = sorted((basic / "index").iterdir())[0]

    with changed(index, SLOTS_AT + 4 * 17, struct.pack(">i", 1)):
        found = damages(basic)

    assert any(finding.position == SLOTS_AT + 68 and "slot 17 names entry 1" in finding.text
               for finding in found)


# -- beside them -----------------------------------------------------------------------------------

def test_a_checkpoint_ahead_of_the_log_says_that_records_are_gone(basic: Path) -> None:
    with changed(basic / "checkpoint", 0, struct.pack(">q", 1_995_249_652_459)):
        file, position, text = first_damage(basic)

    assert (file, position) == ("checkpoint", 0)
    assert text.startswith("physicMsgTimestamp is 1995249652459, expected at most")


def test_bytes_behind_the_checkpoints_times_are_damage(basic: Path) -> None:
    with flip(basic / "checkpoint", 4000):
        assert first_damage(basic)[:2] == ("checkpoint", 4000)


def test_a_config_file_with_a_sound_copy_is_mended_and_without_one_damage(
    basic: Path, tmp_path: Path
) -> None:
    root = copy(basic, tmp_path)
    topics = root / "config" / "topics.json"
    topics.write_text('{"topicConfigTable":{')

    assert (topics.with_name("topics.json.bak")).exists()
    assert verify(root).status == 3
    topics.with_name("topics.json.bak").unlink()
    assert [finding.file for finding in damages(root)] == ["config/topics.json"]


def test_a_config_member_of_the_wrong_kind_is_named(basic: Path, tmp_path: Path) -> None:
    root = copy(basic, tmp_path)
    (root / "config" / "consumerOffset.json").write_text('{"offsetTable":{"t@g":{0:"far"}}}')

    assert [finding.text for finding in damages(root)] == [
        "offsetTable.t@g.0 is 'far', expected a whole number from -1 to 9223372036854775807"]


def test_an_offset_ahead_of_its_queue_is_a_note(basic: Path, tmp_path: Path) -> None:
    root = copy(basic, tmp_path)
    (root / "config" / "consumerOffset.json").write_text(
        '{"offsetTable":{"golden_text@g":{0:99}}}')

    report = verify(root)

    assert report.status == 0
    assert [(finding.severity, finding.text) for finding in report.findings] == [
        ("note", "golden_text@g queue 0: 99, the queue ends at 24")]


def test_records_of_a_removed_topic_are_a_note(basic: Path, tmp_path: Path) -> None:
    root = copy(basic, tmp_path)
    topics = root / "config" / "topics.json"
    topics.write_text(topics.read_text().replace("golden_text", "golden_gone"))
    shutil.rmtree(root / "consumequeue" / "golden_text")

    report = verify(root)

    assert report.status == 0
    assert len(report.findings) == 1
    assert "24 records of a removed topic" in report.findings[0].text
