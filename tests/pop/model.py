"""
A model of the state of POP in plain dictionaries, and random histories that hold the native one
against it.

The model knows of each message until when it is hidden; it does not know lists, heaps, files. A
kill takes it back to what was written.
"""
from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from mqcore.store.probes.pop_probe import PopProbe
from tests.pop.desk import BLOCKED, EXPIRED, OK, STALE, UNKNOWN, Claim, Clock, Key

HOLD_MS = 10_800_000
BOOTS = (b"a" * 36, b"b" * 36)


@dataclass(frozen=True)
class Message:
    """An unsettled one; due: hidden until then."""
    due: int
    ready: bool
    pop_ms: int
    invisible_ms: int
    attempts: int
    client: int
    renewals: int


@dataclass
class Queue:
    fifo: bool
    end: int = 0
    next: int = 0
    messages: dict[int, Message] = field(default_factory=dict)
    batch_end: int = 0
    attempt: bytes = b""

    def copy(self) -> Queue:
        return replace(self, messages=dict(self.messages))

    @property
    def committed(self) -> int:
        return min(self.messages, default=self.next)

    def blocked(self, attempt: bytes) -> bool:
        return self.fifo and not self.repeats(attempt) and not all(
            message.ready for message in self.messages.values())

    def repeats(self, attempt: bytes) -> bool:
        return self.fifo and bool(attempt) and attempt == self.attempt and (
            self.committed < self.batch_end)


class History:
    """One run of random steps."""

    def __init__(self, dice: Random, folder: Path) -> None:
        self.dice = dice
        self.path = folder / "popState"
        self.path.unlink(missing_ok=True)
        self.steady, self.wall = 1_000_000, 1_700_000_000_000
        self.boot = self.file_boot = 0
        self.renewed = False           # some message that the file has
        self.file_at = self.at
        self.queues: dict[Key, Queue] = {}
        for group in (b"g", b"other"):
            for number in range(2):
                self.queues[group, b"topic", number] = Queue(fifo=dice.random() < 0.4)
        self.claims: list[tuple[Key, Claim]] = []
        self.clients: set[int] = set()
        self.table: dict[Key, int] = {}
        self.written: list[tuple[int, dict[Key, Queue], Clock]] = []
        self.settled: dict[Key, set[int]] = {key: set() for key in self.queues}
        self.begin()

    @property
    def at(self) -> Clock:
        return self.steady, self.wall

    def begin(self) -> None:
        self.pop = PopProbe()
        is_new = not self.path.exists()
        error, torn_at = self.pop.journal(bytes(self.path), BOOTS[self.boot], self.at)
        assert error == 0
        if is_new or torn_at >= 0 or self.file_boot != self.boot or self.renewed:
            self.file_boot, self.file_at = self.boot, self.at  # it is written anew
        self.open()
        self.clients = set()
        self.pop.expire(self.at)
        self.expire()
        size = self.path.stat().st_size
        assert self.pop.flush(self.at) == 0
        if self.path.stat().st_size > size:
            self.file_at = self.at     # the table's offsets were noted
        self.written = []
        self.note_written(self.file_at)

    def open(self) -> None:
        for key, queue in self.queues.items():
            assert self.pop.open(key, end=queue.end, committed=self.table.get(key, -1),
                                 fifo=queue.fifo)

    def note_written(self, at: Clock) -> None:
        size = self.path.stat().st_size
        if self.written and size < self.written[-1][0]:
            self.written = []          # a new file
        if not self.written or size > self.written[-1][0]:
            self.written.append(
                (size, {key: queue.copy() for key, queue in self.queues.items()}, at))

    # -- what may happen ---------------------------------------------------------------------------

    def step(self) -> None:
        self.dice.choices(
            (self.grow, self.receive, self.ack, self.change, self.pass_time, self.flush,
             self.commit, self.join, self.leave, self.kill, self.move),
            (4, 8, 8, 3, 5, 4, 1, 1, 1, 1, 0.3))[0]()
        self.compare()

    def grow(self) -> None:
        queue = self.dice.choice(list(self.queues.values()))
        queue.end += self.dice.randint(1, 6)
        self.open()

    def receive(self) -> None:
        key = self.dice.choice(list(self.queues))
        queue, dice = self.queues[key], self.dice
        attempt = dice.choice((b"", b"one", b"two"))
        invisible_ms = dice.choice((10, 1_000, 60_000, 10_800_000))
        client = dice.choice([-1, *self.clients])
        renew = dice.random() < 0.3
        filtered = dice.random() < 0.3
        pop_ms = self.pop.batch(self.at, client=client, invisible_ms=invisible_ms, renew=renew,
                                attempt=attempt)
        blocked = queue.blocked(attempt)
        assert self.pop.enter(key) == (BLOCKED if blocked else OK)
        if blocked:
            return
        again, last = queue.repeats(attempt), -1
        first = True
        for _ in range(dice.randint(1, 5)):
            offset = self.pop.peek(key, queue.end)
            self.holds_next(queue, offset, again, last)
            if offset < 0:
                return
            last = offset
            if filtered and offset % 3 == 0:
                self.pop.settle(key, offset, looked=True)
                self.settle(key, offset)
                continue
            claim = self.pop.take(key, offset)
            assert claim is not None
            before = queue.messages.get(offset)
            if before is not None and not again:
                assert before.due <= self.steady               # never visible early
                assert claim[1] > before.pop_ms
            attempts = 1 if before is None else before.attempts + (not again)
            assert claim == (offset, pop_ms, invisible_ms, attempts, False)
            queue.messages[offset] = Message(
                self.steady + invisible_ms, False, pop_ms, invisible_ms, attempts, client,
                max(HOLD_MS // invisible_ms - 1, 0) if renew and client >= 0 else 0)
            queue.next = max(queue.next, offset + 1)
            if queue.fifo and not again:
                queue.batch_end = offset + 1
                queue.attempt = attempt if first else queue.attempt
            first = False
            self.claims.append((key, claim))

    def holds_next(self, queue: Queue, offset: int, again: bool, last: int) -> None:
        ready = {at for at, message in queue.messages.items() if message.ready and at > last}
        if again:
            left = [at for at in queue.messages if last < at < queue.batch_end]
            assert offset == min(left, default=-1)
        elif queue.fifo and ready:
            assert offset == min(ready)
        elif {at for at, message in queue.messages.items() if message.ready}:
            assert queue.messages[offset].ready                 # before what is new
        else:
            assert offset == (queue.next if queue.next < queue.end else -1)

    def settle(self, key: Key, offset: int) -> None:
        queue = self.queues[key]
        if queue.messages.pop(offset, None) is None:
            assert offset == queue.next
            queue.next += 1
        self.settled[key].add(offset)

    def outcome(self, key: Key, claim: Claim) -> int:
        queue = self.queues[key]
        message = queue.messages.get(claim[0])
        if message is not None and message.pop_ms == claim[1]:
            return OK
        if claim[1] + claim[2] <= self.wall:
            return EXPIRED
        return STALE if message is not None or claim[0] < queue.next else UNKNOWN

    def ack(self) -> None:
        if not self.claims:
            return
        key, claim = self.dice.choice(self.claims[-20:])
        outcome = self.outcome(key, claim)
        assert self.pop.ack(key, claim, self.at) == outcome
        if outcome == OK:
            self.settle(key, claim[0])

    def change(self) -> None:
        if not self.claims:
            return
        key, claim = self.dice.choice(self.claims[-20:])
        outcome = self.outcome(key, claim)
        new_ms = self.dice.choice((0, 0, 500, 30_000))
        got, new = self.pop.change(key, claim, new_ms, self.at)
        assert got == outcome
        if outcome != OK:
            return
        queue = self.queues[key]
        before = queue.messages[claim[0]]
        assert new[3] == before.attempts
        assert new[1] == before.pop_ms if queue.fifo else new[1] > before.pop_ms
        queue.messages[claim[0]] = replace(
            before, due=self.steady + new_ms, ready=new_ms == 0, pop_ms=new[1],
            invisible_ms=new_ms, renewals=0,
            client=-1 if before.ready or not new_ms else before.client)
        self.claims.append((key, new))

    def pass_time(self) -> None:
        self.steady += self.dice.choice((0, 5, 500, 999, 30_000, 60_000))
        self.wall += self.dice.choice((0, 1, 500, 60_000, -3_600_000, 3_600_000))
        shown = self.expire()
        while self.pop.expire(self.at, most=3):
            pass
        assert shown <= set(self.pop.woken())

    def expire(self) -> set[Key]:
        """The queues of which something became visible."""
        shown = set()
        for key, queue in self.queues.items():
            for offset, message in queue.messages.items():
                if message.ready or message.due > self.steady:
                    continue
                if message.client in self.clients and message.renewals:
                    queue.messages[offset] = replace(
                        message, due=self.steady + message.invisible_ms,
                        renewals=message.renewals - 1)
                else:
                    queue.messages[offset] = replace(message, ready=True, client=-1)
                    if not queue.fifo:
                        shown.add(key)
        return shown

    def flush(self) -> None:
        assert self.pop.flush(self.at) == 0
        self.note_written(self.at)

    def commit(self) -> None:
        for key, committed in self.pop.commits().items():
            assert committed == self.queues[key].committed
            self.table[key] = committed

    def join(self) -> None:
        self.clients.add(self.pop.client_open())

    def leave(self) -> None:
        if not self.clients:
            return
        client = self.clients.pop()
        while self.pop.client_close(client, self.at, most=2):
            pass
        for queue in self.queues.values():
            for offset, message in queue.messages.items():
                if message.client == client and not message.ready:
                    queue.messages[offset] = replace(
                        message, due=min(message.due, self.steady + 1000), client=-1, renewals=0)

    def move(self) -> None:
        """Others set the group's offset."""
        key = self.dice.choice(list(self.queues))
        queue = self.queues[key]
        offset = self.dice.randint(0, queue.end)
        self.pop.moved(key, offset)
        self.table[key] = offset
        if offset < queue.committed:
            queue.messages.clear()
            queue.next, queue.attempt = offset, b""
        elif offset > queue.committed:
            for at in [at for at in queue.messages if at < offset]:
                del queue.messages[at]
            queue.next = max(queue.next, offset)

    def kill(self) -> None:
        """All processes end; the file may be cut anywhere behind what a new file began with."""
        size, queues, self.file_at = self.written[-1]
        if self.dice.random() < 0.4:
            cut = self.dice.randint(self.written[0][0], size)
            with self.path.open("r+b") as file:
                file.truncate(cut)
            size, queues, self.file_at = [entry for entry in self.written if entry[0] <= cut][-1]
        self.steady += self.dice.randint(0, 2_000)
        shift = 0
        if self.dice.random() < 0.3:
            self.boot ^= 1
            self.steady = self.dice.randint(0, 100_000)
            self.wall += self.dice.choice((0, 700, 3_600_000, -3_600_000))
            shift = self.steady - max(self.wall - self.file_at[1], 0) - self.file_at[0]
        self.renewed = any(message.renewals for queue in queues.values()
                           for message in queue.messages.values())
        for key, queue in queues.items():
            now = self.queues[key] = replace(queue.copy(), end=self.queues[key].end)
            for offset, message in now.messages.items():
                due = min(message.due + shift, self.steady + message.invisible_ms)
                if message.renewals:
                    due = self.steady + message.invisible_ms
                now.messages[offset] = replace(message, due=due, ready=False, client=-1, renewals=0)
            if self.table.get(key, 0) > now.committed:  # the table counts (pop PO10)
                for offset in [at for at in now.messages if at < self.table[key]]:
                    del now.messages[offset]
                now.next = max(now.next, self.table[key])
        self.begin()

    # -- what must be so ---------------------------------------------------------------------------

    def compare(self) -> None:
        assert self.pop.check()
        due = min((message.due for queue in self.queues.values()
                   for message in queue.messages.values() if not message.ready), default=None)
        assert self.pop.next_due() == due
        for key, queue in self.queues.items():
            assert self.pop.offsets(key) == (queue.committed, queue.next, sorted(queue.messages))

    def drain(self) -> None:
        """Every message that is not settled comes, in half a day at the latest."""
        for client in list(self.clients):
            self.pop.client_close(client, self.at)
        self.steady += 43_200_000
        self.pop.expire(self.at)
        for key, queue in self.queues.items():
            expected = sorted(queue.messages) + list(range(queue.next, queue.end))
            got = []
            self.pop.batch(self.at)
            assert self.pop.enter(key) == OK
            while (offset := self.pop.peek(key, queue.end)) >= 0:
                claim = self.pop.take(key, offset)
                assert claim is not None
                got.append(claim)
            assert [claim[0] for claim in got] == expected if queue.fifo else (
                sorted(claim[0] for claim in got) == expected)
            assert all(self.pop.ack(key, claim, self.at) == OK for claim in got)
            assert self.pop.offsets(key) == (queue.end, queue.end, [])
