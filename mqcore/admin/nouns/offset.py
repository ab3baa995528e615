"""`mqcore offset`: committed offsets: show, reset, set, copy, export, import."""
from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from msgspec.structs import asdict

from mqcore.admin.nouns.parameters import group_argument, group_option, topic_argument, topic_option
from mqcore.admin.shell import files, units
from mqcore.admin.shell.exits import Exit, Failure
from mqcore.admin.shell.runner import Plan, changes, reads
from mqcore.admin.shell.view import Column, Table, Text, View
from mqcore.client import AsyncAdmin, MessageQueue
from mqcore.client.admin import GroupConfig, OffsetReset, QueueReset


@click.group("offset")
def offset_group() -> None:
    """Committed offsets: show, reset, copy, export, import."""


OFFSETS = (
    Column("TOPIC", "topic"), Column("BROKER", "broker"), Column("QUEUE", "queueId", right=True),
    Column("COMMITTED", "consumerOffset", right=True), Column("END", "brokerOffset", right=True),
    Column("LAG", "lag", units.count, right=True),
)


@offset_group.command("show")
@group_argument
@topic_option(help="Only of this topic.")
@reads(items=True)
async def show_command(admin: AsyncAdmin, group: str, topic: str | None) -> View:
    """The offsets that a group has committed, and the ends of its queues."""
    lag = await admin.lag(group, topic)
    rows = [{
        "topic": one.queue.topic, "broker": one.queue.broker_name, "queueId": one.queue.queue_id,
        "consumerOffset": one.consumer_offset, "brokerOffset": one.broker_offset, "lag": one.lag,
    } for one in lag.queues]
    return View({"group": group, "lag": lag.total, "queues": rows},
                [Table(OFFSETS, rows, f"group {group} has committed nothing")],
                items="queues", name="consumerOffset", missing=lag.unreachable)


# -- reset ----------------------------------------------------------------------------------------

RESET = (
    Column("BROKER", "broker"), Column("QUEUE", "queueId", right=True),
    Column("FROM", "before", right=True), Column("TO", "after", right=True),
    Column("MESSAGES", "change", lambda value: "-" if value is None else f"{value:+,}", right=True),
)


@offset_group.command("reset")
@group_argument
@topic_argument
@click.option("--to", "aim", required=True, metavar="TIME|OFFSET|begin|end",
              help="`1h ago`, 2026-01-31T12:00:00+00:00, an offset, begin or end.")
@click.option("--backward-only", is_flag=True, help="Never move an offset forward.")
@changes
async def reset_command(
    admin: AsyncAdmin, group: str, topic: str, aim: str, backward_only: bool,
) -> Plan:
    """
    Move a group to another place of a topic.

    Connected members move by themselves some seconds later. They can be told a time, not an
    offset.
    """
    to = _aim(aim)
    planned = await admin.reset_offsets(group, topic, to=to, force=not backward_only, dry_run=True)

    async def work() -> View:
        done = await admin.reset_offsets(group, topic, to=to, force=not backward_only)
        return _reset_view(done)

    return Plan(_reset_view(planned), work, f"reset group {group} on topic {topic} to {aim}", group)


def _aim(text: str) -> str | int:
    words = {"begin": "earliest", "end": "latest"}
    if text in words:
        return words[text]
    return int(text) if text.isascii() and text.isdigit() else text


def _reset_view(reset: OffsetReset) -> View:
    rows = _reset_rows(reset.queues)
    document = {"group": reset.group, "topic": reset.topic, "online": reset.online, "queues": rows}
    note = "the group is connected: its members move by themselves" if reset.online else ""
    parts = [Table(RESET, rows, f"topic {reset.topic} has no readable queue")]
    return View(document, [*parts, *([Text([note])] if note else [])],
                missing=reset.unreachable)


def _reset_rows(resets: Sequence[QueueReset]) -> list[dict[str, Any]]:
    return [{
        "topic": one.queue.topic, "broker": one.queue.broker_name, "queueId": one.queue.queue_id,
        "before": one.before, "after": one.after,
        "change": None if one.before is None else one.after - one.before,
    } for one in resets]


# -- copy -----------------------------------------------------------------------------------------

@offset_group.command("copy")
@click.argument("source")
@click.argument("target")
@topic_argument
@changes
async def copy_command(admin: AsyncAdmin, source: str, target: str, topic: str) -> Plan:
    """Give group TARGET the offsets that group SOURCE has committed for a topic."""
    of_source = await _committed(admin, source, topic)
    if not of_source:
        raise Failure(f"group {source} has committed nothing for topic {topic}", Exit.NOT_FOUND)
    of_target = await _committed(admin, target, topic)
    online = bool((await admin.members(target)).members)
    planned = [QueueReset(queue, of_target.get(queue), offset)
               for queue, offset in sorted(of_source.items())]
    new_on, settings = await _without_group(admin, target, of_source)

    def view(resets: Sequence[QueueReset]) -> View:
        rows = _reset_rows(resets)
        warning = [Text([f"group {target} is connected: its members commit their own offsets over "
                         "these"])] if online else []
        return View({"source": source, "target": target, "topic": topic, "online": online,
                     "newGroupOn": new_on, "queues": rows},
                    [Table(RESET, rows), *_new_group(target, new_on), *warning])

    async def work() -> View:
        await _make_group(admin, target, new_on, settings)
        return view(await admin.clone_offsets(source, target, topic))

    return Plan(view(planned), work, f"copy offsets of {source} to {target}", target)


async def _committed(admin: AsyncAdmin, group: str, topic: str) -> dict[MessageQueue, int]:
    """Committed offsets of a topic. A query by topic would give 0 for queues without one."""
    return {one.queue: one.consumer_offset for one in (await admin.lag(group)).queues
            if one.queue.topic == topic}


# -- a group that does not exist ------------------------------------------------------------------

async def _without_group(
    admin: AsyncAdmin, group: str, queues: Iterable[MessageQueue],
) -> tuple[list[str], GroupConfig]:
    """
    The brokers of queues that lack a group, and its settings on another one, or the default.
    RocketMQ 5 takes no offsets for a group that does not exist.
    """
    found = await admin.group_config(group)
    silent = {one.name for one in found.unreachable}
    lacking = {queue.broker_name for queue in queues} - {one.broker_name for one in found} - silent
    return sorted(lacking), found[0].config if found else GroupConfig(group)


def _new_group(group: str, brokers: Sequence[str]) -> list[Text]:
    return [Text([f"group {group} is new on {', '.join(brokers)}"])] if brokers else []


async def _make_group(
    admin: AsyncAdmin, group: str, brokers: Sequence[str], settings: GroupConfig,
) -> None:
    given = asdict(settings)
    del given["name"]
    for broker in brokers:
        await admin.create_group(group, broker=broker, **given)


# -- export, import -------------------------------------------------------------------------------

@offset_group.command("export")
@group_argument
@reads()
async def export_command(admin: AsyncAdmin, group: str) -> View:
    """Print a group's offsets as a document that `import` reads, here or in another cluster."""
    lag = await admin.lag(group)
    document = {"group": group, "offsets": [{
        "topic": one.queue.topic, "broker": one.queue.broker_name, "queueId": one.queue.queue_id,
        "offset": one.consumer_offset,
    } for one in lag.queues]}
    text = json.dumps(document, indent=2, ensure_ascii=True).split("\n")
    return View(document, [Text(text)], missing=lag.unreachable)


@offset_group.command("import")
@click.argument("file", type=click.Path(path_type=Path, exists=True, allow_dash=True))
@group_option("as_group", help="For this group instead of the file's.")
@changes
async def import_command(admin: AsyncAdmin, file: Path, as_group: str | None) -> Plan:
    """Commit offsets from a document of `export`; FILE - is standard input."""
    group, offsets = _offsets_of(file)
    group = as_group or group
    online = bool((await admin.members(group)).members)
    if online:
        raise Failure(f"group {group} is connected: its members commit their own offsets; "
                      "stop them first")
    resets = []
    for queue, offset in offsets.items():
        first, end = await admin.min_offset(queue), await admin.max_offset(queue)
        if not first <= offset <= end:
            raise Failure(f"{queue.topic} queue {queue.queue_id} on {queue.broker_name}: offset "
                          f"{offset} is outside of {first} to {end}")
        resets.append(QueueReset(queue, await admin.committed(group, queue), offset))
    rows = _reset_rows(resets)
    new_on, settings = await _without_group(admin, group, offsets)
    table = Table((Column("TOPIC", "topic"), *RESET), rows, "no offsets in the document")
    view = View({"group": group, "newGroupOn": new_on, "queues": rows},
                [table, *_new_group(group, new_on)])

    async def work() -> View:
        await _make_group(admin, group, new_on, settings)
        for one in resets:
            await admin.set_offset(group, one.queue, one.after)
        return view

    return Plan(view, work, f"commit {len(resets)} offsets for group {group}", group)


def _offsets_of(file: Path) -> tuple[str, dict[MessageQueue, int]]:
    """Group and offsets of a document. Raises Failure with the field and what was expected."""
    try:
        document = json.loads(files.read(file))
    except (ValueError, RecursionError) as error:
        raise Failure(f"{file}: not a JSON document: {error}") from None
    if not isinstance(document, dict) or not isinstance(document.get("group"), str):
        raise Failure(f"{file}: group: expected a name")
    rows = document.get("offsets")
    if not isinstance(rows, list):
        raise Failure(f"{file}: offsets: expected a list")
    found: dict[MessageQueue, int] = {}
    for number, row in enumerate(rows):
        queue, offset = _row_of(row, f"{file}: offsets[{number}]")
        if queue in found:
            raise Failure(f"{file}: offsets[{number}]: the queue stands there twice")
        found[queue] = offset
    return document["group"], found


def _row_of(row: Any, where: str) -> tuple[MessageQueue, int]:
    if not isinstance(row, Mapping):
        raise Failure(f"{where}: expected an object")
    for key in ("topic", "broker"):
        if not isinstance(row.get(key), str) or not row[key]:
            raise Failure(f"{where}.{key}: expected a name")
    for key in ("queueId", "offset"):
        value = row.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise Failure(f"{where}.{key}: expected a whole number, not below 0")
    return MessageQueue(row["topic"], row["broker"], row["queueId"]), row["offset"]
