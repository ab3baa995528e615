"""Extension units: written as a stock broker writes them, found again, never believed when torn."""
import errno
import os
import struct

import pytest

from mqcore.store.probes import append_probe
from mqcore.store.queue.extension_files import (
    ADDRESS_BASE,
    Unit,
    check_sizes,
    is_address,
    read_unit,
    trim,
)
from mqcore.store.record import tags_code
from mqcore.store.recovery.errors import DamagedStoreError
from mqcore.store.verify.store import verify
from tests.store import golden
from tests.store.harness import ENTRY, Run

FILE_BYTES = 2048
UNIT_BYTES = 20                 # without a bit map
UNITS_A_FILE = (FILE_BYTES - 4) // UNIT_BYTES
TOPIC = "topic"


def extended(run, **changes):
    return {"extension_folder": os.fsencode(run.extension_folder),
            "extension_file_bytes": FILE_BYTES} | changes


class Broker:
    """A writer that stores messages, and dispatchers that come and go."""

    def __init__(self, tmp_path, **sizes):
        self.run = Run(tmp_path / "store", **sizes)
        self.run.recover(clean=True)
        self.loop = self.run.writer("async", 0)
        self.probe = self.run.probe()

    def store(self, count, topic=TOPIC, queue=0, tag=b"a"):
        for number in range(count):
            while not self.probe.send(topic, queue, [b"body"], opaque=number,
                                      properties=b"TAGS\x01" + tag):
                self.loop.run(1000)
        self.loop.run(1000)
        return self.run.segment.log_state()["published"]

    def dispatch(self, **changes):
        self.run.dispatch_all(self.run.segment.log_state()["published"],
                              **extended(self.run, **changes))

    def entries(self, first, end, topic=TOPIC, queue=0):
        return self.run.entries(topic, queue, first, end)

    def unit(self, address, topic=TOPIC, queue=0):
        return read_unit(self.run.extension_folder, FILE_BYTES, topic, queue, address)

    def files(self, topic=TOPIC, queue=0):
        folder = self.run.extension_folder / topic / str(queue)
        return {int(path.name): path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.fixture
def broker(tmp_path):
    return Broker(tmp_path)


def records_of(run):
    return list(run.records(run.segment.log_state()["published"]))


def test_every_entry_has_the_address_of_a_unit_with_tag_code_and_store_time(broker):
    broker.store(3, tag=b"blue")
    broker.dispatch()

    entries = broker.entries(0, 3)
    assert [entry[2] - ADDRESS_BASE for entry in entries] == [0, 20, 40]
    assert all(is_address(entry[2]) for entry in entries)
    records = {record["physicalOffset"]: record for record in records_of(broker.run)}
    assert [broker.unit(entry[2]) for entry in entries] == [
        Unit(tags_code(b"blue"), records[entry[0]]["storeTimestamp"], b"") for entry in entries]


def test_a_unit_that_fits_no_more_ends_the_file_and_begins_the_next(broker):
    broker.store(2 * UNITS_A_FILE + 1)
    broker.dispatch()

    files = broker.files()
    assert list(files) == [0, FILE_BYTES, 2 * FILE_BYTES]
    end = UNITS_A_FILE * UNIT_BYTES
    for start in (0, FILE_BYTES):
        assert len(files[start]) == FILE_BYTES
        assert struct.unpack_from(">h", files[start], end) == (-1,)
        assert set(files[start][end + 2:]) == {0}
    entries = broker.entries(0, 2 * UNITS_A_FILE + 1)
    assert [entries[at][2] - ADDRESS_BASE for at in (UNITS_A_FILE, 2 * UNITS_A_FILE)] == [
        FILE_BYTES, 2 * FILE_BYTES]
    assert all(broker.unit(entry[2]) is not None for entry in entries)


def test_batches_of_any_size_give_the_same_files(tmp_path):
    whole, parts = Broker(tmp_path / "whole"), Broker(tmp_path / "parts")
    for _ in range(6):
        parts.store(50)
        parts.dispatch()                        # a dispatcher of its own each time
    whole.store(300)
    whole.dispatch()

    assert [entry[2] for entry in parts.entries(0, 300)] == [
        entry[2] for entry in whole.entries(0, 300)]
    heads = [[struct.unpack_from(">hq", data, at) for data in files.values()
              for at in range(0, UNITS_A_FILE * UNIT_BYTES, UNIT_BYTES)]
             for files in (parts.files(), whole.files())]
    assert heads[0] == heads[1]


def test_dispatching_again_after_a_crash_writes_the_same_units(broker):
    end = broker.store(150)
    broker.dispatch()
    files, entries = broker.files(), broker.entries(0, 150)

    broker.run.segment.set_dispatched(0, 0)
    broker.run.dispatch_all(end, **extended(broker.run))
    assert (broker.files(), broker.entries(0, 150)) == (files, entries)


def test_what_was_written_for_entries_that_did_not_survive_is_written_over(broker):
    broker.store(UNITS_A_FILE + 5)
    broker.dispatch()
    kept = broker.entries(0, 10)
    queue = broker.run.queue_folder / TOPIC / "0" / f"{0:020d}"
    with queue.open("r+b") as file:                    # the newer pages never reached the disk
        file.truncate(10 * ENTRY.size)
        file.truncate(broker.run.file_entries * ENTRY.size)
    (broker.run.queue_folder / TOPIC / "0" / f"{100 * ENTRY.size:020d}").unlink()

    again = Run(broker.run.root)
    found = again.recover(clean=False)
    again.writer("async", found.end)
    again.dispatch_all(found.end, **extended(again))
    entries = again.entries(TOPIC, 0, 0, UNITS_A_FILE + 5)
    assert entries[:10] == kept
    assert [entry[2] - ADDRESS_BASE for entry in entries[:UNITS_A_FILE]] == list(
        range(0, UNITS_A_FILE * UNIT_BYTES, UNIT_BYTES))
    assert all(broker.unit(entry[2]) is not None for entry in entries)


def test_units_behind_the_entries_go_before_new_ones_are_written(broker):               # X3
    broker.store(UNITS_A_FILE + 5)
    broker.dispatch()
    queue = broker.run.queue_folder / TOPIC / "0"
    with (queue / f"{0:020d}").open("r+b") as file:
        file.truncate(10 * ENTRY.size)
        file.truncate(broker.run.file_entries * ENTRY.size)
    (queue / f"{100 * ENTRY.size:020d}").unlink()

    again = Run(broker.run.root)
    again.writer("async", again.recover(clean=False).end)
    dispatcher = again.dispatcher(**extended(again))
    append_probe.watch(again.segment)
    try:
        append_probe.fail("write", errno.ENOSPC, times=1000)
        assert dispatcher.run(1000) != 0
    finally:
        append_probe.unwatch()
    dispatcher.close()
    assert list(broker.files()) == [0]
    assert not any(broker.files()[0][10 * UNIT_BYTES:])


def test_a_unit_that_the_disk_lost_is_left_and_its_place_is_not_used_again(broker):
    broker.store(10)
    broker.dispatch()
    lost = broker.entries(9, 10)[0]
    path = broker.run.extension_folder / TOPIC / "0" / f"{0:020d}"
    with path.open("r+b") as file:
        file.seek(9 * UNIT_BYTES)
        file.write(bytes(UNIT_BYTES))
    broker.store(1)
    broker.dispatch()

    assert broker.unit(lost[2]) is None
    [entry] = broker.entries(10, 11)
    assert entry[2] - ADDRESS_BASE == FILE_BYTES
    assert broker.unit(entry[2]) is not None


def test_entries_from_before_the_extension_keep_their_tag_codes(broker):
    end = broker.store(5)
    broker.run.dispatch_all(end)                # without
    broker.store(5)
    broker.dispatch()
    end = broker.store(5)
    broker.run.dispatch_all(end)                # and without again
    broker.store(5)
    broker.dispatch()

    third = [entry[2] for entry in broker.entries(0, 20)]
    plain = [tags_code(b"a")] * 5
    assert third[:5] == third[10:15] == plain
    assert [address - ADDRESS_BASE for address in third[5:10] + third[15:]] == list(
        range(0, 200, UNIT_BYTES))


def test_queues_have_files_of_their_own(broker):
    broker.store(2, queue=0, tag=b"a")
    broker.store(2, queue=1, tag=b"b")
    broker.store(1, topic="other", tag=b"c")
    broker.dispatch()

    for topic, queue, tag in ((TOPIC, 0, b"a"), (TOPIC, 1, b"b"), ("other", 0, b"c")):
        [entry] = broker.entries(0, 1, topic, queue)
        assert entry[2] == ADDRESS_BASE
        assert broker.unit(entry[2], topic, queue).tag_code == tags_code(tag)


def test_an_address_behind_the_last_unit_gives_none(broker):
    broker.store(1)
    broker.dispatch()
    for address in (ADDRESS_BASE + 20, ADDRESS_BASE + FILE_BYTES, -2147483649):
        assert broker.unit(address) is None


def test_a_crashed_start_with_few_open_files_goes_on_in_every_queue(broker):
    for queue in range(20):
        broker.store(3, queue=queue)
    broker.dispatch(open_files_max=4)
    for queue in range(20):
        broker.store(3, queue=queue)
    broker.dispatch(open_files_max=4)
    for queue in range(20):
        assert [entry[2] - ADDRESS_BASE for entry in broker.entries(0, 6, queue=queue)] == list(
            range(0, 120, UNIT_BYTES))


# -- stock stores ----------------------------------------------------------------------------------


def golden_run(tmp_path):
    manifest = golden.manifest("filter_ext")
    settings = manifest["settings"]
    root = golden.unpack("filter_ext", tmp_path)
    run = Run(root, settings["mappedFileSizeCommitLog"],
              settings["mappedFileSizeConsumeQueue"] // ENTRY.size,
              settings["maxHashSlotNum"], settings["maxIndexNum"])
    assert settings["mappedFileSizeConsumeQueueExt"] == FILE_BYTES
    return manifest, run


def test_the_units_of_a_stock_store_are_read(tmp_path):
    manifest, run = golden_run(tmp_path)
    seen = 0
    for queue in manifest["consumeQueues"]:
        for unit in queue["ext"]:
            assert read_unit(run.extension_folder, FILE_BYTES, queue["topic"], queue["queueId"],
                             unit["address"]) == Unit(
                unit["tagsCode"], unit["msgStoreTime"], bytes.fromhex(unit["filterBitMapHex"]))
            seen += 1
    assert seen == 160


def test_a_stock_store_is_continued_behind_its_last_unit(tmp_path):
    manifest, run = golden_run(tmp_path)
    found = run.recover(clean=True, checkpoint_ms=0)
    before = {path: path.read_bytes() for path in run.extension_folder.glob("*/*/*")}
    loop = run.writer("async", found.end)
    probe = run.probe()
    for queue in manifest["consumeQueues"]:
        assert probe.send(queue["topic"], queue["queueId"], [b"next"], opaque=1,
                          properties=b"TAGS\x01new")
    loop.run(1000)
    run.dispatch_all(run.segment.log_state()["published"], **extended(run))

    for queue in manifest["consumeQueues"]:
        last = queue["ext"][-1]
        [entry] = run.entries(queue["topic"], queue["queueId"], queue["max"], queue["max"] + 1)
        assert entry[2] == last["address"] + last["size"]
        assert read_unit(run.extension_folder, FILE_BYTES, queue["topic"], queue["queueId"],
                         entry[2]).tag_code == tags_code(b"new")
    for path, data in before.items():           # not a byte of what was there has changed
        after = path.read_bytes()
        used = len(data.rstrip(b"\0"))
        assert after[:used] == data[:used]


def test_a_store_with_units_is_verified_as_sound(broker):
    broker.store(UNITS_A_FILE + 1, tag=b"x")
    broker.dispatch()
    assert [finding for finding in verify(broker.run.root).findings
            if finding.file.startswith("consumequeue")] == []


# -- trimming --------------------------------------------------------------------------------------


def test_files_that_lie_before_the_first_entrys_unit_are_deleted(broker):
    count = 3 * UNITS_A_FILE
    broker.store(count)
    broker.dispatch()
    folders = (broker.run.extension_folder / TOPIC / "0", FILE_BYTES,
               broker.run.queue_folder / TOPIC / "0", broker.run.file_entries)

    assert trim(*folders, 0) == 0
    assert trim(*folders, UNITS_A_FILE - 1) == 0
    assert trim(*folders, UNITS_A_FILE) == 1
    assert list(broker.files()) == [FILE_BYTES, 2 * FILE_BYTES]
    assert trim(*folders, count - 1) == 1
    assert list(broker.files()) == [2 * FILE_BYTES]
    assert broker.unit(broker.entries(count - 1, count)[0][2]) is not None
    broker.store(1)
    broker.dispatch()
    assert broker.unit(broker.entries(count, count + 1)[0][2]) is not None


def test_a_file_of_another_size_than_set_is_named(broker):
    broker.store(1)
    broker.dispatch()
    check_sizes(broker.run.extension_folder, FILE_BYTES)
    check_sizes(broker.run.root / "none", FILE_BYTES)
    with pytest.raises(DamagedStoreError, match="queue_extension_file_bytes"):
        check_sizes(broker.run.extension_folder, 4096)
