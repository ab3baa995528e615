"""
Statistics by request and by the clock (broker.md 11, remoting.md 4.4, 5.4).

RocketMQ 4.9.8: AdminBrokerProcessor, BrokerStatsData, BrokerStats.
"""
from __future__ import annotations

from mqcore.broker.core import Core
from mqcore.broker.requests import Answer, Fields, Request, refused
from mqcore.broker.statistics import Window
from mqcore.wire import fastjson
from mqcore.wire.codes import ResponseCode


def view_statistics(core: Core, request: Request) -> Answer:
    """VIEW_BROKER_STATS_DATA (315): sum and rate of an item's three windows."""
    fields = Fields.of(request.command)
    name, key = fields.text("statsName"), fields.text("statsKey")
    windows = core.statistics.windows(name, key)
    if windows is None:
        return refused(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")
    return Answer(ResponseCode.SUCCESS, body=fastjson.dumps({
        "statsDay": _window(windows.day), "statsHour": _window(windows.hour),
        "statsMinute": _window(windows.minute),
    }))


def take_sample(core: Core, now_ms: int) -> None:
    """Feed the statistics, if it is time."""
    if not core.statistics.is_due(now_ms):
        return
    store = core.ports.store
    consumed = {
        (topic, group): count
        for (topic, group), count in core.offsets.advances(store).items()
        if group in core.clients.consumers
    }
    core.statistics.sample(
        now_ms, core.settings.broker.cluster, core.ports.queues.growth(), consumed,
        core.ports.figures.totals(),
    )


def totals(core: Core) -> dict[str, str]:
    """Messages stored and handed out until now and until the last two midnights (11.3)."""
    yesterday, today = core.statistics.totals_at_midnight
    now = core.ports.figures.totals()
    return {
        f"msg{what}Total{when}": str(pair[place])
        for place, what in enumerate(("Put", "Get"))
        for when, pair in (
            ("YesterdayMorning", yesterday), ("TodayMorning", today), ("TodayNow", now))
    }


def _window(window: Window) -> dict[str, float]:
    """Without avgpt, messages a call: calls are not counted by topic or group."""
    return {"sum": window.total, "tps": window.tps}
