"""A slave of ours hears of changed tables at once; what that costs has bounds."""
from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mqcore.broker.request import Request
from mqcore.broker.tables.table_waits import (
    NAMES_GATHER_MS,
    OFFSETS_GATHER_MS,
    WAIT_MS_MAX,
    WAITS_MAX,
)
from mqcore.wire.codes import RequestCode
from mqcore.wire.command import FLAG_ONEWAY, Command
from mqcore.workers.replication import following
from tests.broker.fakes import Bench, make_bench, settings_in
from tests.replication.pairs import NAME, table
from tests.replication.test_given_back import Link, bench
from tests.replication.test_metadata import TOPIC, commit
from tests.replication.test_slave_rules import SLAVE
from tests.support.mqcore_process import mqcore_namesrv, mqcore_up
from tests.support.waiting import wait_until
from tests.wire_live.state import State

CODE = RequestCode.HEAR_OF_TABLES


@pytest.fixture
def master(tmp_path: Path) -> Bench:
    return make_bench(settings_in(tmp_path / "master"))


def ask(bench: Bench, connection: int = 1, wait_ms: int = 1000, **known: str) -> Any:
    """A slave that knows all there is, but for what is said otherwise."""
    versions = bench.broker.core.versions()
    return bench.ask(CODE, {
        "topicsKnown": versions.topics, "groupsKnown": versions.groups,
        "offsetsKnown": versions.offsets, "waitMillis": wait_ms, **known}, connection=connection)


def told(bench: Bench, later_ms: int = 0) -> list[tuple[int, str | None]]:
    """(connection, whether tables have changed) of each answer until then."""
    bench.now_ms += later_ms
    bench.broker.tick(bench.now_ms)
    found = [(connection, (answer.ext or {}).get("tablesChanged"))
             for connection, answer in bench.connections.sent]
    bench.connections.sent.clear()
    return found


def due(bench: Bench) -> int | None:
    return bench.broker.core.waits.due_in_ms(bench.broker.core.versions, bench.now_ms)


# -- what a master says ----------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["topic", "group"])
def test_a_changed_name_is_told_after_some_milliseconds(master: Bench, change: str) -> None:
    assert ask(master) is None
    assert (due(master), told(master)) == (None, [])
    if change == "topic":
        master.ask(17, TOPIC)
    else:
        master.ask(200, None, {"groupName": "G"})
    master.connections.sent.clear()

    assert due(master) == NAMES_GATHER_MS
    assert told(master, NAMES_GATHER_MS - 1) == []
    assert told(master, 1) == [(1, "true")]
    assert (len(master.broker.core.waits), due(master)) == (0, None)


def test_offsets_are_gathered_for_longer_and_a_name_does_not_wait_for_them(master: Bench) -> None:
    assert ask(master) is None
    commit(master, 5)
    assert due(master) == OFFSETS_GATHER_MS
    assert told(master, OFFSETS_GATHER_MS - 10) == []
    commit(master, 6)
    assert due(master) == 10                              # from the first one on
    assert told(master, 10) == [(1, "true")]

    assert ask(master) is None
    commit(master, 7)
    assert due(master) == OFFSETS_GATHER_MS
    master.ask(200, None, {"groupName": "G"})
    assert due(master) == NAMES_GATHER_MS


def test_who_knows_another_version_hears_it_soon(master: Bench) -> None:
    assert ask(master, offsetsKnown="another") is None
    assert told(master) == []
    assert told(master, OFFSETS_GATHER_MS) == [(1, "true")]


def test_who_does_not_name_offsets_does_not_wait_for_them(master: Bench) -> None:
    versions = master.broker.core.versions()
    assert master.ask(CODE, {"topicsKnown": versions.topics, "groupsKnown": versions.groups,
                             "waitMillis": 1000}) is None
    commit(master, 5)
    assert (due(master), told(master, 999)) == (None, [])
    assert told(master, 1) == [(1, "false")]


def test_a_wait_ends_with_its_time_its_connection_and_the_next_one(master: Bench) -> None:
    assert ask(master, 1, wait_ms=30) is None
    assert ask(master, 2) is None
    assert ask(master, 3, wait_ms=1 << 30) is None
    assert {1, 2, 3} <= master.broker.connections()
    assert told(master, 30) == [(1, "false")]
    master.broker.connection_closed(2)
    assert not master.broker.knows(2)
    assert told(master, WAIT_MS_MAX) == [(3, "false")]

    assert ask(master, 1, topicsKnown="older") is None
    assert ask(master, 1) is None                         # its connection asks anew
    assert told(master, 100) == []


def test_there_are_as_many_waits_as_slaves_and_each_keeps_little(master: Bench) -> None:
    for connection in range(WAITS_MAX):
        assert ask(master, connection) is None
    beyond = ask(master, WAITS_MAX, topicsKnown="older")
    assert (beyond.code, beyond.ext) == (0, {"tablesChanged": "false"})
    assert ask(master, 0) is None                         # whoever has a place keeps it
    assert ask(master, 1, groupsKnown="v" * 65).code == 1
    assert ask(master, 1, waitMillis="soon").code == 1
    assert len(master.broker.core.waits) == WAITS_MAX


@pytest.mark.parametrize("flag", [0, FLAG_ONEWAY])
def test_a_wait_keeps_nothing_long_and_who_is_not_told_does_not_wait(
    master: Bench, flag: int,
) -> None:
    command = Command(CODE, flag=flag, remark="r" * 100_000, body=b"b" * 100_000, ext={
        "topicsKnown": "older", "groupsKnown": "g", "waitMillis": "1000", "more": "m" * 100_000})
    assert master.broker.handle(Request(1, "10.0.0.1:4000", command, master.now_ms)) is None
    if flag == FLAG_ONEWAY:
        assert not master.broker.knows(1)
        return
    assert (command.remark, command.ext, command.body) == (None, None, b"")
    assert told(master) == []
    assert told(master, NAMES_GATHER_MS) == [(1, "true")]


# -- what a slave makes of it ----------------------------------------------------------------------


class Hearing(Link):
    """A slave whose master answers HEAR_OF_TABLES by hand."""

    def __init__(self, slave: Bench, master: Bench) -> None:
        super().__init__(slave, master)
        self.waits: list[dict[str, Any]] = []
        self.news = asyncio.Event()

    async def _call(self, code: RequestCode, ext: dict[str, Any] | None = None, *,
                    may_have_none: bool = False) -> Command:
        if code != CODE:
            return await super()._call(code, ext, may_have_none=may_have_none)
        self.waits.append(ext or {})
        await self.news.wait()
        self.news.clear()
        return Command(0, ext={"tablesChanged": "true"})


async def until(found: Any) -> None:
    async with asyncio.timeout(60):
        while not found():
            await asyncio.sleep(0)


@pytest.fixture
def slave(tmp_path: Path) -> Bench:
    return bench(tmp_path / "slave", 100, *SLAVE)


def test_a_slave_asks_again_when_its_master_has_news(
    slave: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pauses of an hour: what it hears in between it heard by being told."""
    monkeypatch.setattr(following, "OURS_INTERVAL_S", 3600.0)
    monkeypatch.setattr(following, "REST_SHARE", 0)
    monkeypatch.setattr(Hearing, "_interval_s", 3600.0)
    master = bench(tmp_path / "leads", 100)

    async def follow() -> None:
        link = Hearing(slave, master)
        keeping = asyncio.create_task(link.run())
        await until(lambda: len(link.waits) == 1)
        versions = master.broker.core.versions()
        assert (link.waits[0]["topicsKnown"], link.waits[0]["groupsKnown"]) == versions[:2]
        assert link.waits[0]["offsetsKnown"] == versions.offsets
        for number in range(2, 4):
            commit(master, number)
            master.ask(17, {**TOPIC, "topic": f"T{number}"})
            link.news.set()
            await until(lambda number=number: len(link.waits) == number)
            assert slave.broker.core.offsets.committed("G", "T", 0) == number
            assert f"T{number}" in slave.tables.topics
        link.adopt("10.0.0.2:10911")                      # does not wait for the former one's word
        await until(lambda: len(link.waits) == 4)
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await link.close()

    asyncio.run(follow())


def test_an_answer_that_never_comes_is_waited_for_a_little_longer(
    slave: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A master's coordinator that is killed forgets who waits."""
    monkeypatch.setattr(following, "OURS_INTERVAL_S", 0.03)
    monkeypatch.setattr(following, "REST_SHARE", 0)
    monkeypatch.setattr(following, "HEAR_GRACE_S", 0.01)
    monkeypatch.setattr(following, "CALL_TIMEOUT_S", 3600.0)

    async def follow() -> None:
        link = Hearing(slave, bench(tmp_path / "leads", 100))
        keeping = asyncio.create_task(link.run())
        await until(lambda: len(link.waits) == 3)
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await link.close()

    asyncio.run(follow())


def refuse(_core: object, _body: bytes) -> None:
    raise following.AnswerError("there are too many")


def test_what_is_not_taken_over_is_not_waited_for(
    slave: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its master would say at once that it has another, each time, and all would be asked for."""
    monkeypatch.setattr(following, "RETRY_S", 0.03)
    monkeypatch.setattr(following, "REST_SHARE", 0)
    monkeypatch.setattr(following, "take_topics", refuse)
    master = bench(tmp_path / "leads", 100)
    master.ask(17, TOPIC)

    async def follow() -> None:
        link = Hearing(slave, master)
        keeping = asyncio.create_task(link.run())
        await until(lambda: link.asked.count(RequestCode.GET_ALL_TOPIC_CONFIG) == 3)
        assert link.looks                                 # it is in trouble
        assert link.waits == []
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await link.close()

    asyncio.run(follow())


def test_what_goes_back_to_the_master_or_is_large_is_not_waited_for(
    slave: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    master = bench(tmp_path / "leads", 100)
    link = Link(slave, master)

    async def look() -> None:
        await link.round()
        assert link._offsets_awaited == master.broker.core.offsets.version
        commit(slave, 31)                                 # further than the master's queue
        assert link._offsets_awaited is None
        slave.broker.core.own_offsets.forget()
        assert link._offsets_awaited is not None
        monkeypatch.setattr(following, "SMALL_BYTES_MAX", 1)
        assert link._offsets_awaited is None
        await link.close()

    asyncio.run(look())


@pytest.mark.parametrize(("took_s", "worked_s", "pause_s", "rest"), [
    (0.0, 0.0, 1.0, following.REST_S), (0.03, 0.03, 1.0, 0.57), (0.5, 0.5, 1.0, 1.0),
    (0.0, 0.0, 0.001, 0.001), (0.3, 0.002, 1.0, 0.3), (0.025, 0.001, 1.0, 0.025)])
def test_a_slave_rests_for_many_times_what_a_round_takes_of_a_processor(
    took_s: float, worked_s: float, pause_s: float, rest: float,
) -> None:
    """
    Floods of changes cost each slave, and the master for it, a share of the time. Nobody waits for
    what others did meanwhile: a round whose processor they had is no reason to rest longer.
    """
    assert following.rest_s(took_s, worked_s, pause_s) == pytest.approx(rest)


def test_what_a_round_takes_is_its_own_threads_time(
    slave: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SimpleNamespace(now=100.0, worked=7.0)
    found: list[tuple[float, ...]] = []

    class Slow(Link):
        async def round(self) -> float:
            clock.now += 0.5
            clock.worked += 0.002
            return 3600.0

    def rest_s(*given: float) -> float:
        found.append(given)
        return 3600.0

    monkeypatch.setattr(following, "rest_s", rest_s)
    monkeypatch.setattr(following, "time", SimpleNamespace(
        monotonic=lambda: clock.now, thread_time=lambda: clock.worked))

    async def follow() -> None:
        link = Slow(slave, bench(tmp_path / "leads", 100))
        keeping = asyncio.create_task(link.run())
        await until(lambda: found)
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await link.close()

    asyncio.run(follow())
    assert found == [pytest.approx((0.5, 0.002, 3600.0))]


# -- brokers as processes --------------------------------------------------------------------------

TOLD_ALONE = """
from mqcore.broker.tables import table_waits
from mqcore.workers.replication import following
table_waits.WAIT_MS_MAX = 3_600_000
following.OURS_INTERVAL_S = 3600.0
from mqcore.admin.cli import main
main()
"""


def test_what_changes_at_a_master_is_at_its_slave_without_a_question(tmp_path: Path) -> None:
    """Rounds are ten minutes apart: the slave hears of it, or fails."""
    told_alone = (sys.executable, "-c", TOLD_ALONE)
    with (
        mqcore_namesrv(tmp_path / "names") as names,
        mqcore_up(tmp_path / "master", {"broker.name": NAME, "replication.listen": True},
                  namesrv_addr=names.namesrv_addr, program=told_alone) as master,
        mqcore_up(tmp_path / "slave", {
            "replication.role": "slave", "broker.id": 1, "broker.name": NAME,
            "replication.metadata_interval_ms": 600_000,
        }, namesrv_addr=names.namesrv_addr, program=told_alone) as slave,
        State(master.broker_addr) as peer,
    ):
        def alike() -> bool:
            return all(table(slave.broker_addr, code) == table(master.broker_addr, code)
                       for code in (21, 201, 43))

        wait_until(alike, "the first round")
        for number in range(2):
            peer.topic(f"Told{number}", 3)
            wait_until(alike, "the topic")
            assert peer.ask(15, {"consumerGroup": "TOOLS_CONSUMER", "topic": f"Told{number}",
                                 "queueId": "2", "commitOffset": "41"}).code == 0
            wait_until(alike, "the offset")
