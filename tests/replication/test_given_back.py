"""Offsets that were committed to a slave go to its master: never backwards, never another log's."""
from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mqcore.broker.tables.own_offsets import OwnOffset
from mqcore.client.errors import BrokerError, broker_error
from mqcore.replication import epochs
from mqcore.replication.epochs import Epoch, History, Standing, State
from mqcore.turns import finished
from mqcore.wire.codes import RequestCode
from mqcore.wire.command import Command
from mqcore.workers.replication import following
from mqcore.workers.replication.following import Following
from tests.broker.fakes import Bench, make_bench, settings_in
from tests.replication.test_metadata import commit
from tests.replication.test_slave_rules import SLAVE

MASTER = "10.0.0.1:10911"
ONE = History("a" * 32, (Epoch(1, 0, "first", 1),))
PARTED = History("a" * 32, (Epoch(1, 0, "first", 1), Epoch(2, 60, "second", 2)))


class Link(Following):
    """A slave's questions to a master in the same process."""

    def __init__(self, slave: Bench, master: Bench) -> None:
        super().__init__(slave.broker.core, finished, lambda: slave.store.log_range()[1])
        self.asked: list[int] = []
        self._bench = master
        self.adopt(MASTER)

    async def _call(self, code: RequestCode, ext: dict[str, Any] | None = None, *,
                    may_have_none: bool = False) -> Command:
        self.asked.append(code)
        answer = self._bench.ask(code, ext or {})
        if answer.code and not may_have_none:
            raise broker_error(answer.code, answer.remark, MASTER)
        return answer


@pytest.fixture
def master(tmp_path: Path) -> Bench:
    return bench(tmp_path / "master", 100)


@pytest.fixture
def slave(tmp_path: Path) -> Bench:
    return bench(tmp_path / "slave", 100, *SLAVE)


def bench(folder: Path, log_end: int, *settings: str, history: History = ONE) -> Bench:
    """A broker whose log ends somewhere."""
    made = make_bench(settings_in(folder, *settings))
    made.store.queues = {("T", queue_id): (0, 30) for queue_id in range(6)}
    made.queues.queues = {("T", queue_id): 30 for queue_id in range(6)}
    made.store.records[log_end] = made.store.records.get(log_end)      # type: ignore[assignment]
    epochs.write(made.broker.core.settings.store_root, Standing(
        history, State.FOLLOWS if settings else State.LEADS))
    return made


def round_of(link: Link) -> None:
    """What is due, and what was wrong is none of the log's business."""
    async def once() -> None:
        await link.round()
        await link.close()
    asyncio.run(once())


def given(master: Bench, offset: int) -> dict[int, int]:
    answer = master.ask(15, {"consumerGroup": "G", "topic": "T", "queueId": 0,
                             "commitOffset": offset, "givenBack": "true"})
    assert answer.code == 0
    return master.broker.core.offsets.of_queues("G", "T")


def test_what_a_slave_gives_back_takes_nobody_backwards(master: Bench) -> None:
    assert given(master, 5) == {0: 5}
    commit(master, 9)                                         # the consumer has come back

    assert given(master, 7) == {0: 9}
    assert given(master, 11) == {0: 11}
    assert given(master, 31) == {0: 11}                       # of a queue that was deleted since
    commit(master, 2)                                         # a consumer's own word counts as ever
    assert master.broker.core.offsets.of_queues("G", "T") == {0: 2}


@pytest.mark.parametrize(("history", "master_end", "told"), [
    (ONE, 100, True), (ONE, 300, True), (ONE, 99, False), (PARTED, 300, False)])
def test_offsets_of_a_log_that_the_master_has_not_stay_where_they_are(
    tmp_path: Path, slave: Bench, history: History, master_end: int, told: bool,
) -> None:
    """A master that lost its tail stores other messages at the places that the group has read."""
    master = bench(tmp_path / "master", master_end, history=history)
    commit(slave, 30)

    round_of(Link(slave, master))

    assert master.broker.core.offsets.of_queues("G", "T") == ({0: 30} if told else {})
    assert slave.broker.core.offsets.of_queues("G", "T") == {0: 30}
    assert slave.broker.core.own_offsets.all() == ([] if told else [OwnOffset("G", "T", 0, 30)])


def test_one_that_the_master_refuses_keeps_no_other_back(
    slave: Bench, master: Bench, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(following, "GIVEN_BACK_MAX", 2)
    before = Link._give_back

    async def refusing(link: Link, one: OwnOffset) -> None:
        if one.group.startswith("Bad"):
            raise BrokerError(1, "no room")
        await before(link, one)

    monkeypatch.setattr(Link, "_give_back", refusing)
    for group in ("Bad1", "Bad2", "G"):
        commit(slave, 30, group=group)
    link = Link(slave, master)

    round_of(link)
    round_of(link)

    assert master.broker.core.offsets.of_queues("G", "T") == {0: 30}
    assert {one.group for one in slave.broker.core.own_offsets.all()} == {"Bad1", "Bad2"}


def test_many_go_back_without_asking_for_a_long_table_again(
    slave: Bench, master: Bench, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(following, "GIVEN_BACK_MAX", 2)
    monkeypatch.setattr(following, "SMALL_BYTES_MAX", -1)
    for queue_id in range(6):
        commit(slave, 30, queue_id)
    link = Link(slave, master)

    for _ in range(3):
        round_of(link)

    assert len(master.broker.core.offsets.of_queues("G", "T")) == 6
    assert link.asked.count(RequestCode.GET_ALL_CONSUMER_OFFSET) == 1


def test_a_stock_master_whose_queue_is_shorter_gets_nothing(
    slave: Bench, master: Bench, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Link, "_is_ours", property(lambda _: False, lambda *_: None),
                        raising=False)
    master.store.queues["T", 0] = 0, 25
    commit(slave, 28, 0)
    commit(slave, 28, 1)

    round_of(Link(slave, master))

    assert master.broker.core.offsets.of_queues("G", "T") == {1: 28}
    assert slave.broker.core.own_offsets.all() == [OwnOffset("G", "T", 0, 28)]
