"""A store opens where the stock broker would open it, and what is missing is built again."""
import hashlib
import struct

import pytest

from mqcore.store.recovery.start import DamagedStoreError
from tests.store import golden
from tests.store.harness import ENTRY, Run

DELAY_TOPIC = "SCHEDULE_TOPIC_XXXX"
STORES = ["basic", "transactions", "delay_retry_dlq", "ipv6", "lmq", "crashed", "crashed_torn",
          "crashed_lost_cq", "crashed_lost_all", "basic_lost_cq"]


def open_run(name, tmp_path):
    manifest = golden.manifest(name)
    settings = manifest["settings"]
    run = Run(golden.unpack(name, tmp_path), settings["mappedFileSizeCommitLog"],
              settings["mappedFileSizeConsumeQueue"] // ENTRY.size,
              settings["maxHashSlotNum"], settings["maxIndexNum"])
    return manifest, run


def checkpoint_ms(manifest):
    times = manifest["asFound"]["checkpoint"]
    return 0 if times is None else min(times["physicMsgTimestamp"], times["logicsMsgTimestamp"])


def recover(manifest, run):
    return run.recover(clean=not manifest["asFound"]["abortFile"],
                       checkpoint_ms=checkpoint_ms(manifest))


def expected_queues(name):
    """What a whole rebuild gives: the manifest, except where stock itself loses entries."""
    return golden.manifest("crashed_lost_all" if name == "crashed_lost_cq" else name)[
        "consumeQueues"]


@pytest.mark.parametrize("name", STORES)
def test_the_log_ends_where_the_stock_broker_says(name, tmp_path):
    manifest, run = open_run(name, tmp_path)
    found = recover(manifest, run)

    after = manifest["afterRecovery"]
    assert (found.first, found.end) == (after["minPhyOffset"], after["maxPhyOffset"])
    assert found.dispatch_from <= found.end
    assert bool(found.torn) == (name == "crashed_torn")
    segments = sorted(int(path.name) for path in run.log_folder.iterdir())
    assert segments[-1] < found.end <= segments[-1] + run.segment_size


@pytest.mark.parametrize("name", ["basic", "transactions", "delay_retry_dlq", "ipv6", "lmq"])
def test_after_a_clean_stop_every_queue_is_there_at_once(name, tmp_path):
    manifest, run = open_run(name, tmp_path)
    found = recover(manifest, run)

    assert found.dispatch_from == found.end
    assert found.records_checked == 0
    assert run.queue_ranges() == {(queue["topic"], queue["queueId"]): (queue["min"], queue["max"])
                                  for queue in manifest["consumeQueues"]}


@pytest.mark.parametrize("name", STORES)
def test_after_dispatch_every_queue_holds_the_entries_of_the_manifest(name, tmp_path):
    manifest, run = open_run(name, tmp_path)
    found = recover(manifest, run)
    run.segment.set_dispatched(found.dispatch_from, found.last_store_time_ms)
    run.writer("async", found.end)
    run.dispatch_all(found.end)

    queues = expected_queues(name)
    assert run.queue_ranges() == {(queue["topic"], queue["queueId"]): (queue["min"], queue["max"])
                                  for queue in queues}
    for queue in queues:
        entries = run.entries(queue["topic"], queue["queueId"], queue["min"], queue["max"])
        assert entries == queue["entries"], (queue["topic"], queue["queueId"])
        packed = b"".join(ENTRY.pack(*entry) for entry in entries)
        assert hashlib.sha256(packed).hexdigest() == queue["entriesSha256"]


@pytest.mark.parametrize("name", ["basic", "transactions", "delay_retry_dlq", "ipv6"])
def test_queues_and_index_rebuilt_from_nothing_equal_the_stock_brokers(name, tmp_path):
    manifest, run = open_run(name, tmp_path)
    for folder in (run.queue_folder, run.index_folder):
        for path in sorted(folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
    found = recover(manifest, run)
    assert found.dispatch_from == 0
    run.writer("async", found.end)
    run.dispatch_all(found.end)

    for queue in manifest["consumeQueues"]:
        entries = run.entries(queue["topic"], queue["queueId"], queue["min"], queue["max"])
        if queue["topic"] == DELAY_TOPIC:      # their third field is a time: see the test below
            assert [e[:2] for e in entries] == [e[:2] for e in queue["entries"]]
        else:
            assert entries == queue["entries"], (queue["topic"], queue["queueId"])
    headers = [struct.unpack(">qqqqii", path.read_bytes()[:40])
               for path in sorted(run.index_folder.iterdir())]
    keys = ("beginTimestamp", "endTimestamp", "beginPhyOffset", "endPhyOffset", "hashSlotCount",
            "indexCount")
    assert headers == [tuple(file[key] for key in keys) for file in manifest["indexFiles"]]


def test_a_delayed_messages_entry_holds_its_delivery_time(tmp_path):
    manifest, run = open_run("delay_retry_dlq", tmp_path)
    for path in sorted(run.queue_folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    found = recover(manifest, run)
    run.writer("async", found.end)
    run.dispatch_all(found.end)

    for queue in manifest["consumeQueues"]:
        if queue["topic"] == DELAY_TOPIC:
            assert run.entries(DELAY_TOPIC, queue["queueId"], queue["min"],
                               queue["max"]) == queue["entries"]


@pytest.mark.parametrize("name", ["basic", "crashed", "crashed_torn", "crashed_lost_all"])
def test_every_queue_goes_on_numbering_where_the_log_stopped(name, tmp_path):
    manifest, run = open_run(name, tmp_path)
    found = recover(manifest, run)
    loop = run.writer("async", found.end)
    probe = run.probe()
    queues = expected_queues(name)
    for number, queue in enumerate(queues):
        assert probe.send(queue["topic"], queue["queueId"], [b"next"], opaque=number)
    loop.run(1000)

    assert [(status, offset) for _, status, offset, _, _ in probe.take()] == [
        (0, queue["max"]) for queue in queues]


def test_a_torn_tail_is_wiped_so_that_nothing_of_it_comes_back(tmp_path):
    manifest, run = open_run("crashed_torn", tmp_path)
    found = recover(manifest, run)
    last = max(run.log_folder.iterdir()).read_bytes()
    assert set(last[found.end % run.segment_size:]) == {0}


def test_recovering_twice_gives_the_same(tmp_path):
    manifest, run = open_run("crashed_torn", tmp_path)
    first = recover(manifest, run)
    again = Run(run.root, run.segment_size, run.file_entries, run.index_slots, run.index_entries)
    second = recover(manifest, again)

    assert (second.first, second.end, second.torn) == (first.first, first.end, "")
    assert again.queue_ranges() == run.queue_ranges()


# -- damage ----------------------------------------------------------------------------------------


def overwrite(run, position, data):
    path = run.log_folder / f"{position // run.segment_size * run.segment_size:020d}"
    with open(path, "r+b") as file:
        file.seek(position % run.segment_size)
        file.write(data)


def whole_log(run):
    return {path.name: path.read_bytes() for path in run.log_folder.iterdir()}


def damage_before_checkpoint(manifest, run, data):
    """Damage a record that recovery reads, and that the checkpoint says was on disk."""
    known = checkpoint_ms(manifest)
    message = [m for m in manifest["messages"] if m["storeTimestamp"] < known - 1000][-1]
    overwrite(run, message["physicalOffset"], data)
    return message["physicalOffset"]


@pytest.mark.parametrize("data", [b"\xee" * 40, bytes(40)], ids=["garbage", "zeros"])
def test_damage_before_the_checkpoint_is_reported_and_nothing_is_cut(data, tmp_path):
    manifest, run = open_run("crashed", tmp_path)
    position = damage_before_checkpoint(manifest, run, data)
    before = whole_log(run)
    with pytest.raises(DamagedStoreError, match=f"log position {position}"):
        run.recover(clean=False, checkpoint_ms=checkpoint_ms(manifest),
                    flushed_ms=checkpoint_ms(manifest))
    assert whole_log(run) == before


@pytest.mark.parametrize("data", [b"\xee" * 16, bytes(16)], ids=["garbage", "zeros"])
def test_damage_in_the_last_record_of_a_segment_does_not_cost_the_segments_behind(data, tmp_path):
    manifest, run = open_run("crashed", tmp_path)
    base = 2 * run.segment_size
    position = max(m["physicalOffset"] for m in manifest["messages"]
                   if m["physicalOffset"] < base + run.segment_size)
    overwrite(run, position, data)
    before = whole_log(run)
    with pytest.raises(DamagedStoreError, match=f"log position {position}"):
        run.recover(clean=False, flushed_ms=manifest["messages"][-1]["storeTimestamp"])
    assert whole_log(run) == before


def test_damage_further_back_than_anything_unsynced_is_damage_without_any_checkpoint(tmp_path):
    manifest, run = open_run("crashed_lost_all", tmp_path)
    position = manifest["messages"][100]["physicalOffset"]
    overwrite(run, position, b"\xee" * 40)
    before = whole_log(run)
    with pytest.raises(DamagedStoreError, match=f"log position {position}"):
        run.recover(clean=False, unsynced_bytes_max=16)
    assert whole_log(run) == before


@pytest.mark.parametrize("data", [b"\xee" * 40, bytes(40)], ids=["garbage", "zeros"])
def test_a_hole_in_what_was_never_synced_is_the_end_and_said_so(data, tmp_path):
    """What a power cut leaves: pages behind a missing one may have reached the disk."""
    manifest, run = open_run("crashed", tmp_path)
    position = manifest["messages"][-20]["physicalOffset"]
    assert manifest["messages"][-20]["storeTimestamp"] > checkpoint_ms(manifest)
    overwrite(run, position, data)
    found = recover(manifest, run)

    assert found.end == position
    assert "whole records behind it" in found.torn
    last = max(run.log_folder.iterdir()).read_bytes()
    assert set(last[position % run.segment_size:]) == {0}


def test_damage_after_a_clean_stop_is_never_cut(tmp_path):
    manifest, run = open_run("basic_lost_cq", tmp_path)
    overwrite(run, manifest["messages"][-3]["physicalOffset"], b"\xee" * 40)
    before = whole_log(run)
    with pytest.raises(DamagedStoreError):
        recover(manifest, run)
    assert whole_log(run) == before


def test_a_hole_in_a_queue_behind_the_checkpoint_is_filled_again(tmp_path):
    """Pages reach the disk in any order: what no checkpoint holds may be missing."""
    manifest, run = open_run("crashed", tmp_path)
    queue = next(q for q in manifest["consumeQueues"] if q["topic"] == "golden_crash")
    number = queue["max"] - 10
    first = number // run.file_entries * run.file_entries
    path = (run.queue_folder / queue["topic"] / str(queue["queueId"])
            / f"{first * ENTRY.size:020d}")
    with open(path, "r+b") as file:
        file.seek((number - first) * ENTRY.size)
        file.write(bytes(3 * ENTRY.size))
    found = recover(manifest, run)
    run.writer("async", found.end)
    run.dispatch_all(found.end)

    assert run.entries(queue["topic"], queue["queueId"], queue["min"],
                       queue["max"]) == queue["entries"]


def test_a_foreign_file_among_the_segments_is_named(tmp_path):
    manifest, run = open_run("basic", tmp_path)
    (run.log_folder / "notes.txt").write_bytes(b"x")
    with pytest.raises(DamagedStoreError, match=r"notes\.txt"):
        recover(manifest, run)


def test_a_missing_segment_in_between_is_named(tmp_path):
    manifest, run = open_run("basic", tmp_path)
    (run.log_folder / f"{run.segment_size:020d}").unlink()
    with pytest.raises(DamagedStoreError, match="no segment between"):
        recover(manifest, run)


def test_a_segment_of_another_size_is_named_with_the_setting(tmp_path):
    _manifest, run = open_run("basic", tmp_path)
    other = Run(run.root, 2 * run.segment_size, run.file_entries)
    with pytest.raises(DamagedStoreError, match="segment_size_bytes"):
        other.recover(clean=True)


def test_more_queues_than_the_table_holds_are_refused_with_the_setting(tmp_path):
    queues = tmp_path / "store" / "consumequeue" / "topic"
    for number in range(65):
        (queues / str(number)).mkdir(parents=True)
    (tmp_path / "store" / "commitlog").mkdir()
    (tmp_path / "store" / "commitlog" / f"{0:020d}").write_bytes(bytes(65536))
    with pytest.raises(DamagedStoreError, match="queue_count_max"):
        Run(tmp_path / "store").recover(clean=True)


def test_an_empty_folder_is_an_empty_log(tmp_path):
    found = Run(tmp_path / "store").recover(clean=True)
    assert (found.first, found.end, found.dispatch_from, found.queues) == (0, 0, 0, 0)
