"""Messages that wait for their time: how many of each delay level, which is due next, how late."""
from __future__ import annotations

import asyncio
import time
from typing import Any

from starlette.responses import Response

from mqcore.admin.nouns.parameters import masters
from mqcore.admin.shell import units
from mqcore.admin.shell.view import Column, Table, View
from mqcore.broker.settings.delay_levels import parse_delay_levels
from mqcore.client import AsyncAdmin, MessageQueue, RocketMQError
from mqcore.client.admin import Unreachable
from mqcore.page.asking import told
from mqcore.page.context import Page
from mqcore.wire.codes import SCHEDULE_TOPIC

LEVELS = (
    Column("BROKER", "broker"), Column("LEVEL", "level", right=True),
    Column("DELAY", "delaySeconds", units.age, right=True),
    Column("WAITING", "waiting", units.count, right=True),
    Column("DELIVERED", "delivered", units.count, right=True),
    Column("NEXT DUE", "nextDue", units.moment),
    Column("LATE", "lateSeconds", lambda late: "-" if not late else units.age(late), right=True),
)


async def delayed(page: Page) -> Response:
    """The levels of all brokers that have had a delayed message."""
    answer = await told(_levels(page.admin), "mqcore topic queue SCHEDULE_TOPIC_XXXX 0 -b BROKER")
    return page.render("delayed.html", "Delayed", {"answer": answer}, listing=page.listing(
        answer, 0, name="broker", flags={
            "lateSeconds": lambda row: "bad" if (row["lateSeconds"] or 0) >= 1 else ""}))


async def _levels(admin: AsyncAdmin) -> View:
    rows: list[dict[str, Any]] = []
    missing: list[Unreachable] = []

    async def one(name: str, address: str) -> None:
        try:
            rows.extend(await _of_broker(admin, name, address))
        except RocketMQError as error:
            missing.append(Unreachable(name, address, error))

    found = await masters(admin, None)
    if SCHEDULE_TOPIC in await admin.topics():
        await asyncio.gather(*(one(name, address) for name, address in found))
    rows.sort(key=lambda row: (row["broker"], row["level"]))
    return View({"levels": rows}, [Table(LEVELS, rows, "no message has been delayed yet")],
                missing=missing)


async def _of_broker(admin: AsyncAdmin, name: str, address: str) -> list[dict[str, Any]]:
    delivered, stats, settings = await asyncio.gather(
        admin.delay_offsets(address), admin.topic_stats(SCHEDULE_TOPIC),
        admin.broker_config(address))
    try:
        delays = parse_delay_levels(settings.get("messageDelayLevel", ""))
    except ValueError:                          # a broker may say anything
        delays = ()
    ends = {one.queue.queue_id + 1: one.max_offset for one in stats.queues
            if one.queue.broker_name == name}
    return list(await asyncio.gather(*(
        _level(admin, name, level, end, delivered.get(level, 0), delays)
        for level, end in sorted(ends.items()) if end)))


async def _level(
    admin: AsyncAdmin, name: str, level: int, end: int, delivered: int, delays: tuple[int, ...],
) -> dict[str, Any]:
    waiting = max(0, end - delivered)
    delay_s = delays[level - 1] / 1000 if 0 < level <= len(delays) else None
    due = None
    if waiting and delay_s is not None:
        try:
            first = await admin.message_at(MessageQueue(SCHEDULE_TOPIC, name, level - 1),
                                           delivered)
            due = first.store_timestamp_ms / 1000 + delay_s
        except RocketMQError:                   # delivered meanwhile, or expired
            due = None
    late = None if due is None else max(0.0, round(time.time() - due, 3))
    return {"broker": name, "level": level, "delaySeconds": delay_s, "waiting": waiting,
            "delivered": delivered, "nextDue": due, "lateSeconds": late}
