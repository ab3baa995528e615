"""The file of POP keeps the rules PJ1 to PJ5 of mqcore/store/pop/journal.pxd."""
from __future__ import annotations

import errno
import resource
import struct
from collections import deque
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

import tests.support.dice as throw
from mqcore.store.crc32 import crc32c
from mqcore.store.probes.pop_probe import PopProbe
from tests.pop.desk import (
    BLOCKED,
    KEY,
    OK,
    OTHER,
    START,
    Claim,
    Clock,
    Key,
    later,
    offsets,
    receive,
)

BOOT, OTHER_BOOT = b"a" * 36, b"b" * 36
HEAD = 64


def begin(path: Path, at: Clock = START, boot: bytes = BOOT, **limits: int) -> PopProbe:
    pop = PopProbe(**limits)
    error, _ = pop.journal(bytes(path), boot, at)
    assert error == 0
    assert pop.flush(at) == 0
    return pop


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "popState"


def test_a_run_continues_where_the_last_one_stood(path: Path) -> None:                   # PJ2
    pop = begin(path)
    pop.open(KEY)
    claims = receive(pop, count=3, invisible_ms=500)
    pop.ack(KEY, claims[1], START)
    pop.change(KEY, claims[2], 9_000, START)
    pop.settle_new(KEY, 5)
    assert pop.flush(START) == 0
    pop = begin(path, later(100))
    assert pop.offsets(KEY) == (0, 5, [0, 2])
    assert pop.next_due() == 10_500
    assert pop.ack(KEY, claims[0], later(100)) == OK
    pop.open(KEY)
    pop.expire(later(9_000))
    assert [claim[0::3] for claim in receive(pop, later(9_000), count=2)] == [(2, 2), (5, 1)]


def test_what_was_not_written_comes_again(path: Path) -> None:
    pop = begin(path)
    pop.open(KEY)
    claims = receive(pop, count=2)
    pop.flush(START)
    pop.ack(KEY, claims[0], START)
    assert begin(path).offsets(KEY) == (0, 2, [0, 1])


def test_a_fifo_batch_is_given_again_after_a_kill(path: Path) -> None:
    pop = begin(path)
    pop.open(KEY, fifo=True)
    receive(pop, count=2, attempt=b"one")
    pop.flush(START)
    pop = begin(path)
    pop.batch(START, attempt=b"two")
    assert pop.enter(KEY) == BLOCKED
    assert [claim[0::3] for claim in receive(pop, count=2, attempt=b"one")] == [(0, 1), (1, 1)]


@pytest.mark.parametrize("how", ["delivered", "passed"])
@pytest.mark.parametrize("found", [700, 701, -1])
def test_a_state_of_another_log_counts_for_nothing(path: Path, how: str, found: int) -> None:
    pop = begin(path)
    pop.open(KEY)
    pop.batch(START)
    pop.enter(KEY)
    pop.take(KEY, 0)
    pop.prove(KEY, 600)
    if how == "delivered":
        pop.take(KEY, 1)
    else:
        pop.settle_new(KEY, 2)
    pop.prove(KEY, 700)
    pop.flush(START)
    pop = begin(path, boot=OTHER_BOOT)                          # it is written anew
    pop = begin(path)
    assert pop.proof(KEY) == (1, 700)
    pop.confirm(KEY, found)
    assert pop.has(KEY) == (found == 700)
    pop.flush(START)
    assert begin(path).has(KEY) == (found == 700)


def test_a_reset_takes_the_proof_back(path: Path) -> None:
    pop = begin(path)
    pop.open(KEY, start=5)
    pop.batch(START)
    pop.enter(KEY)
    pop.take(KEY, 5)
    pop.prove(KEY, 600)
    assert pop.proof(KEY) == (5, 600)
    pop.moved(KEY, 2)
    assert pop.proof(KEY)[0] == -1
    pop.flush(START)
    pop = begin(path)
    pop.confirm(KEY, -1)
    assert pop.offsets(KEY) == (2, 2, [])


@pytest.mark.parametrize(("wall", "due"), [
    (400, 1_100), (0, 1_500), (-10**9, 1_500), (10**9, -10**9 + 1_500)])
def test_in_another_boot_the_wall_clock_counts(path: Path, wall: int, due: int) -> None:
    pop = begin(path)
    pop.open(KEY)
    receive(pop, count=1, invisible_ms=500)
    pop.flush(START)
    assert begin(path, (1_000, START[1] + wall), OTHER_BOOT).next_due() == due


def test_no_message_is_due_later_than_its_invisible_time(path: Path) -> None:             # PJ4
    pop = begin(path)
    pop.open(KEY)
    receive(pop, count=1, invisible_ms=500)
    pop.flush(START)
    assert begin(path, (3, START[1])).next_due() == 503           # a steady clock that went back


def test_a_renewed_message_stays_hidden_over_a_start(path: Path) -> None:
    pop = begin(path)
    pop.open(KEY)
    receive(pop, count=1, invisible_ms=500, client=pop.client_open(), renew=True)
    pop.expire(later(500))
    pop.flush(later(500))
    assert begin(path, later(900)).next_due() == 11_400


@pytest.mark.parametrize("cut", range(0, 400, 7))
def test_a_torn_file_is_a_state_that_was(path: Path, cut: int) -> None:                   # PJ1
    pop = begin(path)
    pop.open(KEY)
    states = []
    claims = []
    for _ in range(3):
        claims += receive(pop, count=2)
        pop.ack(KEY, claims[0], START)
        pop.flush(START)
        states.append(pop.offsets(KEY))
    data = path.read_bytes()
    path.write_bytes(data[:len(data) - cut])
    pop = PopProbe()
    error, torn = pop.journal(bytes(path), BOOT, START)
    assert error == 0
    assert pop.flush(START) == 0
    assert not pop.has(KEY) or pop.offsets(KEY) in states
    assert (torn < 0) == (len(data) - cut in ends(data))
    again = begin(path)
    assert again.has(KEY) == pop.has(KEY)
    assert not pop.has(KEY) or again.offsets(KEY) == pop.offsets(KEY)


def ends(data: bytes) -> list[int]:
    """Where the file may end: it is empty, or has its head and whole batches."""
    found = [0, HEAD]
    while found[-1] < len(data):
        found.append(found[-1] + 24 + struct.unpack_from(">i", data, found[-1])[0])
    return found


def batch(records: bytes, at: Clock = START) -> bytes:
    body = struct.pack(">qq", *at) + records
    return struct.pack(">iI", len(records), crc32c(body)) + body


def queue(number: int, next: int = 0, group: bytes = b"group", topic: bytes = b"topic") -> bytes:
    names = group + topic
    record = struct.pack(">BBhiqihh", 1, 0, 0, number, next, 0, len(group), len(topic)) + names
    return record + bytes(-len(record) % 8)


def message(number: int, offset: int, attempts: int = 1, pop: int = 5, due: int = 6,
            invisible: int = 7, renewals: int = 0) -> bytes:
    return struct.pack(">BBhiqqqii", 3, 0, attempts, number, offset, pop, due, invisible, renewals)


def plain(kind: int, number: int, offset: int) -> bytes:
    return struct.pack(">BBhiq", kind, 0, 0, number, offset) + (bytes(8) if kind == 6 else b"")


SENSELESS = {
    "kind": plain(99, 0, 0), "kind 0": bytes(16), "half a record": bytes(8),
    "number": message(64, 9), "number below 0": message(-1, 9), "no queue": message(1, 9),
    "offset": message(0, -1), "large offset": message(0, 1 << 62), "below next": message(0, 4),
    "attempts": message(0, 9, attempts=0), "pop time": message(0, 9, pop=-1),
    "due": message(0, 9, due=1 << 60), "invisible": message(0, 9, invisible=43_200_001),
    "renewals": message(0, 9, renewals=-1), "half a message": message(0, 9)[:32],
    "another name": queue(0, group=b"other"), "names": queue(1, group=b"g" * 256),
    "no topic": queue(1, topic=b""), "illegal topic": queue(1, topic=b".."),
    "attempt id": struct.pack(">BBhiq", 4, 65, 0, 0, 9) + bytes(72),
}


@pytest.mark.parametrize("wrong", SENSELESS.values(), ids=SENSELESS)
def test_a_record_without_sense_ends_the_reading(path: Path, wrong: bytes) -> None:       # PJ1
    begin(path)
    good = batch(queue(0, 5) + message(0, 7))
    path.write_bytes(path.read_bytes()[:HEAD] + good + batch(plain(5, 0, 7) + wrong)
                     + batch(plain(7, 0, 100)))
    pop = PopProbe()
    assert pop.journal(bytes(path), BOOT, START) == (0, HEAD + len(good))
    assert pop.check()
    assert pop.offsets(KEY) == (8, 8, [])
    assert pop.flush(START) == 0
    assert begin(path).offsets(KEY) == (8, 8, [])


@pytest.mark.parametrize("damage", [
    lambda data: b"", lambda data: b"x", lambda data: b"nothing of ours" * 30,
    lambda data: data[:8] + b"\0\0\0\2" + data[12:], lambda data: data[:20] + b"?" + data[21:]])
def test_a_file_that_is_none_counts_for_nothing(path: Path, damage) -> None:              # type: ignore[no-untyped-def]
    pop = begin(path)
    pop.open(KEY)
    receive(pop, count=1)
    pop.flush(START)
    path.write_bytes(damage(path.read_bytes()))
    pop = begin(path)
    assert not pop.has(KEY)
    pop.open(KEY, committed=3)
    assert offsets(receive(pop, count=1)) == [3]


@pytest.mark.parametrize("limits", [{"messages_max": 5}, {"queue_max": 1}])
def test_a_file_above_the_limits_counts_for_nothing(path: Path, limits: dict[str, int]) -> None:
    pop = begin(path)
    pop.open(KEY)
    pop.open(OTHER)
    receive(pop, count=6, key=OTHER)
    pop.flush(START)
    pop = begin(path, **limits)
    assert not pop.has(KEY)
    assert not pop.has(OTHER)
    assert pop.check()


def test_a_file_is_written_anew_when_little_of_it_is_useful(path: Path) -> None:          # PJ3
    pop = begin(path, queue_max=200)
    keys: list[Key] = [(b"group", b"topic", number) for number in range(100)]
    for key in keys:
        pop.open(key, fifo=key[2] % 2 == 0)
    held = {key: receive(pop, key=key, count=2, attempt=b"one")[1] for key in keys}
    late: deque[tuple[Key, Claim]] = deque()
    sizes, at = [], START
    for _ in range(30_000):
        key = keys[at[0] % 99 + 1]
        at = later(1, at)
        if key[2] % 2:
            late.append((key, receive(pop, at, key=key, count=1, end=1 << 30)[0]))
        if len(late) > 40:             # while the new file is written, too
            pop.ack(*late.popleft(), at)
        pop.flush(at)
        pop.compact(at, 300)
        sizes.append(pop.file_size)
    assert max(sizes) < 1_100_000
    assert sum(after < before for before, after in pairwise(sizes)) >= 1
    assert path.stat().st_size == pop.file_size
    again = begin(path, at, queue_max=200)
    for key in keys:
        assert again.offsets(key) == pop.offsets(key)
        assert again.ack(key, held[key], at) == OK


@pytest.mark.parametrize("more", [0, 20_000])
def test_a_disk_that_refuses_is_told_and_caught_up_with(path: Path, more: int) -> None:   # PJ2
    pop = begin(path)
    pop.open(KEY)
    claims = receive(pop, count=2)
    assert pop.flush(START) == 0
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        pop.ack(KEY, claims[0], START)
        for _ in range(more):
            pop.ack(KEY, receive(pop, count=1, end=1 << 30)[0], START)
        assert pop.flush(START) == errno.EFBIG
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert pop.flush(START) == 0
    assert begin(path).offsets(KEY) == (1, 2 + more, [1])


def test_any_bytes_are_read_without_harm(path: Path) -> None:
    dice = throw.dice()
    begin(path)
    head = path.read_bytes()[:HEAD]
    for _ in range(throw.times(500)):
        records = b"".join(draw(dice) for _ in range(dice.randint(1, 20)))
        if dice.random() < 0.3:
            changed = bytearray(records)
            changed[dice.randrange(len(records))] ^= 1 << dice.randrange(8)
            records = bytes(changed)
        parts = records, records[:dice.randrange(200) & ~7]
        data = head + b"".join(batch(part) for part in parts if part)
        path.write_bytes(data[:dice.choice((len(data), dice.randint(0, len(data))))])
        pop = PopProbe(messages_max=10, queue_max=4)
        assert pop.journal(bytes(path), dice.choice((BOOT, OTHER_BOOT)), START)[0] == 0
        assert pop.check()
        pop.expire((1 << 53, 1 << 53))
        assert pop.check()


def draw(dice: Random) -> bytes:
    number = dice.randint(0, 4)
    offset = throw.whole(dice, 0, dice.choice((12, 1 << 62)))
    kind = dice.randint(1, 9)
    if kind == 1:
        return queue(number, offset, dice.choice((b"group", b"other")))
    if kind == 3:
        return message(number, offset, dice.randint(1, 3), throw.whole(dice, 0, 1 << 53),
                       throw.whole(dice, 0, 1 << 53), dice.randint(0, 43_200_000))
    if kind == 4:
        return struct.pack(">BBhiq", 4, 8, 0, number, offset) + b"attempts"
    return plain(kind, number, offset)
