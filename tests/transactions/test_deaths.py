"""
Live: whoever is killed with -9 between any two steps of a transaction, what was decided holds.

The steps: prepare, end, being asked, answering. Who dies: each process of the broker, all of them
at once, the producer. tests/transactions/test_histories.py has many more orders, without processes.
"""
from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from mqcore.wire.codes import RequestCode
from mqcore.wire.command import encode, request
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until
from tests.transactions.producer import (
    COMMIT,
    HALF_TOPIC,
    OP_TOPIC,
    ROLLBACK,
    Asked,
    Producer,
)
from tests.wire_live.peer import Closed
from tests.workers.processes import by_role, kill

END_TRANSACTION = 37
ONE_WAY = 2
SETTINGS: dict[str, object] = {
    "broker.transaction_timeout_ms": 200, "broker.transaction_check_interval_ms": 100,
    "broker.transaction_check_max": 10_000,
    # what is not saved when all die is asked about again, all copies of it: twice as many each time
    "broker.offsets_persist_interval_ms": 200,
}
TOPIC, GROUP = "Accounts", "PG"
PROCESSES = ("writer", "dispatcher", "transaction-check", "coordinator", "pull-serving-0")
MOMENTS = ("before", "prepared", "ended", "asked", "answered")
TROUBLE = (Closed, ConnectionError, TimeoutError, AssertionError)
SETTLE_S = 30.0
SLOWER_MS = (2_000, 10_000)         # a machine that takes longer than a round to answer


class Bank:
    """A producer that decides a transaction once and tells whoever asks, over a broker's lives."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.decisions: dict[bytes, int] = {}
        self.prepared: set[bytes] = set()       # the broker has said so
        self.life = contextlib.ExitStack()
        self.begin()
        self.producer.topic_named(TOPIC, 1)

    def begin(self) -> None:
        self.life.close()
        self.broker: MqcoreProcess = self.life.enter_context(mqcore_up(self.folder, SETTINGS))
        self.connect()

    def connect(self) -> None:
        """A producer of the group that the broker knows of."""
        def connected() -> bool:
            try:
                self.producer = Producer(self.broker.broker_addr, GROUP)
            except TROUBLE:
                return False
            return True

        wait_until(connected, "a connection")

    # -- one transaction ---------------------------------------------------------------------------

    def run(self, number: int, die: Callable[[], None], moment: str) -> None:
        """One transaction; `die` is called at the moment."""
        decision = COMMIT if number % 3 else ROLLBACK
        if moment == "before":
            die()
        half = None
        while half is None:
            body = b"%d" % len(self.decisions)
            self.decisions[body] = decision
            try:
                half = self.producer.prepare(TOPIC, body, UNIQ_KEY=body.decode())
            except TROUBLE:
                self.connect()
        self.prepared.add(body)
        if moment == "prepared":
            die()
        if moment in ("asked", "answered"):
            asked = self.asked_about(body)
            if moment == "asked":
                die()
            self.tell(asked, decision)
        else:
            self.tell(half, decision)
        if moment in ("ended", "answered"):
            die()

    def asked_about(self, body: bytes) -> Asked:
        while True:
            try:
                return self.producer.wait_asked(body=body)[0]
            except Closed:
                self.connect()

    def tell(self, half: object, decision: int) -> None:
        """One way, as clients do; nothing is done about an end that is lost with its connection."""
        position = getattr(half, "position", None) or getattr(half, "physical_offset")  # noqa: B009
        offset = getattr(half, "half_offset", None)
        offset = getattr(half, "queue_offset") if offset is None else offset             # noqa: B009
        command = request(END_TRANSACTION, {
            "producerGroup": GROUP, "tranStateTableOffset": str(offset),
            "commitLogOffset": str(position), "commitOrRollback": str(decision),
            "msgId": "m", "fromTransactionCheck": "false"})
        command.flag |= ONE_WAY
        with contextlib.suppress(*TROUBLE):
            self.producer.send(encode(command))

    # -- deaths ------------------------------------------------------------------------------------

    def process_dies(self, role: str) -> None:
        wait_until(lambda: role in by_role(self.broker), f"{role} runs")
        kill(self.broker, role)

    def all_die(self) -> None:
        self.broker.kill()
        self.begin()

    def producer_dies(self) -> None:
        self.producer.close()
        self.connect()

    # -- the end -----------------------------------------------------------------------------------

    def settle(self) -> None:
        """Whatever is asked is answered, until nothing is open."""
        def settled() -> bool:
            try:
                for asked in self.producer.asked:
                    self.tell(asked, self.decisions[asked.record.body])
                self.producer.asked.clear()
                return all(self.producer.offset(topic) >= self.producer.end_of(topic)
                           for topic in (HALF_TOPIC, OP_TOPIC))
            except TROUBLE:
                self.connect()
                return False

        for interval_ms in SLOWER_MS:
            with contextlib.suppress(AssertionError):
                wait_until(settled, "all transactions settled", SETTLE_S / 3)
                return
            self.slow_down(interval_ms)
        wait_until(settled, "all transactions settled", SETTLE_S)

    def slow_down(self, interval_ms: int) -> None:
        """Rounds begin so far apart: an answer is about the last copy, not one before it."""
        answer = self.producer.ask(RequestCode.UPDATE_BROKER_CONFIG, None,
                                   b"transactionCheckInterval=%d" % interval_ms)
        assert answer.code == 0, answer.remark

    def judge(self) -> None:
        seen = Counter(self.producer.stored(TOPIC))
        decided = {body for body in self.prepared if self.decisions[body] == COMMIT}
        assert decided - seen.keys() == set(), "committed and not delivered"
        assert {body for body in seen if self.decisions[body] == ROLLBACK} == set()
        print(f"{len(seen)} delivered, {sum(seen.values()) - len(seen)} of them again")


@pytest.fixture
def bank(tmp_path: Path) -> Iterator[Bank]:
    made = Bank(tmp_path)
    yield made
    made.life.close()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_was_decided_comes_true_whichever_process_is_killed_between_any_two_steps(
    bank: Bank,
) -> None:
    for moment in MOMENTS:
        for number, role in enumerate(PROCESSES):
            bank.run(number, partial(bank.process_dies, role), moment)
    bank.settle()
    bank.judge()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("who", ["all", "producer"])
def test_what_was_decided_comes_true_when_all_processes_are_killed_or_the_producer_is(
    bank: Bank, who: str,
) -> None:
    die = bank.all_die if who == "all" else bank.producer_dies
    for number, moment in enumerate(MOMENTS * 2):
        bank.run(number, die, moment)
    bank.settle()
    bank.judge()
