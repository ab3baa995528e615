"""
A client that does nothing wrong, beside an attack: what it was promised, and how long it waited.

    with Honest(broker.broker_addr) as honest:
        calm = honest.measure()                   # before
        with honest.span() as attacked:
            ...                                   # the attack
        honest.assert_served(attacked, calm)
        honest.check()                            # every acknowledged message, bit for bit

Three connections, each of one thread: one sends, one reads what was sent by long polling, one says
that its group lives (34) and renews its queue lock (41).
"""
from __future__ import annotations

import contextlib
import hashlib
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec

from mqcore.wire.codes import RequestCode
from mqcore.wire.records import Record, decode_records
from tests.support.stretch import Stretch
from tests.wire_live.peer import Closed, Peer, pull_fields, send_fields, topic_fields

PACE_S = 0.01                   # between two sends
BEAT_PACE_S = 0.02              # between two heartbeats, which are two requests each
TIMEOUT_S = 30.0                # of one answer
CALM_SENDS = 100                # of a measurement before an attack
HOLD_MS = 1000
FOUND = 0
PULLED = (FOUND, 19, 20)        # found, nothing new, look again
FLOOR_MS = 100.0                # what a loaded machine may take for nothing


@dataclass
class Span:
    """What was measured from one moment to another; all in ms."""

    sends_ms: list[float] = field(default_factory=list)
    deliveries_ms: list[float] = field(default_factory=list)     # from a send to its arrival
    beats_ms: list[float] = field(default_factory=list)          # heartbeat, then lock
    refusals: list[tuple[int, str]] = field(default_factory=list)
    stretch: float = 1.0             # of the client's own work, by a machine that has other work

    def line(self) -> str:
        return ", ".join(
            f"{name} n {len(values)} p50 {median(values):.1f} p99 {p99(values):.1f} "
            f"max {max(values, default=0):.1f} ms"
            for name, values in (("sends", self.sends_ms), ("deliveries", self.deliveries_ms),
                                 ("beats", self.beats_ms)))


def median(values: list[float]) -> float:
    return statistics.median(values) if values else 0.0


def p99(values: list[float]) -> float:
    return sorted(values)[min(len(values) - 1, len(values) * 99 // 100)] if values else 0.0


class Honest:
    """
    The client; it works from `__enter__` to `__exit__`.

    address: host:port of the broker. reconnects: connections that end are opened again (a broker
    that is killed and started anew); else an end of one is a failure. connect: makes one. rest: so
    many times as long between two requests, beside what takes long.
    """

    def __init__(
        self, address: str, *, topic: str = "honest", reconnects: bool = False, seed: int = 1,
        connect: Callable[[str], Peer] = Peer, rest: float = 1.0,
    ) -> None:
        self._pace_s, self._beat_pace_s = PACE_S * rest, BEAT_PACE_S * rest
        self._address, self._topic, self._reconnects, self._seed = address, topic, reconnects, seed
        self._connect = connect
        self._stop = threading.Event()
        self._changed = threading.Condition()
        self._spans: list[Span] = []
        self._number = 0
        self._began: dict[int, float] = {}
        self._failure: BaseException | None = None
        self.acknowledged: dict[int, int] = {}          # number of the message -> queue offset
        self.received: dict[int, int] = {}
        self._next_offset = 0
        self.beats = 0
        self.every = Span()
        self._threads = [threading.Thread(target=self._guarded, args=(work,), daemon=True)
                         for work in (self._send, self._receive, self._beat)]

    def __enter__(self) -> Honest:
        with self._connect(self._address) as peer:
            answer = peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields(self._topic, 1))
            assert answer.code == 0, (answer.code, answer.remark)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(TIMEOUT_S + 10)
        if kind is None:
            self._raise_failure()

    # -- what tests ask ---------------------------------------------------------------------------

    @contextlib.contextmanager
    def span(self) -> Iterator[Span]:
        """Everything that is answered within the block."""
        made, own = Span(), Stretch.of([os.getpid()])
        with self._changed:
            self._spans.append(made)
        try:
            yield made
        finally:
            made.stretch = own.value()
            with self._changed:
                self._spans.remove(made)
            self._raise_failure()

    def measure(self, sends: int = CALM_SENDS) -> Span:
        """A span of that many answered sends."""
        with self.span() as made:
            self.until(lambda: len(made.sends_ms) >= sends, f"{sends} sends")
        return made

    def until(self, condition: Callable[[], object], what: str, timeout_s: float = 60.0) -> None:
        """Wait until `condition()` is true, or fail at the deadline or with a thread."""
        with self._changed:
            done = self._changed.wait_for(lambda: condition() or self._failure, timeout_s)
        self._raise_failure()
        assert done, f"honest client, not within {timeout_s} s: {what}"

    def caught_up(self) -> None:
        """Wait until all that is acknowledged now was received."""
        due = set(self.acknowledged)
        self.until(lambda: due <= set(self.received), "everything acknowledged is received")

    def assert_served(self, attacked: Span, calm: Span, *, times: float = 3.0,
                      floor_ms: float = FLOOR_MS) -> None:
        """
        Nobody waited much longer (p99) than the worst of the three did before, which says how busy
        the machine is; `floor_ms` may always be.
        """
        kinds = ("sends_ms", "deliveries_ms", "beats_ms")
        limit = max(times * max(p99(getattr(calm, name)) for name in kinds),
                    floor_ms * attacked.stretch)
        for name in kinds:
            now = getattr(attacked, name)
            assert now, f"no {name} in the attack"
            assert p99(now) <= limit, (
                f"{name}: p99 {p99(now):.1f} > {limit:.1f} ms; before: {calm.line()}; "
                f"in the attack: {attacked.line()}")

    def check(self, address: str | None = None) -> None:
        """AssertionError unless every acknowledged message is where it was promised, unchanged."""
        with self._changed:
            due = dict(self.acknowledged)
        found: dict[int, int] = {}
        offset, end = 0, max(due.values(), default=-1) + 1
        deadline = time.monotonic() + TIMEOUT_S
        with self._connect(address or self._address) as peer:
            while offset < end:
                answer = peer.ask(RequestCode.PULL_MESSAGE, pull_fields(
                    self._topic, group="honest-audit", offset=offset))
                if answer.code != FOUND:
                    assert time.monotonic() < deadline, (answer.code, answer.remark, offset, end)
                    continue
                for record in decode_records(answer.body):
                    assert record.queue_offset == offset, (record.queue_offset, offset)
                    found[self._number_of(record)] = offset
                    offset += 1
        lost = {number: where for number, where in due.items() if found.get(number) != where}
        assert not lost, (
            f"{len(lost)} of {len(due)} acknowledged are not there: {lost}")

    # -- its three threads ------------------------------------------------------------------------

    def _send(self, peer: Peer) -> None:
        while not self._stop.wait(self._pace_s):
            self._number += 1
            number, began = self._number, time.monotonic()
            self._began[number] = began
            fields = send_fields(self._topic, properties=f"KEYS\x01h-{number}\x02TAGS\x01t\x02")
            answer = peer.ask(RequestCode.SEND_MESSAGE_V2, fields, self._body(number))
            took = (time.monotonic() - began) * 1000
            with self._changed:
                if answer.code == 0:
                    self.acknowledged[number] = int((answer.ext or {})["queueOffset"] or -1)
                self._note("sends_ms", took)
                if answer.code != 0:
                    for span in (*self._spans, self.every):
                        span.refusals.append((answer.code, answer.remark or ""))

    def _receive(self, peer: Peer) -> None:
        while not self._stop.is_set():
            answer = peer.ask(RequestCode.PULL_MESSAGE, pull_fields(
                self._topic, group="honest-group", sys_flag=6, suspend_ms=HOLD_MS,
                offset=self._next_offset))
            assert answer.code in PULLED, (answer.code, answer.remark)
            now = time.monotonic()
            for record in decode_records(answer.body) if answer.code == FOUND else ():
                number = self._number_of(record)
                with self._changed:
                    self.received[number] = record.queue_offset
                    self._next_offset = record.queue_offset + 1
                    self._note("deliveries_ms", (now - self._began[number]) * 1000)

    def _beat(self, peer: Peer) -> None:
        heartbeat = msgspec.json.encode({
            "clientID": "honest@client",
            "producerDataSet": [{"groupName": "honest-producer"}],
            "consumerDataSet": [{
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "consumeType": "CONSUME_PASSIVELY",
                "groupName": "honest-group", "messageModel": "CLUSTERING", "unitMode": False,
                "subscriptionDataSet": [{
                    "classFilterMode": False, "codeSet": [], "expressionType": "TAG",
                    "subString": "*", "subVersion": 1, "tagsSet": [], "topic": self._topic}]}]})
        lock = msgspec.json.encode({
            "clientId": "honest@client", "consumerGroup": "honest-group",
            "mqSet": [{"brokerName": "any", "queueId": 0, "topic": self._topic}]})
        while not self._stop.wait(self._beat_pace_s):
            began = time.monotonic()
            for code, body in ((RequestCode.HEART_BEAT, heartbeat),
                               (RequestCode.LOCK_BATCH_MQ, lock)):
                answer = peer.ask(code, {}, body)
                assert answer.code == 0, (code, answer.code, answer.remark)
            with self._changed:
                self.beats += 1
                self._note("beats_ms", (time.monotonic() - began) * 1000)

    # -- helpers ----------------------------------------------------------------------------------

    def _guarded(self, work: Callable[[Peer], None]) -> None:
        while not self._stop.is_set():
            try:
                with self._connect(self._address) as peer:
                    peer.answer_to = _patient(peer.answer_to)      # type: ignore[method-assign]
                    work(peer)
            except (Closed, OSError) as error:
                if not self._reconnects and not self._stop.is_set():
                    self._fail(error)
                self._stop.wait(PACE_S)
            except BaseException as error:
                self._fail(error)
                return

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()
        self._stop.set()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise AssertionError("the honest client failed") from self._failure

    def _note(self, name: str, took_ms: float) -> None:
        for span in (*self._spans, self.every):
            getattr(span, name).append(took_ms)
        self._changed.notify_all()

    def _body(self, number: int) -> bytes:
        digest = hashlib.sha256(f"{self._seed} {number}".encode()).digest()
        return f"{number} ".encode() + digest * (1 + digest[0] % 8)

    def _number_of(self, record: Record) -> int:
        number = int(record.body.split(b" ", 1)[0])
        assert record.body == self._body(number), f"body of message {number}"
        assert f"h-{number}" in str(record.properties), f"properties of message {number}"
        return number


def _patient(answer_to: Callable[..., object]) -> Callable[..., object]:
    """The same with the patience of a client's request, not of a test."""
    return lambda opaque, timeout_s=TIMEOUT_S: answer_to(opaque, timeout_s)
