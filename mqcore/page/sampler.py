"""
One task that looks at a cluster and feeds all pages and the history.

It runs every second while a page is open, once a minute for the history of a day after that, and
not at all before the first page. The expensive question (the lag of all groups) takes a twentieth
of the time at most.
"""
from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from mqcore.admin.nouns import top
from mqcore.client import AsyncAdmin
from mqcore.client.admin import BrokerStatus, Unreachable
from mqcore.page.asking import ERRORS, text_of
from mqcore.page.history import History

WATCHED_S, ALONE_S = 1.0, 60.0
LAG_S = 5.0
COST_SHARE = 20
GROUPS_MAX = 100                       # whose lag has a series, those with the largest
WATCHERS_MAX = 64
QUESTION_S = 4.0

log = logging.getLogger("mqcore.page")


@dataclass(frozen=True)
class Now:
    """
    The newest look at a cluster.

    at        epoch seconds; 0: there was none yet
    rates     messages a second in and out; None: not known yet
    """

    at: float = 0.0
    brokers: tuple[dict[str, Any], ...] = ()
    groups: tuple[dict[str, Any], ...] = ()
    missing: tuple[Unreachable, ...] = ()
    put: float | None = None
    got: float | None = None
    lag: int | None = None
    error: str = ""

    def points(self) -> dict[str, float]:
        """Its values for the history."""
        known = {"in": self.put, "out": self.got, "lag": self.lag}
        return {name: float(value) for name, value in known.items() if value is not None}


class TooManyWatchersError(Exception):
    """There are WATCHERS_MAX open pages that want news."""


@dataclass
class Sampler:
    """admin: the client to ask with; None while no account has logged in."""

    admin: Callable[[], Awaitable[AsyncAdmin | None]]
    clock: Callable[[], float] = time.time
    history: History = field(default_factory=History)
    now: Now = field(default_factory=Now)
    _watchers: int = 0
    _task: asyncio.Task[None] | None = None
    _came: asyncio.Condition = field(default_factory=asyncio.Condition)
    _wanted: asyncio.Event = field(default_factory=asyncio.Event)
    _totals: dict[str, tuple[float, int, int]] = field(default_factory=dict)
    _lags: top.Sample | None = None
    _lags_next: float = 0.0
    _of_groups: tuple[dict[str, Any], ...] = ()

    def begin(self) -> None:
        """Look from now on."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def watch(self) -> AsyncGenerator[Now]:
        """Each new look, until the caller ends it. Raises TooManyWatchersError."""
        if self._watchers >= WATCHERS_MAX:
            raise TooManyWatchersError
        self._watchers += 1
        self._wanted.set()
        self.begin()
        try:
            seen = 0.0
            while True:
                async with self._came:
                    while self.now.at <= seen:
                        await self._came.wait()
                    now = self.now
                seen = now.at
                yield now
        finally:
            self._watchers -= 1

    # -- looking ----------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            began = time.monotonic()
            self.now = await self._look()
            self.history.put(self.now.at, self.now.points())
            self.history.put(self.now.at, _lags_of(self.now.groups))
            async with self._came:
                self._came.notify_all()
            self._wanted.clear()
            rest_s = WATCHED_S if self._watchers else ALONE_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.05, rest_s - (time.monotonic() - began))):
                    await self._wanted.wait()

    async def _look(self) -> Now:
        try:
            async with asyncio.timeout(QUESTION_S):
                admin = await self.admin()
                if admin is None:
                    return Now(self.clock(), error="no account has logged in")
                status = await admin.cluster_status()
                missing = list(status.unreachable)
                await self._look_at_lags(admin, missing)
        except TimeoutError:
            return Now(self.clock(), error=f"no answer within {QUESTION_S:g} s")
        except ERRORS as error:
            return Now(self.clock(), error=text_of(error))
        now_s = self.clock()
        put, got = self._rates(tuple(status), now_s)
        lag = None if self._lags is None else sum(row["lag"] for row in self._of_groups)
        return Now(now_s, tuple(top.broker_row(one) for one in status), self._of_groups,
                   tuple({one.address: one for one in missing}.values()), put, got, lag)

    async def _look_at_lags(self, admin: AsyncAdmin, missing: list[Unreachable]) -> None:
        began = time.monotonic()
        if began < self._lags_next:
            return
        found = await admin.backlogs()
        missing += found.unreachable
        before, self._lags = self._lags, top.sample(found, every=False)
        self._of_groups = tuple(top.group_rows(before or self._lags, self._lags))
        took = time.monotonic() - began
        self._lags_next = began + max(LAG_S if before else WATCHED_S, took * COST_SHARE)

    def _rates(
        self, status: tuple[BrokerStatus, ...], now_s: float,
    ) -> tuple[float | None, float | None]:
        """
        Messages a second, of counters between two looks: brokers themselves tell the mean of ten
        seconds, which stands where there is no look before.
        """
        put = got = 0.0
        for one in status:
            if one.broker_id:                                # a slave stores what its master did
                continue
            before = self._totals.get(one.address)
            self._totals[one.address] = now_s, one.put_today, one.get_today
            seconds = now_s - before[0] if before else 0.0
            if before is None or not 0 < seconds < 2 * ALONE_S or one.put_today < before[1]:
                put, got = put + one.put_tps, got + one.get_tps
            else:
                put += (one.put_today - before[1]) / seconds
                got += max(0, one.get_today - before[2]) / seconds
        for address in set(self._totals) - {one.address for one in status}:
            del self._totals[address]
        return (put, got) if status else (None, None)


def _lags_of(rows: tuple[dict[str, Any], ...]) -> dict[str, float]:
    """The series of groups, each the sum over its topics."""
    lags: dict[str, float] = {}
    for row in rows:                                     # the largest lag first
        name = f"lag {row['group']}"
        if name in lags or len(lags) < GROUPS_MAX:
            lags[name] = lags.get(name, 0.0) + row["lag"]
    return lags
