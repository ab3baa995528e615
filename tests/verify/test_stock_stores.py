"""Stores that a stock broker wrote get the verdict that their manifests imply."""
from __future__ import annotations

from pathlib import Path

import pytest

from mqcore.store.verify.store import verify
from tests.store.golden import manifest, unpack

SOUND = ["basic", "delay_retry_dlq", "filter_ext", "ipv6", "lmq", "transactions"]
MENDED = ["crashed", "crashed_torn", "crashed_lost_cq", "crashed_lost_all", "basic_lost_cq"]


@pytest.mark.parametrize("name", SOUND)
def test_a_store_after_a_clean_stop_is_sound(name: str, tmp_path: Path) -> None:
    report = verify(unpack(name, tmp_path))

    assert report.findings == []
    assert report.status == 0


@pytest.mark.parametrize("name", MENDED)
def test_a_store_that_the_next_start_mends_says_so_and_what(name: str, tmp_path: Path) -> None:
    report = verify(unpack(name, tmp_path))

    assert report.status == 3
    found = {finding.file.split("/")[0] for finding in report.findings}
    assert ("abort" in found) == manifest(name)["asFound"]["abortFile"]
    assert ("consumequeue" in found) == ("lost" in name or "torn" in name)
    assert ("checkpoint" in found) == (manifest(name)["asFound"]["checkpoint"] is None)


@pytest.mark.parametrize("name", SOUND + MENDED)
def test_records_end_blanks_and_keys_are_those_that_stock_read_back(
    name: str, tmp_path: Path
) -> None:
    expected = manifest(name)

    figures = verify(unpack(name, tmp_path)).figures

    assert figures["records"] == expected["afterRecovery"]["messageCount"]
    assert figures["end"] == expected["afterRecovery"]["maxPhyOffset"]
    assert figures["blanks"] == len(expected["blankRecords"])
    assert figures["bytes"] == sum(message["size"] for message in expected["messages"])


@pytest.mark.parametrize("name", SOUND)
def test_queues_and_index_files_are_those_that_stock_read_back(name: str, tmp_path: Path) -> None:
    expected = manifest(name)

    report = verify(unpack(name, tmp_path))

    ranges = {(queue["topic"], queue["queueId"]): (queue["first_live"], queue["end"])
              for queue in report.queues if queue["on_disk"]}
    assert ranges == {(queue["topic"], queue["queueId"]): (queue["min"], queue["max"])
                      for queue in expected["consumeQueues"]}
    assert report.figures["keys_matched"] == sum(
        file["indexCount"] - 1 for file in expected["indexFiles"])
    assert report.figures["index_slots"] == expected["settings"]["maxHashSlotNum"]
    assert report.figures["segment_bytes"] == expected["settings"]["mappedFileSizeCommitLog"]


def test_a_torn_record_is_named_with_its_file_and_position(tmp_path: Path) -> None:
    report = verify(unpack("crashed_torn", tmp_path))

    torn = [finding for finding in report.findings if finding.file.startswith("commitlog")]
    assert [(finding.file, finding.position) for finding in torn] == [
        ("commitlog/00000000000000262144", 282_812 - 262_144)]
    assert "a torn end" in torn[0].text


def test_another_number_of_index_slots_than_the_files_have_does_not_fit(tmp_path: Path) -> None:
    root = unpack("basic", tmp_path)

    assert verify(root, index_slots=500).status == 0
    assert verify(root, index_slots=495).status == 1
