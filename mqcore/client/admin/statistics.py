"""Counts and rates that brokers keep of topics and groups (broker.md 11)."""
from __future__ import annotations

from typing import Final

from msgspec import Struct

from mqcore.client.admin import arguments
from mqcore.client.admin.bodies import Fields, document
from mqcore.client.admin.groups import Groups
from mqcore.client.admin.link import (
    Found,
    Link,
    Target,
    Unreachable,
    limited,
    some_at_once,
)
from mqcore.client.core.options import check_topic
from mqcore.client.errors import RocketMQError
from mqcore.wire.codes import DLQ_PREFIX, RETRY_PREFIX, RequestCode, ResponseCode

TOPIC_PUT: Final = "TOPIC_PUT_NUMS"
GROUP_GET: Final = "GROUP_GET_NUMS"


class StatsWindow(Struct, frozen=True):
    """Counts of a window: the sum, the sum a second, and the sum a count."""

    sum: int
    tps: float
    average: float


class Stats(Struct, frozen=True):
    """The last minute, hour and day of one count; zeros where the broker has none."""

    minute: StatsWindow
    hour: StatsWindow
    day: StatsWindow

    @property
    def sum_of_day(self) -> int:
        """The day's sum; while that has no part yet, the hour's or the minute's."""
        return self.day.sum or self.hour.sum or self.minute.sum


class TopicActivity(Struct, frozen=True):
    """
    How busy a topic is with one group (statsAll); group "" for a topic without a consumer.

    lag              messages that the group has not consumed
    in_tps, out_tps  messages a second of the last minute
    in_day, out_day  messages of the last 24 hours
    """

    topic: str
    group: str
    lag: int
    in_tps: float
    out_tps: float
    in_day: int
    out_day: int


_NOTHING: Final = StatsWindow(0, 0.0, 0.0)


class Statistics(Groups, Link):
    """What AsyncAdmin does with statistics."""

    @limited
    async def stats(self, name: str, key: str, *, broker: str) -> Stats | None:
        """
        One count of one broker (315); None: it has counted nothing under that name and key.

        name     TOPIC_PUT_NUMS, TOPIC_PUT_SIZE, GROUP_GET_NUMS, ... (remoting.md 4.4)
        key      `topic`, or `topic@group` for the counts of groups
        broker   `host:port` or a name
        """
        arguments.text(name, "name")
        arguments.text(key, "key")
        return await self._stats(await self._address(broker), name, key)

    async def _stats(self, target: Target, name: str, key: str) -> Stats | None:
        answer = await self._ask(target.address, RequestCode.VIEW_BROKER_STATS_DATA,
                                 {"statsName": name, "statsKey": key},
                                 accept=(ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR))
        if answer.code == ResponseCode.SYSTEM_ERROR:
            return None
        body = document(answer, target.address)
        return Stats(*(_window(body.object(part))
                       for part in ("statsMinute", "statsHour", "statsDay")))

    @limited
    async def stats_all(
        self, topic: str | None = None, *, active_only: bool = False
    ) -> Found[TopicActivity]:
        """
        How busy topics are, a group each: one topic, or all (statsAll).

        active_only   leave out what had no message for 24 hours
        """
        arguments.flag(active_only, "active_only")
        topics = [check_topic(topic)] if topic is not None else [
            name for name in await self.topics()
            if not name.startswith((RETRY_PREFIX, DLQ_PREFIX))]

        async def one(name: str) -> tuple[list[TopicActivity], tuple[Unreachable, ...]]:
            try:
                return await self._activity(name)
            except RocketMQError as error:
                if topic is not None:
                    raise
                return [], (Unreachable(name, error.broker, error),)

        answers = await some_at_once(topics, one)
        return Found(
            tuple(row for rows, _ in answers for row in rows
                  if not active_only or row.in_day or row.out_day),
            tuple(failure for _, failures in answers for failure in failures))

    async def _activity(
        self, topic: str
    ) -> tuple[list[TopicActivity], tuple[Unreachable, ...]]:
        targets = await self._readers(topic)
        groups = await self.topic_groups(topic)
        in_tps, in_day, failures = await self._sums(targets, TOPIC_PUT, topic)
        failures += groups.unreachable
        if not groups:
            return [TopicActivity(topic, "", 0, in_tps, 0.0, in_day, 0)], failures
        rows = []
        for group in groups:
            out_tps, out_day, missing = await self._sums(targets, GROUP_GET, f"{topic}@{group}")
            lag = await self._lag(group, topic)
            rows.append(TopicActivity(topic, group, lag.total, in_tps, out_tps, in_day, out_day))
            failures += missing + lag.unreachable
        return rows, failures

    async def _sums(
        self, targets: list[Target], name: str, key: str
    ) -> tuple[float, int, tuple[Unreachable, ...]]:
        answers, failures = await self._read(
            f"statistics of {key}", targets, lambda target: self._stats(target, name, key))
        found = [stats for _, stats in answers if stats is not None]
        return (sum(stats.minute.tps for stats in found),
                sum(stats.sum_of_day for stats in found), failures)


def _window(fields: Fields) -> StatsWindow:
    if not fields.members:
        return _NOTHING
    return StatsWindow(fields.number("sum"), fields.decimal("tps"), fields.decimal("avgpt"))
