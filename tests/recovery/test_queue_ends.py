"""Whatever becomes of consume queues at rest, the next start has them whole again."""
from __future__ import annotations

import shutil
import struct
from collections.abc import Callable

import pytest

from mqcore.store.recovery import queue_ends
from mqcore.store.recovery.start import DamagedStoreError, Recovery
from tests.recovery.conftest import FILE_ENTRIES, MESSAGES, QUEUES, SIZES, TOPIC, Store, send
from tests.store.harness import ENTRY, Run

FILE_BYTES = FILE_ENTRIES * ENTRY.size


def drop_queue(store: Store) -> None:
    shutil.rmtree(store.queue(1))


def drop_file(number: int) -> Callable[[Store], None]:
    return lambda store: store.files(1)[number].unlink()


def zeros_in_a_full_file(store: Store) -> None:
    store.changed(store.files(1)[1], 5 * ENTRY.size, bytes(3 * ENTRY.size))


def zeros_in_the_last_file(store: Store) -> None:
    store.changed(store.files(1)[-1], 5 * ENTRY.size, bytes(3 * ENTRY.size))


def wrong_tag_code(store: Store) -> None:
    store.changed(store.files(1)[2], 7 * ENTRY.size + 12, struct.pack(">q", 99))


def wrong_size(store: Store) -> None:
    store.changed(store.files(1)[2], 7 * ENTRY.size + 8, struct.pack(">i", 99))


def two_entries_exchanged(store: Store) -> None:
    path = store.files(1)[2]
    first, second = path.read_bytes()[:ENTRY.size], path.read_bytes()[ENTRY.size:2 * ENTRY.size]
    store.changed(path, 0, second + first)


def short_file(store: Store) -> None:
    with store.files(1)[1].open("r+b") as file:
        file.truncate(FILE_BYTES // 2)


def empty_files(store: Store) -> None:
    for path in store.files(1):
        path.write_bytes(bytes(FILE_BYTES))


def garbage_behind_the_end(store: Store) -> None:
    store.changed(store.files(1)[-1], FILE_BYTES - ENTRY.size, b"\x01" * ENTRY.size)


CHANGES = [drop_queue, drop_file(0), drop_file(2), drop_file(-1), zeros_in_a_full_file,
           zeros_in_the_last_file, wrong_tag_code, wrong_size, two_entries_exchanged, short_file,
           empty_files]
NAMES = ["no-queue", "no-first-file", "no-middle-file", "no-last-file", "zeros-in-a-full-file",
         "zeros-in-the-last-file", "wrong-tag-code", "wrong-size", "exchanged", "short-file",
         "empty-files"]


@pytest.mark.parametrize("change", CHANGES, ids=NAMES)
@pytest.mark.parametrize("ended", ["clean", "clean-without-ends", "killed", "crashed-stock"])
def test_a_changed_queue_is_whole_after_the_next_start(
    ended: str, change: Callable[[Store], None], store: Store,
) -> None:
    before = store.content()
    change(store)
    assert store.content() != before

    ends = queue_ends.read(store.ends) if ended in ("clean", "killed") else None
    run, found = store.start(clean=ended.startswith("clean"), ends=ends)

    assert found.end == store.end
    assert store.content() == before
    assert run.queue_ranges() == {(TOPIC, number): (0, MESSAGES // QUEUES)
                                  for number in range(QUEUES)}


@pytest.mark.parametrize("change", CHANGES, ids=NAMES)
def test_a_changed_queue_goes_on_with_the_next_number(
    change: Callable[[Store], None], store: Store,
) -> None:
    change(store)
    run, found = store.start(ends=queue_ends.read(store.ends))
    loop, probe = run.writer("async", found.end), run.probe()
    for number in range(QUEUES):
        assert probe.send(TOPIC, number, [b"next"], opaque=number)
    loop.run(1000)

    assert [offset for _, _, offset, _, _ in probe.take()] == [MESSAGES // QUEUES] * QUEUES


@pytest.mark.parametrize("left", [(), (7,), (6, 7), (5, 6, 7), (1, 2, 3, 4, 5, 6, 7), (0,), (0, 1),
                                  (0, 7), (0, 1, 2, 3, 4, 5), (0, 1, 2, 3, 4, 5, 7)], ids=str)
@pytest.mark.parametrize("same_boot", [True, False])
def test_files_that_went_below_a_running_broker_are_made_again_after_a_kill(
    left: tuple[int, ...], same_boot: bool, store: Store,
) -> None:
    """The word about the queues' ends is of before: 217 entries, in 6 files."""
    ends = queue_ends.read(store.ends)
    run, found = store.start(ends=ends)
    end = send(run, found.end, 300)
    run.dispatch_all(end, index_enabled=False)
    whole, files = store.content(), store.files(1)
    assert len(files) == 8
    for number, path in enumerate(files):
        if number not in left:
            path.unlink()

    run, found = store.start(clean=False, ends=ends, same_boot=same_boot)
    assert found.end == end
    assert store.content() == whole
    assert run.queue_ranges() == {(TOPIC, number): (0, 317) for number in range(QUEUES)}


def test_bytes_behind_the_last_entry_do_not_become_entries(store: Store) -> None:
    before = store.content()
    garbage_behind_the_end(store)

    run, _ = store.start(ends=queue_ends.read(store.ends))
    send_on = send(run, store.end, QUEUES)
    run.dispatch_all(send_on, index_enabled=False)

    assert run.queue_ranges()[TOPIC, 1] == (0, MESSAGES // QUEUES + 1)
    for name, content in store.content().items():
        assert content.startswith(before[name].rstrip(b"\0"))


def test_a_store_that_is_as_it_was_left_needs_no_look_at_its_records(store: Store) -> None:
    _, found = store.start(ends=queue_ends.read(store.ends))

    assert found.as_left
    assert (found.records_checked, found.dispatch_from) == (0, store.end)


def test_after_a_copy_that_kept_no_times_nothing_is_rebuilt(store: Store) -> None:
    for path in store.root.rglob("*"):
        path.touch()
    ends = queue_ends.read(store.ends)
    assert ends is not None
    assert (ends.unchanged_ns == 0) == (
        store.ends.stat().st_mtime_ns - _written_ns(store) > queue_ends.COPIED_NS)

    _, found = store.start(ends=ends)

    assert found.dispatch_from == store.end


def _written_ns(store: Store) -> int:
    import msgpack

    body = msgpack.unpackb(store.ends.read_bytes())[3]
    return int(msgpack.unpackb(body)["writtenNs"])


def test_ends_of_an_earlier_run_than_the_last_are_not_believed(store: Store) -> None:
    ends = queue_ends.read(store.ends)
    run = Run(store.root, **SIZES)
    run.recover(clean=True, ends=ends)
    end = send(run, store.end, 30)
    run.dispatch_all(end, index_enabled=False)
    whole = store.content()
    drop_file(-1)(store)

    run, found = store.start(ends=ends)

    assert (found.as_left, found.end) == (False, end)
    assert store.content() == whole


def test_a_log_that_lost_its_end_since_a_clean_stop_is_damage(store: Store) -> None:
    segments = sorted((store.root / "commitlog").iterdir())
    segments[-1].unlink()

    said = rf"it ended at {store.end} .*mqcore store repair --dry"
    with pytest.raises(DamagedStoreError, match=said):
        store.start(ends=queue_ends.read(store.ends))


def test_a_power_cut_that_took_the_logs_end_costs_no_second_dispatch_of_the_rest(
    store: Store,
) -> None:
    """The queues' ends were on disk, the records that they point to were not."""
    position = store.end * 3 // 4 // 16384 * 16384
    for path in (store.root / "commitlog").iterdir():
        if int(path.name) >= position:
            path.unlink()
    run, found = store.start(clean=False, ends=queue_ends.read(store.ends),
                             checkpoint_ms=2**62)

    assert found.end <= position
    assert position - 2 * 16384 <= found.dispatch_from
    assert {least for least, _ in run.queue_ranges().values()} == {0}


@pytest.mark.parametrize("spoil", [
    lambda raw: b"", lambda raw: raw[:-1], lambda raw: raw[:40] + b"\xff" + raw[41:],
    lambda raw: b"\xc1" * 100], ids=["empty", "short", "flipped", "garbage"])
def test_a_spoiled_file_of_ends_is_as_none(spoil: Callable[[bytes], bytes], store: Store) -> None:
    store.ends.write_bytes(spoil(store.ends.read_bytes()))
    assert queue_ends.read(store.ends) is None


def test_every_flipped_byte_of_the_ends_is_noticed(store: Store) -> None:
    whole = store.ends.read_bytes()
    for at in range(len(whole)):
        store.ends.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1:])
        assert queue_ends.read(store.ends) is None, at


def long_log(store: Store, hints: queue_ends.Hints | None = None) -> int:
    """A start after a stock broker's clean stop, on a log too long to be compared as a whole."""
    run = Run(store.root, **SIZES)
    found = Recovery(run.segment, str(run.log_folder), str(run.queue_folder), FILE_ENTRIES,
                     stretch_bytes=16384).open_store(clean=True, checkpoint_ms=0,
                                                     hints=lambda: hints or queue_ends.Hints())
    run.segment.set_dispatched(found.dispatch_from, found.last_store_time_ms)
    run.segment.publish_for_test(found.end)
    run.dispatch_all(found.end, index_enabled=False)
    return int(found.dispatch_from)


@pytest.mark.parametrize("change", [drop_queue, drop_file(0), drop_file(-1), drop_file(2),
                                    empty_files, short_file])
def test_a_long_logs_ends_show_what_is_missing(
    change: Callable[[Store], None], store: Store,
) -> None:
    before = store.content()
    change(store)
    assert long_log(store) < store.end
    assert store.content() == before


def test_a_long_log_with_whole_queues_is_not_dispatched_again(store: Store) -> None:
    assert long_log(store) == store.end


def test_consumers_offsets_show_what_a_long_logs_ends_do_not(store: Store) -> None:
    """A queue whose records lie in the middle of the log alone."""
    run = Run(store.root.parent / "middle", **SIZES)
    loop, probe = run.writer("async", 0), run.probe()
    for number in range(MESSAGES):
        queue = 7 if 300 <= number < 310 else 0
        assert probe.send(TOPIC, queue, [b"body"], opaque=number)
        loop.run(1000)
        probe.take()
    end = int(run.segment.log_state()["published"])
    run.dispatch_all(end, index_enabled=False)
    middle = Store(run.root, end)
    before = middle.content()
    shutil.rmtree(middle.queue(7))

    assert long_log(middle) == end
    assert long_log(middle, queue_ends.Hints(offsets={(TOPIC, 7): 3})) == 0
    assert middle.content() == before


def test_a_queue_of_a_removed_topic_is_not_brought_back(store: Store) -> None:
    shutil.rmtree(store.queue(1))
    run = Run(store.root, **SIZES)
    found = run.recover(clean=True, hints=lambda: queue_ends.Hints(topics={"another"}))
    assert found.dispatch_from == store.end
