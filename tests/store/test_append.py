"""The append service keeps the rules A1 to A5 of mqcore/store/log/append.pxd."""
import errno
import os
from itertools import pairwise

import pytest

from mqcore.layout import (
    PUT_CREATE_FILE_FAILED,
    PUT_DISK_FAILED,
    PUT_MESSAGE_ILLEGAL,
    PUT_OK,
    PUT_QUEUE_TABLE_FULL,
    PUT_SERVICE_NOT_AVAILABLE,
    PUT_WRITER_RESTARTED,
    RECORD_FIXED_SIZE,
    REFUSAL_DISK_FULL,
    REFUSAL_FLUSH_FAILED,
    REFUSAL_NONE,
    REFUSAL_WRITE_FAILED,
)
from mqcore.participants import WRITER
from mqcore.store.probes import append_probe
from tests.store.harness import Run

WRITE_TRIES = 3
PREPARED, COMMIT, ROLLBACK = 4, 8, 12
SEGMENT = 8192
TURN_MS = 1000                    # ends at once when nothing waits
BLANK_MIN = 8


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path / "store", segment_size=SEGMENT, file_entries=20)


@pytest.fixture
def disk(run):
    append_probe.watch(run.segment)
    yield append_probe
    append_probe.unwatch()


def published(run):
    return run.segment.log_state()["published"]


def refusal(run):
    return run.segment.log_state()["refusal"]


def statuses(taken):
    return [status for _, status, _, _, _ in taken]


def messages(run):
    return [record for record in run.records(published(run)) if not record.get("blank")]


def bodies(run):
    return [record["body"] for record in messages(run)]


# -- places and numbers ----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_records_lie_end_to_end_and_results_say_where(run, mode):
    loop, probe = run.writer(mode, 0), run.probe()
    for number in range(20):
        assert probe.send("topic", number % 3, [b"%d" % number] , opaque=number)
    loop.run(TURN_MS)

    results = probe.take()
    found = messages(run)
    assert [opaque for opaque, *_ in results] == list(range(20))
    assert [(0, r["queueOffset"], r["physicalOffset"]) for r in found] == [
        tuple(result[1:4]) for result in results]
    assert [r["physicalOffset"] for r in found] == [
        sum(r["size"] for r in found[:n]) for n in range(20)]
    assert published(run) == sum(r["size"] for r in found)


def test_queue_offsets_are_dense_in_each_queue(run):
    loop, probe = run.writer("async", 0), run.probe()
    for number in range(300):
        assert probe.send("topic", number * 7 % 5, [b"x" * (number % 90)], opaque=number)
    loop.run(TURN_MS)

    seen = {}
    for record in messages(run):
        seen.setdefault(record["queueId"], []).append(record["queueOffset"])
    assert sorted(seen) == [0, 1, 2, 3, 4]
    assert all(offsets == list(range(60)) for offsets in seen.values())


@pytest.mark.parametrize(("kind", "offsets"), [
    (0, [0, 1, 2]), (COMMIT, [0, 1, 2]), (PREPARED, [0, 0, 0]), (ROLLBACK, [0, 0, 0])])
def test_only_ordinary_and_committed_records_count(run, kind, offsets):     # store.md 2.9
    loop, probe = run.writer("async", 0), run.probe()
    for number in range(3):
        assert probe.send("topic", 0, [b"x"], opaque=number, sys_flag=kind)
    assert probe.send("topic", 0, [b"x"], opaque=3)
    loop.run(TURN_MS)

    taken = probe.take()
    assert [offset for _, _, offset, _, _ in taken[:3]] == offsets
    assert taken[3][2] == (3 if kind in (0, COMMIT) else 0)


def test_the_store_time_never_goes_back(run):
    loop, probe = run.writer("async", 0), run.probe()
    for number in range(50):
        assert probe.send("topic", 0, [b"x"], opaque=number)
        loop.run(TURN_MS)
    times = [record["storeTimestamp"] for record in messages(run)]
    assert times == sorted(times)
    assert times[0] > 1_700_000_000_000


def test_several_producers_share_the_log_and_each_hears_of_its_own(run):
    loop = run.writer("async", 0)
    probes = [run.probe(producer=0), run.probe(producer=16)]
    for number in range(40):
        assert probes[number % 2].send("topic", number % 2, [b"%d" % number], opaque=number)
    loop.run(TURN_MS)

    for index, probe in enumerate(probes):
        taken = probe.take()
        assert [opaque for opaque, *_ in taken] == list(range(index, 40, 2))
        assert [offset for _, _, offset, _, _ in taken] == list(range(20))


# -- segments (A3, store.md 2.8) -------------------------------------------------------------------


def record_size(topic, body):
    return RECORD_FIXED_SIZE + len(topic) + body


def test_a_record_that_leaves_exactly_the_blank_fits(run):
    loop, probe = run.writer("async", 0), run.probe()
    body = SEGMENT - BLANK_MIN - record_size("t", 0)
    assert probe.send("t", 0, [b"x" * body], opaque=1)
    assert probe.send("t", 0, [b"y"], opaque=2)
    loop.run(TURN_MS)

    assert [position for _, _, _, position, _ in probe.take()] == [0, SEGMENT]
    assert [r for r in run.records(published(run)) if r.get("blank")] == [
        {"blank": True, "size": BLANK_MIN, "physicalOffset": SEGMENT - BLANK_MIN}]


def test_a_record_one_byte_longer_than_a_segment_takes_is_illegal_and_burns_nothing(run):
    loop, probe = run.writer("async", 0), run.probe()
    body = SEGMENT - BLANK_MIN - record_size("t", 0) + 1
    assert probe.send("t", 0, [b"x" * body], opaque=1)
    assert probe.send("t", 0, [b"y"], opaque=2)
    loop.run(TURN_MS)

    assert [tuple(result[1:4]) for result in probe.take()] == [
        (PUT_MESSAGE_ILLEGAL, 0, 0), (PUT_OK, 0, 0)]


@pytest.mark.parametrize("rest", [0, 1, 7])
def test_a_record_that_would_leave_less_than_a_blank_moves_to_the_next_segment(run, rest):
    loop, probe = run.writer("async", 0), run.probe()
    first = 1000
    second = SEGMENT - rest - first                    # ends `rest` bytes before the segment does
    assert probe.send("t", 0, [b"x" * (first - record_size("t", 0))], opaque=1)
    assert probe.send("t", 0, [b"y" * (second - record_size("t", 0))], opaque=2)
    loop.run(TURN_MS)

    assert [position for _, _, _, position, _ in probe.take()] == [0, SEGMENT]
    assert [r["size"] for r in run.records(published(run)) if r.get("blank")] == [SEGMENT - first]


def test_many_rolls_leave_every_segment_closed_by_one_blank_and_zeros_behind_it(run):
    loop, probe = run.writer("async", 0), run.probe()
    for number in range(200):
        assert probe.send("topic", 0, [b"%03d" % number * (1 + number % 50)], opaque=number)
        loop.run(TURN_MS)
    assert set(statuses(probe.take())) == {PUT_OK}

    found = list(run.records(published(run)))
    blanks = [r for r in found if r.get("blank")]
    assert len(blanks) == published(run) // SEGMENT >= 2
    for blank in blanks:
        position = blank["physicalOffset"]
        assert blank["size"] == SEGMENT - position % SEGMENT >= BLANK_MIN
        base = position // SEGMENT * SEGMENT
        data = (run.log_folder / f"{base:020d}").read_bytes()
        assert set(data[position - base + BLANK_MIN:]) <= {0}
    assert [r["queueOffset"] for r in found if not r.get("blank")] == list(range(200))


def test_a_batch_stays_in_one_segment_with_consecutive_places(run):
    loop, probe = run.writer("async", 0), run.probe()
    for number in range(30):
        assert probe.send("topic", 0, [b"%d" % number * 40 for _ in range(9)], opaque=number)
    loop.run(TURN_MS)

    found = messages(run)
    assert len(found) == 270
    for number, (opaque, status, offset, position, positions) in enumerate(probe.take()):
        batch = found[9 * number:9 * number + 9]
        assert (opaque, status, offset) == (number, PUT_OK, 9 * number)
        assert positions == [r["physicalOffset"] for r in batch]
        assert position == positions[0]
        assert len({p // SEGMENT for p in positions}) == 1
        assert len({r["storeTimestamp"] for r in batch}) == 1
        assert all(b["physicalOffset"] == a["physicalOffset"] + a["size"]
                   for a, b in pairwise(batch))


def test_a_batch_longer_than_a_segment_is_illegal(run):
    loop, probe = run.writer("async", 0), run.probe()
    assert probe.send("topic", 0, [b"x" * 3000] * 3, opaque=1)
    loop.run(TURN_MS)
    assert statuses(probe.take()) == [PUT_MESSAGE_ILLEGAL]
    assert published(run) == 0


def test_a_full_queue_table_refuses_new_queues_and_goes_on_with_the_old_ones(run):
    loop, probe = run.writer("async", 0), run.probe()
    for number in range(70):
        assert probe.send("topic", number, [b"x"], opaque=number)
    assert probe.send("topic", 0, [b"y"], opaque=70)
    loop.run(TURN_MS)

    taken = statuses(probe.take())
    assert taken == [PUT_OK] * 64 + [PUT_QUEUE_TABLE_FULL] * 6 + [PUT_OK]
    assert len(messages(run)) == 65


# -- durability (A1, A2) ---------------------------------------------------------------------------


def test_in_sync_mode_every_result_comes_after_a_sync_of_its_record(run, disk):
    loop, probe = run.writer("sync", 0), run.probe()
    for number in range(60):
        assert probe.send("topic", 0, [b"x" * 700], opaque=number)
        loop.run(TURN_MS)

    unsynced_tail = None
    for call, tail, _, _ in disk.events():
        if call == "write":
            unsynced_tail = tail                       # nothing newer may be seen ...
        elif call == "sync":
            assert unsynced_tail in (None, tail)       # ... until this sync has ended
            unsynced_tail = None
    assert unsynced_tail is None
    assert len([1 for call, *_ in disk.events() if call == "sync"]) >= 60
    assert statuses(probe.take()) == [PUT_OK] * 60
    state = run.segment.log_state()
    assert state["flushed"] == state["published"]


def test_in_sync_mode_requests_that_wait_together_share_one_sync(run, disk):
    loop, probe = run.writer("sync", 0), run.probe()
    assert probe.send("topic", 0, [b"first"], opaque=0)
    loop.run(TURN_MS)
    before = len(disk.events())
    for number in range(20):
        assert probe.send("topic", 0, [b"x"], opaque=number)
    loop.run(TURN_MS)

    assert [call for call, *_ in disk.events()[before:]] == ["write", "sync"]


def test_in_async_mode_every_result_comes_after_the_write_of_its_record(run, disk):
    loop, probe = run.writer("async", 0), run.probe()
    for number in range(20):
        tail_before = disk.events()[-1][1] if disk.events() else 0
        assert probe.send("topic", 0, [b"x"], opaque=number)
        loop.run(TURN_MS)
        assert disk.events()[-1][0] == "write"
        assert disk.events()[-1][1] >= tail_before
        assert statuses(probe.take()) == [PUT_OK]
        assert published(run) == disk.events()[-1][2] + disk.events()[-1][3]


def test_the_flush_service_moves_flushed_over_what_it_has_synced(run, disk):
    loop, probe = run.writer("async", 0), run.probe()
    for number in range(30):
        assert probe.send("topic", 0, [b"x" * 700], opaque=number)
    loop.run(TURN_MS)
    assert run.segment.log_state()["flushed"] == 0
    loop.stop_service()
    loop.run_service()                           # asked to stop: one thorough round

    state = run.segment.log_state()
    assert state["flushed"] == state["published"] > 2 * SEGMENT
    assert len([1 for call, *_ in disk.events() if call == "sync"]) >= 3


def test_a_failed_async_flush_refuses_writes_for_good(run, disk):
    loop, probe = run.writer("async", 0), run.probe()
    assert probe.send("topic", 0, [b"x"], opaque=1)
    loop.run(TURN_MS)
    disk.fail("sync", errno.EIO)
    loop.stop_service()
    loop.run_service()
    assert probe.send("topic", 0, [b"y"], opaque=2)
    loop.run(TURN_MS)

    assert statuses(probe.take()) == [PUT_OK, PUT_SERVICE_NOT_AVAILABLE]
    assert refusal(run) == REFUSAL_FLUSH_FAILED
    assert run.segment.log_state()["flushed"] == 0


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_failed_sync_fails_its_results_and_all_later_ones(run, disk, error):
    loop, probe = run.writer("sync", 0), run.probe()
    assert probe.send("topic", 0, [b"before"], opaque=0)
    loop.run(TURN_MS)
    end = published(run)
    disk.fail("sync", error)
    for number in (1, 2):
        assert probe.send("topic", 0, [b"x"], opaque=number)
    loop.run(TURN_MS)
    assert probe.send("topic", 0, [b"y"], opaque=3)
    loop.run(TURN_MS)

    assert statuses(probe.take()) == [PUT_OK] + [PUT_DISK_FAILED] * 2 + [
        PUT_SERVICE_NOT_AVAILABLE]
    assert refusal(run) == REFUSAL_FLUSH_FAILED
    assert published(run) == run.segment.log_state()["flushed"] == end


@pytest.mark.parametrize("shown", [False, True])
def test_readers_see_what_is_not_on_the_disk_yet_only_if_they_are_to(run, disk, shown):
    """As a stock broker has it, sync flush or not: sync_show_unflushed (store.md 6.1)."""
    loop, probe = run.writer("sync", 0, show_unflushed=shown), run.probe()
    disk.fail("sync", errno.EIO)
    assert probe.send("topic", 0, [b"x"], opaque=1)
    loop.run(TURN_MS)
    assert probe.send("topic", 0, [b"y"], opaque=2)
    loop.run(TURN_MS)

    assert statuses(probe.take()) == [PUT_DISK_FAILED, PUT_SERVICE_NOT_AVAILABLE]
    assert run.segment.log_state()["flushed"] == 0
    assert bodies(run) == ([b"x"] if shown else [])


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_failed_sync_of_the_segment_left_behind_is_not_asked_for_again(run, disk, error):
    """The kernel reports a lost page once; the second sync would say that all is well (A5)."""
    loop, probe = run.writer("sync", 0), run.probe()
    assert probe.send("topic", 0, [b"before"], opaque=0)
    loop.run(TURN_MS)
    end = published(run)
    disk.fail("sync", error)
    for number in range(1, 13):                         # one turn, over the end of the segment
        assert probe.send("topic", 0, [b"x" * 700], opaque=number)
    loop.run(TURN_MS)

    taken = statuses(probe.take())
    refused = taken.index(PUT_SERVICE_NOT_AVAILABLE)
    assert taken == [PUT_OK] + [PUT_DISK_FAILED] * (refused - 1) + [
        PUT_SERVICE_NOT_AVAILABLE] * (13 - refused)
    assert 1 < refused < 13
    assert refusal(run) == REFUSAL_FLUSH_FAILED
    assert published(run) == end


# -- failed writes (A4) ----------------------------------------------------------------------------


def test_a_request_that_follows_another_is_stored_only_if_that_one_is(run):
    loop, probe = run.writer("async", 0), run.probe()
    too_long = b"x" * (SEGMENT - BLANK_MIN)
    assert probe.send("final", 0, [b"first"], opaque=1)
    assert probe.send("op", 0, [b"a"], opaque=2, after_previous=True)
    assert probe.send("final", 0, [too_long], opaque=3)
    assert probe.send("op", 0, [b"b"], opaque=4, after_previous=True)
    assert probe.send("op", 0, [b"c"], opaque=5)
    loop.run(TURN_MS)

    assert statuses(probe.take()) == [PUT_OK, PUT_OK, PUT_MESSAGE_ILLEGAL, PUT_MESSAGE_ILLEGAL,
                                      PUT_OK]
    assert bodies(run) == [b"first", b"a", b"c"]


@pytest.mark.parametrize("first_bytes", [0, 5, 250])
@pytest.mark.parametrize("mode", ["async", "sync"])
@pytest.mark.parametrize(("error", "why"), [
    (errno.ENOSPC, REFUSAL_DISK_FULL), (errno.EIO, REFUSAL_WRITE_FAILED)])
def test_a_failed_write_gives_the_offsets_back_and_refuses(
    run, disk, mode, error, why, first_bytes
):
    loop, probe = run.writer(mode, 0), run.probe()
    assert probe.send("topic", 0, [b"before"], opaque=0)
    loop.run(TURN_MS)
    end = published(run)
    disk.fail("write", error, first_bytes=first_bytes, times=WRITE_TRIES)
    for number in range(1, 5):
        assert probe.send("topic", number % 2, [b"lost"], opaque=number)
    assert probe.send("topic", 0, [b"lost", b"too"], opaque=5)
    loop.run(TURN_MS)

    assert statuses(probe.take()) == [PUT_OK] + [PUT_SERVICE_NOT_AVAILABLE] * 5
    assert refusal(run) == why
    assert published(run) == end
    data = max(run.log_folder.iterdir()).read_bytes()
    assert set(data[end:]) == {0}                       # nothing of it is left to be found


@pytest.mark.parametrize("first_bytes", [0, 5, 250])
@pytest.mark.parametrize("mode", ["async", "sync"])
def test_a_write_that_fails_once_is_tried_again_and_nobody_is_refused(
    run, disk, mode, first_bytes
):
    loop, probe = run.writer(mode, 0), run.probe()
    disk.fail("write", errno.EIO, first_bytes=first_bytes, times=WRITE_TRIES - 2)
    for number in range(5):
        assert probe.send("topic", 0, [b"whole"], opaque=number)
    loop.run(TURN_MS)
    assert statuses(probe.take()) == [PUT_OK] * 5
    assert bodies(run) == [b"whole"] * 5
    assert refusal(run) == REFUSAL_NONE
    assert loop.failed_writes()[0] >= 1


def test_when_the_disk_has_room_again_numbering_goes_on_where_it_stopped(run, disk):
    loop, probe = run.writer("async", 0), run.probe()
    assert probe.send("topic", 0, [b"before"], opaque=0)
    loop.run(TURN_MS)
    disk.fail("write", errno.ENOSPC, first_bytes=300)
    for number in range(1, 8):
        assert probe.send("topic", 0, [b"lost"], opaque=number)
    loop.run(TURN_MS)
    assert statuses(probe.take()) == [PUT_OK] + [PUT_SERVICE_NOT_AVAILABLE] * 7
    for _ in range(1000):                               # the disk is looked at every 200 ms
        assert probe.send("topic", 0, [b"after"], opaque=9)
        run.segment.begin_incarnation(WRITER.slot)          # take the stop back: the loop sleeps
        loop.run(20)
        taken = probe.take()
        if statuses(taken) == [PUT_OK]:
            break
    else:
        pytest.fail("writes were never taken again")

    assert taken[0][2] == 1
    assert bodies(run) == [b"before", b"after"]
    assert refusal(run) == REFUSAL_NONE


def test_a_write_that_failed_in_part_is_not_found_by_a_later_recovery(run, disk):
    loop, probe = run.writer("async", 0), run.probe()
    assert probe.send("topic", 0, [b"before"], opaque=0)
    loop.run(TURN_MS)
    disk.fail("write", errno.ENOSPC, first_bytes=700)
    for number in range(8):
        assert probe.send("topic", 0, [b"lost" * 10], opaque=number)
    loop.run(TURN_MS)
    assert statuses(probe.take())[1:] == [PUT_SERVICE_NOT_AVAILABLE] * 8
    found = Run(run.root, SEGMENT, 20).recover(clean=False)

    assert (found.end, found.torn) == (published(run), "")


def test_a_short_write_is_carried_on(run, disk):
    loop, probe = run.writer("async", 0), run.probe()
    disk.fail("write", 0, first_bytes=17)
    for number in range(5):
        assert probe.send("topic", 0, [b"whole"], opaque=number)
    loop.run(TURN_MS)
    assert statuses(probe.take()) == [PUT_OK] * 5
    assert bodies(run) == [b"whole"] * 5


def test_a_segment_that_cannot_be_made_fails_the_put_without_burning_anything(run, disk):
    loop, probe = run.writer("async", 0), run.probe()
    disk.fail("truncate", errno.ENOSPC)
    assert probe.send("topic", 0, [b"x"], opaque=1)
    loop.run(TURN_MS)
    assert statuses(probe.take()) == [PUT_SERVICE_NOT_AVAILABLE]
    assert refusal(run) == REFUSAL_DISK_FULL


def test_a_flush_service_far_behind_stops_appends_only_until_it_has_caught_up(run):
    loop, probe = run.writer("async", 0), run.probe()
    for number in range(30):                            # a segment each; 16 may wait for their sync
        assert probe.send("topic", 0, [b"x" * 8000], opaque=number)
    loop.run(TURN_MS)
    before = statuses(probe.take())
    assert before == [PUT_OK] * 16 + [PUT_CREATE_FILE_FAILED] * 14
    assert refusal(run) == REFUSAL_NONE
    loop.stop_service()
    loop.run_service()
    assert probe.send("topic", 0, [b"y"], opaque=31)
    loop.run(TURN_MS)
    assert statuses(probe.take()) == [PUT_OK]


# -- restarts --------------------------------------------------------------------------------------


def restarted(run, mode="async"):
    """A new writer in the same run: what the dead one left is found behind `published`."""
    found = run.recover_tail()
    loop = run.writer(mode, found.end)
    loop.drop_requests()
    return found, loop


def test_a_new_run_finds_the_end_and_goes_on(run):
    loop, probe = run.writer("async", 0), run.probe()
    for number in range(100):
        assert probe.send("topic", number % 3, [b"%d" % number], opaque=number)
    loop.run(TURN_MS)
    end = published(run)

    after = Run(run.root, SEGMENT, 20)
    found = after.recover(clean=False)
    assert (found.end, found.dispatch_from, found.records_checked) == (end, 0, 100)
    loop, probe = after.writer("async", found.end), after.probe()
    for queue in range(3):
        assert probe.send("topic", queue, [b"next"], opaque=queue)
    loop.run(TURN_MS)
    assert [offset for _, _, offset, _, _ in probe.take()] == [34, 33, 33]
    after.dispatch_all(published(after))
    assert after.queue_ranges() == {("topic", 0): (0, 35), ("topic", 1): (0, 34),
                                    ("topic", 2): (0, 34)}


@pytest.mark.parametrize("dispatched", [False, True])
def test_a_new_writer_in_a_run_loses_nothing_and_doubles_nothing(run, dispatched):
    loop, probe = run.writer("async", 0), run.probe()
    for number in range(150):
        assert probe.send("topic", number % 2, [b"%d" % number], opaque=number)
    loop.run(TURN_MS)
    if dispatched:
        run.dispatch_all(published(run))
    before, end = bodies(run), published(run)
    found, loop = restarted(run)
    assert (found.end, found.torn) == (end, "")
    for number in range(150, 160):
        assert probe.send("topic", number % 2, [b"%d" % number], opaque=number)
    loop.run(TURN_MS)

    assert bodies(run) == before + [b"%d" % number for number in range(150, 160)]
    offsets = [r["queueOffset"] for r in messages(run) if r["queueId"] == 0]
    assert offsets == list(range(80))
    run.dispatch_all(published(run))
    assert run.queue_ranges() == {("topic", 0): (0, 80), ("topic", 1): (0, 80)}


def test_a_record_cut_in_two_by_the_writers_death_is_wiped(run):
    loop, probe = run.writer("async", 0), run.probe()
    for number in range(10):
        assert probe.send("topic", 0, [b"%d" % number], opaque=number)
    loop.run(TURN_MS)
    end = published(run)
    path = run.log_folder / f"{0:020d}"
    whole = path.read_bytes()
    with open(path, "r+b") as file:                     # half of a copy of the first record
        file.seek(end)
        file.write(whole[:60])
    found, loop = restarted(run)

    assert found.end == end
    assert found.torn
    assert path.read_bytes() == whole


def test_what_was_in_flight_when_the_writer_died_is_answered_once_and_not_stored(run):
    run.writer("async", 0)
    probe = run.probe()
    for number in range(25):
        assert probe.send("topic", 0, [b"x"], opaque=number)
    assert probe.send("topic", 0, [b"x"] * 3, opaque=25)
    _, loop = restarted(run)

    taken = probe.take()
    assert [(opaque, status) for opaque, status, *_ in taken] == [
        (number, PUT_WRITER_RESTARTED) for number in range(26)]
    loop.run(TURN_MS)
    assert probe.take() == []
    assert published(run) == 0


def test_a_log_that_ends_at_a_segments_end_goes_on_in_the_next(run):
    loop, probe = run.writer("async", 0), run.probe()
    body = SEGMENT - BLANK_MIN - record_size("t", 0)
    assert probe.send("t", 0, [b"x" * body], opaque=1)
    assert probe.send("t", 0, [b"y"], opaque=2)
    loop.run(TURN_MS)
    os.unlink(run.log_folder / f"{SEGMENT:020d}")       # closed, and no next segment was begun

    after = Run(run.root, SEGMENT, 20)
    found = after.recover(clean=False)
    loop, probe = after.writer("async", found.end), after.probe()
    assert probe.send("t", 0, [b"z"], opaque=3)
    loop.run(TURN_MS)
    assert [tuple(result[1:4]) for result in probe.take()] == [(PUT_OK, 1, SEGMENT)]
    assert [r.get("body", b"")[:1] for r in after.records(published(after))] == [b"x", b"", b"z"]
