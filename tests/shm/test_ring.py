"""The one-producer, one-consumer ring keeps the rules R1 to R5 of mqcore/shm/ring.pxd."""
from __future__ import annotations

import os
import random
import select
import signal
import time
from collections.abc import Callable
from mmap import mmap

import pytest

from mqcore.layout import sizes
from mqcore.shm.ring import RingEnd, consume_numbered, produce_numbered
from tests.support.mqcore_process import die_with_parent

CAPACITY = 64
HEADER = 8                           # length and kind before every record
SPINS_MAX = 1 << 62                  # the end of the test's process ends a loop, not this
DEADLINE_S = 30.0
KILLS = 25                           # of one run, which has dice of its own


def memory_for(capacity):
    return mmap(-1, sizes()["RING_CURSORS_SIZE"] + capacity)


def ends_of(capacity):
    memory = memory_for(capacity)
    return RingEnd(memory, capacity), RingEnd(memory, capacity, consumer=True)


@pytest.fixture
def ends():
    """The producer's and the consumer's end of one empty ring."""
    return ends_of(CAPACITY)


def taken_by(length):
    return (HEADER + length + 7) // 8 * 8


# -- the rules, one by one -------------------------------------------------------------------------


def test_a_claimed_record_is_not_seen_until_it_is_published(ends):               # R3
    producer, consumer = ends
    assert producer.claim(b"half written")
    assert producer.claim(b"another one")
    assert consumer.receive() is None

    assert producer.publish()
    assert [consumer.receive(), consumer.receive()] == [b"half written", b"another one"]


def test_publishing_nothing_says_so(ends):
    producer, _ = ends
    assert not producer.publish()


def test_one_publish_shows_every_record_claimed_before(ends):                    # R3
    producer, consumer = ends
    for record in (b"a", b"b", b"c"):
        assert producer.claim(record)
    assert producer.publish()
    assert [consumer.receive() for _ in range(4)] == [b"a", b"b", b"c", None]


def test_a_full_ring_refuses_a_record_and_keeps_the_earlier_ones(ends):          # R1
    producer, consumer = ends
    sent = [record for record in (b"a" * 20, b"b" * 20, b"c" * 20) if producer.send(record)]

    assert sent == [b"a" * 20, b"b" * 20]
    assert [consumer.receive() for _ in range(3)] == [*sent, None]


def test_tail_never_runs_more_than_the_capacity_ahead_of_head(ends):             # R1
    producer, consumer = ends
    dice = random.Random(5)
    waiting = []
    for number in range(5000):
        record = bytes([number % 256]) * dice.randrange(25)
        if producer.send(record):
            waiting.append(record)
        elif waiting:
            assert consumer.receive() == waiting.pop(0)
        head, tail = producer.positions()
        assert head <= tail <= head + CAPACITY


def test_each_end_stores_its_own_cursor_only(ends):                              # R2
    producer, consumer = ends
    producer.send(b"x" * 10)
    assert producer.positions() == (0, taken_by(10))
    consumer.receive()
    assert producer.positions() == (taken_by(10), taken_by(10))


def test_room_comes_back_only_when_the_consumer_releases(ends):                  # R4
    producer, consumer = ends
    assert producer.send(b"a" * 24)
    assert producer.send(b"b" * 24)
    assert not producer.send(b"c" * 24)
    assert [consumer.next(), consumer.next()] == [b"a" * 24, b"b" * 24]
    assert not producer.send(b"c" * 24)
    assert consumer.release() is False
    assert producer.send(b"c" * 24)
    assert consumer.receive() == b"c" * 24


@pytest.mark.parametrize("capacity", [64, 128, 4096])
def test_a_record_of_half_the_capacity_always_fits_an_empty_ring(capacity):      # R5
    longest = capacity // 2 - HEADER
    for shift in range(0, capacity, 8):
        producer, consumer = ends_of(capacity)
        for _ in range(shift // 8):
            assert producer.send(b"")
            assert consumer.receive() == b""
        assert producer.send(b"z" * longest), shift
        assert consumer.receive() == b"z" * longest


@pytest.mark.parametrize("capacity", [64, 4096])
def test_a_record_longer_than_half_the_capacity_never_fits(capacity):            # R5
    producer, consumer = ends_of(capacity)
    assert not producer.send(b"z" * (capacity // 2 - HEADER + 1))
    assert producer.send(b"ok")
    assert consumer.receive() == b"ok"


def test_a_record_that_would_cross_the_end_moves_to_the_start(ends):
    producer, consumer = ends
    assert producer.send(b"x" * 24)
    assert consumer.receive() == b"x" * 24
    assert producer.send(b"x" * 8)
    assert consumer.receive() == b"x" * 8            # both cursors at 48: 16 bytes left to the end

    assert producer.send(b"y" * 20)
    assert consumer.receive() == b"y" * 20
    assert producer.positions() == (64 + taken_by(20), 64 + taken_by(20))


def test_a_record_behind_padding_may_fill_the_ring_to_the_last_byte(ends):
    producer, consumer = ends
    assert producer.send(b"x" * 24)
    assert producer.send(b"y" * 8)
    assert consumer.receive() == b"x" * 24
    assert producer.send(b"z" * 24)                  # padding of 16, then 32
    assert producer.positions() == (32, 32 + CAPACITY)
    assert not producer.send(b"")
    assert [consumer.receive() for _ in range(3)] == [b"y" * 8, b"z" * 24, None]


def test_an_empty_record_is_a_record(ends):
    producer, consumer = ends
    assert producer.send(b"")
    assert consumer.receive() == b""
    assert consumer.receive() is None


@pytest.mark.parametrize("capacity", [0, 32, 63, 65, 96, -64])
def test_a_capacity_that_is_no_power_of_two_is_refused(capacity):
    with pytest.raises(ValueError, match="capacity"):
        RingEnd(memory_for(128), capacity)


def test_memory_too_small_for_the_capacity_is_refused():
    with pytest.raises(ValueError, match="memory"):
        RingEnd(memory_for(64), 128)


def test_a_new_producer_goes_on_behind_what_was_published():
    memory = memory_for(CAPACITY)
    first, consumer = RingEnd(memory, CAPACITY), RingEnd(memory, CAPACITY, consumer=True)
    first.send(b"published")
    first.claim(b"never seen")
    second = RingEnd(memory, CAPACITY)
    second.send(b"after")
    assert [consumer.receive() for _ in range(3)] == [b"published", b"after", None]


def test_a_new_consumer_gets_what_was_not_released():
    memory = memory_for(CAPACITY)
    producer, first = RingEnd(memory, CAPACITY), RingEnd(memory, CAPACITY, consumer=True)
    producer.send(b"one")
    producer.send(b"two")
    assert first.receive() == b"one"
    second = RingEnd(memory, CAPACITY, consumer=True)
    assert [second.receive(), second.receive()] == [b"two", None]


# -- two processes ---------------------------------------------------------------------------------


def start(work: Callable[[], object]) -> int:
    """A forked process that does `work`; its exit code is 0 when that raised nothing."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        die_with_parent(signal.SIGKILL)        # it may turn in native code, for ever
        work()
        code = 0
    finally:
        os._exit(code)


def wait_for_end(pid, look):
    """Its exit code; kills it when the ring `look` has stood still for DEADLINE_S."""
    handle = os.pidfd_open(pid)
    seen = None
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        while not poll.poll(DEADLINE_S * 1000):
            if look.positions() == seen:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                pytest.fail(f"nothing went through the ring for {DEADLINE_S} s")
            seen = look.positions()
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    finally:
        os.close(handle)


def kill_after(pid, condition):
    """SIGKILL `pid` when `condition` holds."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "the processes got nowhere"
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("capacity", "count"), [
    (1 << 16, 2_000_000), (1 << 20, 100_000), (512, 100_000)])
def test_millions_of_records_cross_between_two_processes_whole_and_in_order(capacity, count):
    memory = memory_for(capacity)
    seed = random.randrange(1 << 40)
    print(f"seed {seed}")
    producer = start(lambda: produce_numbered(memory, capacity, count, seed))
    consumer = start(lambda: check(consume_numbered(memory, capacity, 0, count, seed, SPINS_MAX),
                                   count))
    look = RingEnd(memory, capacity)
    codes = [wait_for_end(producer, look), wait_for_end(consumer, look)]
    assert codes == [0, 0]
    head, tail = look.positions()
    assert head == tail > count * HEADER


def check(reached, count):
    assert reached == count, f"only {reached} of {count} records came"


def next_number(memory, capacity):
    """The number of the record at head, read in place; None: the ring is empty."""
    head, tail = RingEnd(memory, capacity, consumer=True).positions()
    if head == tail:
        return None
    bytes_start = sizes()["RING_CURSORS_SIZE"]
    at = bytes_start + (head & (capacity - 1))
    if int.from_bytes(memory[at:at + 4], "little", signed=True) < 0:      # padding
        at = bytes_start
    return int.from_bytes(memory[at + HEADER:at + HEADER + 8], "little")


@pytest.mark.slow
def test_a_killed_producer_leaves_whole_records_and_its_successor_goes_on():
    """Round after round on one ring: numbers begin at 0 again with each new producer."""
    capacity = 1 << 16
    memory = memory_for(capacity)
    seed = random.randrange(1 << 40)
    dice = random.Random(seed)
    print(f"seed {seed}")
    total = 0
    for _ in range(KILLS):
        progress = RingEnd(memory, capacity, consumer=True)
        _, began = progress.positions()
        producer = start(lambda: produce_numbered(memory, capacity, 1 << 40, seed))
        wanted = began + dice.randrange(1, 4 * capacity)
        received = 0
        deadline = time.monotonic() + DEADLINE_S
        while progress.positions()[1] < wanted:
            assert time.monotonic() < deadline
            received = consume_numbered(memory, capacity, received, 64, seed, 1000)
        os.kill(producer, signal.SIGKILL)
        os.waitpid(producer, 0)
        reached = consume_numbered(memory, capacity, received, 1 << 40, seed, 1000)
        assert progress.positions()[0] == progress.positions()[1]
        total += reached
    assert total > 1000


@pytest.mark.slow
def test_a_killed_consumer_leaves_its_successor_every_record_it_had_not_released():
    capacity = 1 << 16
    memory = memory_for(capacity)
    seed = random.randrange(1 << 40)
    dice = random.Random(seed)
    print(f"seed {seed}")
    producer = start(lambda: produce_numbered(memory, capacity, 1 << 40, seed))
    look = RingEnd(memory, capacity, consumer=True)
    end_of_last = 0                                    # number behind the last record looked at
    try:
        for _ in range(KILLS):
            kill_after_head(memory, capacity, seed, end_of_last, look,
                            look.positions()[0] + dice.randrange(4 * capacity))
            first = wait_for_number(memory, capacity)
            assert first >= end_of_last                # nothing released comes twice ...
            # ... and from the first one not released on, each comes, whole and in order
            end_of_last = consume_numbered(memory, capacity, first, 500, seed, SPINS_MAX)
            assert end_of_last == first + 500
    finally:
        os.kill(producer, signal.SIGKILL)
        os.waitpid(producer, 0)
    assert sizes_of(seed, end_of_last, capacity) == look.positions()[0]


def kill_after_head(memory, capacity, seed, first, look, position):
    consumer = start(lambda: consume_numbered(memory, capacity, first, 1 << 40, seed, SPINS_MAX))
    kill_after(consumer, lambda: look.positions()[0] >= position)


def wait_for_number(memory, capacity):
    deadline = time.monotonic() + DEADLINE_S
    while (number := next_number(memory, capacity)) is None:
        assert time.monotonic() < deadline
    return number


def sizes_of(seed, count, capacity):
    """Where record `count` begins when none before it was lost or doubled; computed apart."""
    position = 0
    for number in range(count):
        dice = mix(seed ^ number)
        longest = capacity // 2 - HEADER if dice % 64 == 0 else 200
        size = taken_by(8 + (dice >> 8) % (longest - 8))
        to_end = capacity - position % capacity
        position += size if size <= to_end else to_end + size
    return position


def mix(value):
    value ^= value >> 31
    value = value * 0x9E3779B97F4A7C15 % (1 << 64)
    return value ^ value >> 29
