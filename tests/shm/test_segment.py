"""The run's segment: made once, refused when strange, and its doorbells wake whoever sleeps."""
from __future__ import annotations

import os
import select

import posix_ipc
import pytest

from mqcore.layout import SHM_LAYOUT_VERSION, WORKER_RUNNING, WORKER_STARTING, sizes
from mqcore.participants import SLOT_COUNT, SUPERVISOR
from mqcore.shm.segment import LayoutError, Segment, stale_segments

SMALL = {"run_id": 7, "serving_count": 2, "segment_size": 65536, "message_bytes_max": 16384,
         "topics": 64, "groups": 64, "subscriptions": 64, "queues": 64}
VERSION_AT = 8                       # behind the magic: see ShmHead in layout.pxd
SLOT = 9
READ = select.EPOLLIN | select.EPOLLET


@pytest.fixture
def name():
    name = f"/mqcore-test-segment-{os.getpid()}"
    yield name
    if stale_segments(name[1:]):
        posix_ipc.unlink_shared_memory(name)


@pytest.fixture
def segment(name):
    segment = Segment.create(name, **SMALL)
    segment.make_bells()
    yield segment
    for slot in range(SLOT_COUNT):
        os.close(segment.bell(slot))


def patch(name, at, data):
    memory = posix_ipc.SharedMemory(name)
    os.pwrite(memory.fd, data, at)
    memory.close_fd()


# -- making and attaching --------------------------------------------------------------------------


def test_who_attaches_by_name_sees_the_same_memory(segment, name):
    other = Segment.attach(name)
    segment.set_dispatched(4711, 1)
    assert other.log_state()["dispatched"] == 4711
    assert (other.run_id, other.serving_count, other.size) == (7, 2, segment.size)
    assert segment.owner
    assert not other.owner


def test_a_name_in_use_is_not_taken_over(segment, name):
    with pytest.raises(posix_ipc.ExistentialError):
        Segment.create(name, **SMALL)
    assert Segment.attach(name).run_id == 7


def test_a_name_that_is_not_there_cannot_be_attached(name):
    with pytest.raises(posix_ipc.ExistentialError):
        Segment.attach(name)


@pytest.mark.parametrize(("at", "data"), [
    (VERSION_AT, (SHM_LAYOUT_VERSION + 1).to_bytes(4, "little")),
    (VERSION_AT + 4, (sizes()["SHM_HEAD_SIZE"] + 8).to_bytes(4, "little")),
    (sizes()["SHM_PARTICIPANTS_OFFSET"], b"\xff\xff\xff\xff"),
    (0, b"MQCORE00")], ids=["version", "head size", "participants", "magic"])
def test_a_segment_of_another_layout_is_refused(segment, name, at, data):
    patch(name, at, data)
    with pytest.raises(LayoutError, match="another version"):
        Segment.attach(name)


def test_a_segment_that_was_cut_short_is_refused(segment, name):
    memory = posix_ipc.SharedMemory(name)
    os.ftruncate(memory.fd, segment.size - 4096)
    memory.close_fd()
    with pytest.raises(LayoutError):
        Segment.attach(name)


def test_something_too_small_for_a_head_is_refused(name):
    posix_ipc.SharedMemory(name, posix_ipc.O_CREX, size=16).close_fd()
    with pytest.raises(LayoutError, match="no segment"):
        Segment.attach(name)


@pytest.mark.parametrize("count", [0, 17, -1])
def test_a_serving_count_out_of_range_is_refused_and_leaves_no_name(name, count):
    with pytest.raises(ValueError, match="serving_count"):
        Segment.create(name, **SMALL | {"serving_count": count})
    assert stale_segments(name[1:]) == []


def test_stale_segments_are_found_by_prefix_until_they_are_unlinked(segment, name):
    assert stale_segments(name[1:]) == [name]
    assert stale_segments("mqcore-no-such-run") == []
    segment.unlink()
    assert stale_segments(name[1:]) == []
    assert segment.run_id == 7                    # who has it mapped keeps it


# -- slots -----------------------------------------------------------------------------------------


def test_an_incarnation_counts_up_and_clears_the_stop(segment):
    segment.request_stop(SLOT)
    assert segment.stop_requested(SLOT)
    assert [segment.begin_incarnation(SLOT) for _ in range(3)] == [1, 2, 3]
    assert not segment.stop_requested(SLOT)
    assert segment.state(SLOT) == WORKER_STARTING


def test_a_slot_says_what_was_put_into_it(segment):
    segment.begin_incarnation(SLOT)
    segment.started(SLOT, 1234, 99)
    segment.beat(SLOT, 100)
    segment.set_state(SLOT, WORKER_RUNNING)
    assert segment.slot(SLOT) == {"state": WORKER_RUNNING, "pid": 1234, "incarnation": 1,
                                  "beat_ms": 100, "started_ms": 99}
    assert segment.slot(SLOT + 1)["pid"] == 0


# -- doorbells -------------------------------------------------------------------------------------


@pytest.fixture
def watching(segment):
    """Looks whether the bell of SLOT was rung since the last look; reads nothing from it."""
    epoll = select.epoll()
    epoll.register(segment.bell(SLOT), READ)
    yield lambda timeout_s=0.0: bool(epoll.poll(timeout_s))
    epoll.close()


def test_a_process_that_is_awake_is_not_rung(segment, watching):
    segment.ring_bell(SLOT)
    assert not watching()


def test_a_sleeper_is_rung_once_by_whoever_comes_first(segment, watching):
    segment.arm(SLOT)
    segment.ring_bell(SLOT)
    assert watching()
    segment.ring_bell(SLOT)
    assert not watching()


def test_arming_again_makes_the_next_ring_count_without_a_read(segment, watching):
    for _ in range(100):
        segment.arm(SLOT)
        segment.ring_bell(SLOT)
        assert watching()


def test_a_disarmed_bell_is_silent(segment, watching):
    segment.arm(SLOT)
    segment.disarm(SLOT)
    segment.ring_bell(SLOT)
    assert not watching()


def test_a_stop_wakes_even_who_has_not_armed(segment, watching):
    segment.request_stop(SLOT)
    assert watching()


def test_bells_are_apart(segment, watching):
    segment.arm(SLOT + 1)
    segment.ring_bell(SLOT + 1)
    assert not watching()


def test_a_state_change_wakes_the_supervisor(segment):
    epoll = select.epoll()
    epoll.register(segment.bell(SUPERVISOR.slot), READ)
    segment.arm(SUPERVISOR.slot)
    segment.set_state(SLOT, WORKER_RUNNING)
    assert epoll.poll(0)
    epoll.close()


def test_a_forked_process_is_rung_through_the_inherited_bell(segment):
    ready, answer = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            epoll = select.epoll()
            epoll.register(segment.bell(SLOT), READ)
            segment.arm(SLOT)
            os.write(answer, b"r")
            code = 0 if epoll.poll(20) else 2
        finally:
            os._exit(code)
    assert os.read(ready, 1) == b"r"
    segment.ring_bell(SLOT)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(ready)
    os.close(answer)
