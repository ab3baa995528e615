"""
Statistics by request and by the clock (broker.md 11, remoting.md 4.4, 5.4).

RocketMQ 4.9.8: AdminBrokerProcessor, BrokerStatsData, BrokerStats.
"""
from __future__ import annotations

from collections.abc import Generator

from mqcore.broker.core import Core
from mqcore.broker.ports import LastPull
from mqcore.broker.request import ROWS_A_TURN, Answer, Fields, OutcomeJob, Request, answers, refused
from mqcore.broker.requests.statistics_sources import since_last_time
from mqcore.broker.tables.statistics import (
    GROUP_GET_FALL_SIZE,
    GROUP_GET_FALL_TIME,
    Window,
    Windows,
)
from mqcore.turns import Job
from mqcore.wire import fastjson
from mqcore.wire.codes import RequestCode, ResponseCode


@answers(RequestCode.VIEW_BROKER_STATS_DATA)
def view_statistics(core: Core, request: Request) -> OutcomeJob:
    """
    VIEW_BROKER_STATS_DATA (315): sum, rate and sum per call of an item's three windows.

    The two items that are last values have them as sums; stock shows those in its log alone.
    """
    fields = Fields.of(request.command)
    name, key = fields.text("statsName"), fields.text("statsKey")
    if name in (GROUP_GET_FALL_SIZE, GROUP_GET_FALL_TIME):
        windows = yield from _last_value(core, name, key)
    else:
        windows = core.statistics.windows(name, key)
        if windows is None:                # its first message may have come since the last sample
            core.statistics.take_in((yield from since_last_time(core)))
            windows = core.statistics.windows(name, key)
    if windows is None:
        return refused(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")
    return Answer(ResponseCode.SUCCESS, body=fastjson.dumps({
        "statsDay": _window(windows.day), "statsHour": _window(windows.hour),
        "statsMinute": _window(windows.minute),
    }))


def take_sample(core: Core, now_ms: int) -> Job:
    """Feed the statistics; at its time (Statistics.is_due)."""
    counts = yield from since_last_time(core)
    core.statistics.sample(
        now_ms, core.settings.broker.cluster, counts, core.ports.figures.totals(),
        core.wall_ms(now_ms))


def totals(core: Core) -> dict[str, str]:
    """Messages stored and handed out until now and the last two midnights (broker.md 11.3)."""
    yesterday, today = core.statistics.totals_at_midnight
    now = core.ports.figures.totals()
    return {
        f"msg{what}Total{when}": str(pair[place])
        for place, what in enumerate(("Put", "Get"))
        for when, pair in (
            ("YesterdayMorning", yesterday), ("TodayMorning", today), ("TodayNow", now))
    }


def _last_value(
    core: Core, name: str, key: str
) -> Generator[None, None, Windows | None]:
    """How far the newest pull of `queue id@topic@group` was behind, as the sum of all windows."""
    for number, pull in enumerate(core.ports.pulls.last(), 1):
        if number % ROWS_A_TURN == 0:
            yield
        if key == _key(pull):
            value = Window(pull.behind_bytes if name == GROUP_GET_FALL_SIZE else pull.behind_ms)
            return Windows(value, value, value)
    return None


def _key(pull: LastPull) -> str:
    return f"{pull.queue_id}@{pull.topic}@{pull.group}"


def _window(window: Window) -> dict[str, float]:
    return {"avgpt": window.per_call, "sum": window.total, "tps": window.tps}
