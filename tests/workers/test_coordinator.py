"""An error that belongs to no request ends the coordinator, which is then started anew."""
from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, NoReturn

import pytest

from mqcore.broker.registration import BrokerRegistration
from mqcore.broker.settings.changed import ChangedSettings
from mqcore.participants import COORDINATOR
from mqcore.shm.figure_slots import FigureSlots
from mqcore.shm.leadership import LeadershipPen
from mqcore.shm.segment import Segment
from mqcore.turns import Job, finished
from mqcore.workers.coordinator.coordinator import Coordinator
from mqcore.workers.coordinator.forwarded import ForwardedRequests
from mqcore.workers.coordinator.registrar import Registrar
from mqcore.workers.coordinator.request_times import RequestTimes
from mqcore.workers.process.inherited import Inherited, Listeners
from tests.broker.fakes import make_bench, settings_in
from tests.shm.test_segment import SMALL
from tests.store.harness import new_segment

DEADLINE_S = 60.0


class Bug(Exception):
    """What a mistake of ours raises."""


class Quiet:
    """Rings, own messages, queues, reader, registrar, figures without any work."""

    def receive(self, _: int) -> list[Any]:
        return []

    def no(self, *_: object) -> bool:
        return False

    has_work = has_results = push_waiting = push = put = tick = forget_deleted = no
    lost = say_done = look = gather = no

    leads_elected = False

    async def register_now(self, _: object) -> int:
        return 0


class Failing(Quiet):
    def receive(self, _: int) -> NoReturn:
        raise Bug("a ring")

    def tick(self, *_: object) -> NoReturn:
        raise Bug("a tick")


class Bench(Coordinator):
    """A coordinator whose ports do nothing."""

    def _start(self) -> None:
        self._collector: Any = Quiet()
        self._figures: Any = Quiet()
        self._rings: Any = Quiet()
        self._own: Any = Quiet()
        self._queues: Any = Quiet()
        self._reader: Any = Quiet()
        self._checks: Any = Quiet()
        self._registrar: Any = Quiet()
        self._following = None
        self._broker = make_bench(self._settings).broker
        self._times = RequestTimes(self._segment)
        self._requests = ForwardedRequests(
            self._broker, self._rings, self._gone, self._now_ms, self._times)
        self._registrar.settings = self._broker.core.settings

    def _take_checks(self) -> None: ...


@pytest.mark.parametrize("where", ["_rings", "_queues"])
def test_a_failure_outside_a_request_ends_the_process(tmp_path: Path, where: str) -> None:
    segment = Segment.create("/mqcore-test-coordinator", **SMALL, kind="memfd")
    segment.make_bells()
    settings = settings_in(tmp_path)
    coordinator = Bench(Inherited(
        settings, ChangedSettings(settings), segment, Listeners(), embedded_namesrv=False,
        namesrv_account=None, kept_access=None))

    def break_it() -> None:
        setattr(coordinator, where, Failing())
        os.eventfd_write(segment.bell(COORDINATOR.slot), 1)

    with pytest.raises(Bug):
        asyncio.run(asyncio.wait_for(coordinator.run(break_it), DEADLINE_S))


def test_a_slaves_tables_have_no_age_before_it_has_asked_for_them(tmp_path: Path) -> None:
    """The process before this one had taken some over: its figure is in shared memory still."""
    segment = Segment.create("/mqcore-test-coordinator", **SMALL, kind="memfd")
    settings = settings_in(tmp_path, "replication.role=slave", "broker.id=1",
                           "replication.master_address=127.0.0.1:1")
    figures = FigureSlots(segment)
    figures.put("tables_age_ms", 7)
    coordinator = Bench(Inherited(
        settings, ChangedSettings(settings), segment, Listeners(), embedded_namesrv=False,
        namesrv_account=None, kept_access=None))
    coordinator._start()
    coordinator._figures = figures

    coordinator._follower()

    assert figures.total("tables_age_ms") == -1


def test_a_stop_while_a_registration_is_made_is_a_clean_one() -> None:
    """Its job is done after the stop began: nobody waits for it any more."""
    coordinator = Coordinator.__new__(Coordinator)
    jobs: list[Job] = []

    class Registering:
        def registration(self) -> Job:
            yield

        @property
        def core(self) -> Registering:
            return self

    async def stopped() -> None:
        coordinator._spawn = jobs.append          # type: ignore[method-assign]
        coordinator._broker = Registering()       # type: ignore[assignment]
        registering = asyncio.get_running_loop().create_task(coordinator._register())
        await asyncio.sleep(0)
        registering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await registering
        finished(jobs.pop())

    asyncio.run(stopped())


def test_nothing_is_registered_once_the_broker_has_begun_to_unregister(tmp_path: Path) -> None:
    """A topic may come to be saved then: a name server would keep a broker that has gone."""
    async def late() -> tuple[int, int]:
        settings = settings_in(tmp_path, "broker.namesrv_addrs=127.0.0.1:1")
        registrar = Registrar(settings, lambda _: None, lambda *_: None,
                              LeadershipPen(new_segment()), account=None)
        await registrar.stop()
        done: list[bool] = []
        registrar.register(BrokerRegistration({}, b""), one_way=True,
                           done=lambda: done.append(True))
        return len(done), len(registrar._tasks)

    assert asyncio.run(late()) == (1, 0)
