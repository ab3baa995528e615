"""
Those who need a name server, beside an attack: a client that asks for routes, a broker that
registers.

    with HonestNames(address) as honest:
        calm = honest.measure()                   # before
        with honest.span() as attacked:
            ...                                   # the attack

Each has a connection and a thread. What they are answered is checked.
"""
from __future__ import annotations

import contextlib
import itertools
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from typing import Self

from mqcore.wire.codes import RequestCode
from mqcore.wire.command import Command
from tests.acl.test_broker import Signer
from tests.namesrv.harness import registration

ROUTES, REGISTRATIONS = "routes", "registrations"
RATES = {ROUTES: 100.0, REGISTRATIONS: 20.0}           # a second
TOPICS = [f"honest-{number}" for number in range(50)]
BROKER, CLUSTER = "honest-broker", "honest-cluster"
NUMBERS = itertools.count(1)           # of brokers
CHANGES = 5                            # registrations, of which one has another version
TIMEOUT_S = 30.0                       # of one answer

Span = dict[str, list[float]]          # what took how many ms


class HonestNames:
    """
    Both of them, from `__enter__` to `__exit__`; account: what they sign with; tls: a context, if
    they come by TLS; rates: how often each asks in a second.
    """

    def __init__(self, address: str, *, account: tuple[str, str] | None = None,
                 tls: ssl.SSLContext | None = None, rates: dict[str, float] = RATES) -> None:
        self._connect = lambda: Signer(address, account, tls=tls)
        self._rates = rates
        self._stop = threading.Event()
        self._changed = threading.Condition()
        self._spans: list[Span] = []
        self._failure: BaseException | None = None
        self._registered = 0
        number = next(NUMBERS)
        self._name, self._address = f"{BROKER}-{number}", f"10.0.0.{number}:10911"
        self._threads = [threading.Thread(target=self._guarded, args=(kind, ask), daemon=True)
                         for kind, ask in ((REGISTRATIONS, self._register), (ROUTES, self._route))]

    def __enter__(self) -> Self:
        with self._connect() as peer:
            self._keeper = self._connect()         # a broker lives as long as its connection
            self._register(self._keeper)
            self._route(peer)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(TIMEOUT_S + 10)
        self._keeper.close()
        if kind is None:
            self._raise_failure()

    @contextlib.contextmanager
    def span(self) -> Iterator[Span]:
        """Everything that is answered within the block."""
        made: Span = {kind: [] for kind in self._rates}
        with self._changed:
            self._spans.append(made)
        try:
            yield made
        finally:
            with self._changed:
                self._spans.remove(made)
            self._raise_failure()

    def measure(self, registrations: int = 10) -> Span:
        """A span of that many registrations, and routes meanwhile."""
        with self.span() as made:
            self.until(lambda: len(made[REGISTRATIONS]) >= registrations, "registrations")
        return made

    def until(self, condition: Callable[[], object], what: str, timeout_s: float = 60.0) -> None:
        """Wait until `condition()` is true, or fail at the deadline or with a thread."""
        with self._changed:
            done = self._changed.wait_for(lambda: condition() or self._failure, timeout_s)
        self._raise_failure()
        assert done, f"at the name server, not within {timeout_s} s: {what}"

    # -- what they ask -----------------------------------------------------------------------------

    def _register(self, peer: Signer) -> None:
        self._registered += 1
        made = registration(TOPICS, name=self._name, address=self._address, cluster=CLUSTER,
                            counter=1 + self._registered // CHANGES)
        answer = peer.does(made.code, dict(made.ext or {}), made.body)
        assert answer.code == 0, (answer.code, answer.remark)

    def _route(self, peer: Signer) -> None:
        answer: Command = peer.does(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPICS[0]})
        assert answer.code == 0, (answer.code, answer.remark)
        assert self._name.encode() in answer.body

    def _guarded(self, kind: str, ask: Callable[[Signer], None]) -> None:
        try:
            if kind == REGISTRATIONS:      # its connection outlives the last route
                self._ask_on(kind, lambda: ask(self._keeper))
            else:
                with self._connect() as peer:
                    self._ask_on(kind, lambda: ask(peer))
        except BaseException as error:
            with self._changed:
                self._failure = self._failure or error
                self._changed.notify_all()
            self._stop.set()

    def _ask_on(self, kind: str, ask: Callable[[], None]) -> None:
        due = time.monotonic()
        while not self._stop.wait(max(due - time.monotonic(), 0)):
            ask()
            took_ms = 1000 * (time.monotonic() - due)
            with self._changed:
                for span in self._spans:
                    span[kind].append(took_ms)
                self._changed.notify_all()
            due = max(due + 1 / self._rates[kind], time.monotonic())

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise AssertionError("who needs the name server failed") from self._failure
