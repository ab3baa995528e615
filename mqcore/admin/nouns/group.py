"""`mqcore group`: consumer groups, their members, what they lag behind."""
from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import click
from msgspec.structs import asdict

from mqcore.admin.nouns.parameters import (
    broker_option,
    cluster_option,
    group_argument,
    topic_argument,
)
from mqcore.admin.shell import units
from mqcore.admin.shell.exits import NotFound
from mqcore.admin.shell.runner import Plan, changes, reads
from mqcore.admin.shell.view import Column, Facts, Table, Text, View
from mqcore.client import AsyncAdmin, RocketMQError
from mqcore.client.admin import (
    Found,
    GroupBacklog,
    GroupMembers,
    GroupOnBroker,
    GroupStatus,
    QueueLag,
    Unreachable,
)
from mqcore.client.admin.groups import is_system_group
from mqcore.wire.codes import DLQ_PREFIX, RETRY_PREFIX

MEMBERS_AT_ONCE = 16


@click.group("group")
def group_group() -> None:
    """Consumer groups: ls, show, create, edit, pause, resume, rm, stack, plan."""


# -- ls -------------------------------------------------------------------------------------------

LIST = (
    Column("GROUP", "name"), Column("LAG", "lag", units.count, right=True),
    Column("RETRYING", "retrying", units.count, right=True),
    Column("BEHIND", "behindSeconds", lambda value: "-" if value is None else units.age(value),
           right=True),
    Column("TOPICS", "topics"), Column("PAUSED", "paused", wide=True),
    Column("TRIES", "retryMaxTimes", right=True, wide=True),
    Column("BROKERS", "brokers", wide=True),
)


@group_group.command("ls")
@click.option("-a", "--all", "every", is_flag=True, help="Also groups of tools and brokers.")
@click.option("--members", "with_members", is_flag=True,
              help="Also how many members are connected: one request a group.")
@cluster_option
@reads(items=True)
async def list_command(
    admin: AsyncAdmin, every: bool, with_members: bool, cluster: str | None,
) -> View:
    """
    List groups with their lag.

    BEHIND is the age of the last consumed message of the slowest queue that has a lag.
    """
    configs, backlogs = await asyncio.gather(
        admin.groups_on_brokers(cluster=cluster), admin.backlogs(cluster=cluster))
    rows = [row for row in _rows(configs, backlogs)
            if every or not is_system_group(row["name"])]
    shown: tuple[Column, ...] = LIST
    if with_members:
        places = asyncio.Semaphore(MEMBERS_AT_ONCE)

        async def count(row: dict[str, Any]) -> None:
            async with places:
                row["members"] = len((await admin.members(row["name"])).members)

        await asyncio.gather(*map(count, rows))
        shown = (*LIST[:1], Column("MEMBERS", "members", right=True), *LIST[1:])
    missing = {one.address: one for one in (*configs.unreachable, *backlogs.unreachable)}
    return View({"groups": rows}, [Table(shown, rows, "no groups")], items="groups",
                missing=list(missing.values()))


def _rows(
    configs: Found[GroupOnBroker], backlogs: Found[GroupBacklog],
) -> list[dict[str, Any]]:
    """One row a group: settings of any broker, sums of all."""
    rows: dict[str, dict[str, Any]] = {}
    for one in configs:
        row = rows.setdefault(one.config.name, {
            "name": one.config.name, "lag": 0, "retrying": 0, "behindSeconds": None, "topics": [],
            "paused": False, "retryMaxTimes": one.config.retry_max_times, "brokers": [],
        })
        row["paused"] |= not one.config.consume_enable
        row["brokers"].append(one.broker_name)
    topics: defaultdict[str, set[str]] = defaultdict(set)
    for backlog in backlogs:
        found = rows.get(backlog.group)
        if found is None:
            continue
        topic = backlog.queues[0].queue.topic
        if topic.startswith(RETRY_PREFIX):
            found["retrying"] += backlog.total
        else:
            found["lag"] += backlog.total
            topics[backlog.group].add(topic)
        ages = [units.seconds_since(queue.last_consumed) for queue in backlog.queues
                if queue.lag > 0]
        known = [age for age in (*ages, found["behindSeconds"]) if age is not None]
        found["behindSeconds"] = max(known, default=None)
    for name, names in topics.items():
        rows[name]["topics"] = sorted(names)
    return [rows[name] for name in sorted(rows)]


# -- show -----------------------------------------------------------------------------------------

MEMBERS = (
    Column("MEMBER", "clientId"), Column("ADDRESS", "address"), Column("LANGUAGE", "language"),
    Column("VERSION", "version", right=True), Column("QUEUES", "queues", right=True),
    Column("SUBSCRIPTIONS", "subscriptions"),
)
QUEUES = (
    Column("TOPIC", "topic"), Column("BROKER", "broker"), Column("QUEUE", "queueId", right=True),
    Column("COMMITTED", "consumerOffset", right=True), Column("END", "brokerOffset", right=True),
    Column("LAG", "lag", units.count, right=True),
    Column("BEHIND", "behindSeconds", lambda value: "-" if value is None else units.age(value),
           right=True),
    Column("OWNER", "owner"),
)


@group_group.command("show")
@group_argument
@reads()
async def show_command(admin: AsyncAdmin, group: str) -> View:
    """A group's settings, members with their subscriptions, queues with owner and lag."""
    settings, members = await asyncio.gather(admin.group_config(group), admin.members(group))
    if not settings and not members.members and not settings.unreachable:
        raise NotFound("group", group, tuple(await admin.groups(user_only=False)),
                       "mqcore group ls")
    lag = await admin.lag(group)
    status = await admin.group_status(group) if members.members else None
    behind = await _behind(admin, group, lag.queues)
    queues = [_queue_row(one, behind, status) for one in lag.queues]
    of_members = _member_rows(members, status)
    problems = list(status.problems) if status else []
    document = {
        "name": group, "lag": lag.total, "messagesPerSecond": round(lag.tps, 3),
        "consumeType": members.consume_type or None, "messageModel": members.message_model or None,
        "consumeFrom": members.consume_from or None, "problems": problems,
        "brokers": [_settings_row(one) for one in settings],
        "members": of_members, "queues": queues,
    }
    paused = any(not one.config.consume_enable for one in settings)
    missing = {one.address: one for one in (*settings.unreachable, *lag.unreachable)}
    return View(document, [
        Facts([
            ("group", group), ("lag", units.count(lag.total)),
            ("rate", units.rate(lag.tps)), ("paused", units.yes(paused)),
            ("model", f"{members.message_model.lower()}, {members.consume_type.lower()}"
             if members.members else "no member is connected"),
            *(("problem", problem) for problem in problems),
        ]),
        Table(MEMBERS, of_members, "no members"), Table(QUEUES, queues, "no committed offsets"),
    ], missing=list(missing.values()))


def _settings_row(one: GroupOnBroker) -> dict[str, Any]:
    config = asdict(one.config)
    del config["name"]
    camel = {_camel(key): value for key, value in config.items()}
    return {"broker": one.broker_name, "address": one.address, **camel}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def _queue_row(
    one: QueueLag, behind: dict[Any, float], status: GroupStatus | None,
) -> dict[str, Any]:
    return {
        "topic": one.queue.topic, "broker": one.queue.broker_name, "queueId": one.queue.queue_id,
        "brokerOffset": one.broker_offset, "consumerOffset": one.consumer_offset, "lag": one.lag,
        "behindSeconds": behind.get(one.queue), "lastConsumed": units.iso(one.last_consumed),
        "owner": None if status is None else status.owner(one.queue),
    }


def _member_rows(members: GroupMembers, status: GroupStatus | None) -> list[dict[str, Any]]:
    said = {} if status is None else {info.client_id: info for info in status.members}
    rows = []
    for one in members.members:
        info = said.get(one.client_id)
        subscriptions = info.subscriptions if info else members.subscriptions
        rows.append({
            "clientId": one.client_id, "address": one.address, "language": one.language,
            "version": one.version,
            "queues": None if info is None else sum(not held.dropped for held in info.queues),
            "subscriptions": [f"{each.topic} {each.expression}" for each in subscriptions],
        })
    return rows


async def _behind(
    admin: AsyncAdmin, group: str, queues: Sequence[QueueLag],
) -> dict[Any, float]:
    """Seconds since the next message of each queue was stored, for queues with a lag."""
    behind: dict[Any, float] = {}
    for topic in sorted({one.queue.topic for one in queues if one.lag > 0}):
        try:
            spans = await admin.consume_time_spans(group, topic)
        except RocketMQError:                    # the lag in messages stands; seconds are unknown
            continue
        behind.update((span.queue, round(span.behind, 3)) for span in spans)
    return behind


# -- create, edit, pause, resume, rm --------------------------------------------------------------

retry_max = click.option("--retries", type=click.IntRange(0, 1_000_000),
                         help="Tries of a message before it becomes a dead letter.")
retry_queues = click.option("--retry-queues", type=click.IntRange(0, 65_535),
                            help="Queues of the retry topic on each broker.")
broadcast = click.option("--broadcast/--no-broadcast", default=None,
                         help="Whether broadcasting members may pull.")
fifo_option = click.option("--fifo/--no-fifo", default=None, help=(
    "Whether RocketMQ 5's clients get a queue's messages one after another."))


@group_group.command("create")
@group_argument
@retry_max
@retry_queues
@broadcast
@fifo_option
@broker_option
@cluster_option
@changes
async def create_command(
    admin: AsyncAdmin, group: str, retries: int | None, retry_queues: int | None,
    broadcast: bool | None, fifo: bool | None, broker: str | None, cluster: str | None,
) -> Plan:
    """Create a group. One that exists keeps its offsets and gets these settings."""
    existing = [one.broker_name for one in await admin.group_config(group)]
    given = _given(retries, retry_queues, broadcast, fifo)
    before = View({"name": group, **_camels(given), "existsOn": existing}, [Text([
        f"create group {group}" + "".join(f", {_words(k)} {v}" for k, v in given.items()),
        *(f"it exists on {name}" for name in existing)])])

    async def work() -> View:
        names = await admin.create_group(group, broker=broker, cluster=cluster, **given)
        return View({"name": group, **_camels(given), "brokers": list(names)},
                    [Text([f"created group {group} on {', '.join(names)}"])])

    return Plan(before, work, f"change the settings of group {group}" if existing else "", group)


def _given(
    retries: int | None, retry_queues: int | None, broadcast: bool | None, fifo: bool | None,
) -> dict[str, Any]:
    values = {"retry_max_times": retries, "retry_queue_count": retry_queues,
              "consume_broadcast_enable": broadcast, "consume_message_orderly": fifo}
    return {name: value for name, value in values.items() if value is not None}


def _camels(given: dict[str, Any]) -> dict[str, Any]:
    return {_camel(name): value for name, value in given.items()}


def _words(name: str) -> str:
    return name.replace("_", " ")


@group_group.command("edit")
@group_argument
@retry_max
@retry_queues
@broadcast
@fifo_option
@broker_option
@cluster_option
@changes
async def edit_command(
    admin: AsyncAdmin, group: str, retries: int | None, retry_queues: int | None,
    broadcast: bool | None, fifo: bool | None, broker: str | None, cluster: str | None,
) -> Plan:
    """Change a group that exists; options that are not given keep their value."""
    given = _given(retries, retry_queues, broadcast, fifo)
    if not given:
        raise click.UsageError("give --retries, --retry-queues, --[no-]broadcast or --[no-]fifo")
    return await _edit(admin, group, given, broker, cluster)


@group_group.command("pause")
@group_argument
@broker_option
@cluster_option
@changes
async def pause_command(
    admin: AsyncAdmin, group: str, broker: str | None, cluster: str | None,
) -> Plan:
    """Let brokers refuse a group's pulls until `resume`."""
    return await _edit(admin, group, {"consume_enable": False}, broker, cluster)


@group_group.command("resume")
@group_argument
@broker_option
@cluster_option
@changes
async def resume_command(
    admin: AsyncAdmin, group: str, broker: str | None, cluster: str | None,
) -> Plan:
    """Let brokers answer a paused group's pulls again."""
    return await _edit(admin, group, {"consume_enable": True}, broker, cluster)


async def _edit(
    admin: AsyncAdmin, group: str, given: dict[str, Any], broker: str | None, cluster: str | None,
) -> Plan:
    existing = [one for one in await _existing_group(admin, group)
                if broker in (None, one.broker_name, one.address)]
    rows = [{
        "broker": one.broker_name,
        **{_camel(name): value for name, value in given.items()},
        **{f"{_camel(name)}Before": getattr(one.config, name) for name in given},
    } for one in existing]
    lines = [f"{one.broker_name}: " + ", ".join(
        f"{_words(name)} {getattr(one.config, name)} -> {value}" for name, value in given.items())
        for one in existing]
    view = View({"name": group, "brokers": rows}, [Text(lines)])

    async def work() -> View:
        await admin.update_group(group, broker=broker, cluster=cluster, **given)
        return view

    return Plan(view, work, f"change group {group}", group)


@group_group.command("rm")
@group_argument
@click.option("--keep-offsets", is_flag=True,
              help="Keep committed offsets: a new group of the name continues there.")
@cluster_option
@changes
async def remove_command(
    admin: AsyncAdmin, group: str, keep_offsets: bool, cluster: str | None,
) -> Plan:
    """Delete a group: its settings, its offsets, its retry topic, its dead letters."""
    existing = await _existing_group(admin, group)
    members, lag = await asyncio.gather(admin.members(group), admin.lag(group))
    dead = await _count_of(admin, DLQ_PREFIX + group)
    document = {
        "name": group, "brokers": [one.broker_name for one in existing],
        "members": len(members.members), "lag": lag.total, "deadLetters": dead,
        "keepOffsets": keep_offsets,
    }
    before = View(document, [Text([
        f"delete group {group} from {', '.join(document['brokers'])}",
        f"connected members: {len(members.members)}; lag: {units.count(lag.total)}; "
        f"dead letters: {units.count(dead)}",
        "committed offsets are kept" if keep_offsets else "committed offsets are deleted",
    ])], missing=lag.unreachable)

    async def work() -> View:
        names = await admin.delete_group(group, remove_offsets=not keep_offsets, cluster=cluster)
        return View({**document, "brokers": list(names)},
                    [Text([f"deleted group {group} from {', '.join(names)}"])])

    return Plan(before, work, f"delete group {group}", group)


async def _existing_group(admin: AsyncAdmin, group: str) -> Found[GroupOnBroker]:
    found = await admin.group_config(group)
    if not found and not found.unreachable:
        raise NotFound("group", group, tuple(await admin.groups(user_only=False)),
                       "mqcore group ls")
    return found


async def _count_of(admin: AsyncAdmin, topic: str) -> int:
    """How many messages a topic holds; 0 for one that does not exist."""
    if topic not in await admin.topics():
        return 0
    return (await admin.topic_stats(topic)).message_count


# -- stack, plan ----------------------------------------------------------------------------------

@group_group.command("stack")
@group_argument
@click.argument("member", required=False)
@reads()
async def stack_command(admin: AsyncAdmin, group: str, member: str | None) -> View:
    """Settings and thread stacks that members report."""
    connected = (await admin.members(group)).members
    ids = [one.client_id for one in connected]
    if not ids:
        raise NotFound("connected member of group", group)
    if member is not None and member not in ids:
        raise NotFound("member", member, tuple(ids), f"mqcore group show {group}")
    infos, missing = [], []
    for one in connected:
        if member in (None, one.client_id):
            try:
                infos.append(await admin.running_info(group, one.client_id, stack=True))
            except RocketMQError as error:
                missing.append(Unreachable(one.client_id, one.address, error))
    document = {"name": group, "members": [{
        "clientId": info.client_id, "properties": dict(info.properties), "stack": info.stack,
    } for info in infos]}
    parts = [Text([info.client_id, *(info.stack or "no stack").splitlines()]) for info in infos]
    return View(document, parts, items="members", name="clientId", missing=missing)


PLAN = (Column("MEMBER", "clientId"), Column("COUNT", "count", right=True),
        Column("QUEUES", "queues"))


@group_group.command("plan")
@topic_argument
@click.option("--members", "count", required=True, type=click.IntRange(1, 10_000),
              help="How many members the group would have.")
@reads(items=True)
async def plan_command(admin: AsyncAdmin, topic: str, count: int) -> View:
    """Which queues of a topic each member of a group would get."""
    ids = [f"member-{number:0{len(str(count))}}" for number in range(1, count + 1)]
    rows = [{
        "clientId": name, "count": len(queues),
        "queues": [f"{queue.broker_name}/{queue.queue_id}" for queue in queues],
    } for name, queues in await admin.plan(topic, ids)]
    idle = sum(not row["count"] for row in rows)
    note = [Text([f"{idle} of {count} members would have no queue"])] if idle else []
    return View({"topic": topic, "members": rows}, [Table(PLAN, rows), *note], items="members",
                name="clientId")
