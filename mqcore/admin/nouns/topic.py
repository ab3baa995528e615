"""`mqcore topic`: list, show, create, edit, remove topics; clean up behind them; queue entries."""
from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import click

from mqcore.admin.nouns.parameters import (
    QUEUES_MAX,
    Permission,
    broker_option,
    cluster_option,
    group_option,
    permission,
    topic_argument,
)
from mqcore.admin.shell import units
from mqcore.admin.shell.exits import NotFound
from mqcore.admin.shell.runner import Plan, changes, reads
from mqcore.admin.shell.view import Column, Facts, Table, Text, View
from mqcore.client import AsyncAdmin, MessageQueue
from mqcore.client.admin import Found, TopicOnBroker
from mqcore.wire.codes import DLQ_PREFIX, RETRY_PREFIX
from mqcore.wire.topics import MESSAGE_TYPES

KINDS = {RETRY_PREFIX: "retry", DLQ_PREFIX: "dead letters"}


@click.group("topic")
def topic_group() -> None:
    """Topics: ls, show, create, edit, rm, clean, queue."""


# -- ls -------------------------------------------------------------------------------------------

LIST = (
    Column("TOPIC", "name"), Column("KIND", "kind"),
    Column("READ", "readQueues", right=True), Column("WRITE", "writeQueues", right=True),
    Column("PERM", "permission"), Column("ORDERED", "ordered", wide=True),
    Column("BROKERS", "brokers"),
)


@topic_group.command("ls")
@click.option("-a", "--all", "every", is_flag=True,
              help="Also topics of retries, of dead letters, and the brokers' own.")
@click.option("--groups", is_flag=True, help="Also the groups that consume each topic.")
@cluster_option
@reads(items=True)
async def list_command(
    admin: AsyncAdmin, every: bool, groups: bool, cluster: str | None,
) -> View:
    """List topics with their queues, permission and brokers."""
    found, systems = await asyncio.gather(
        admin.topics_on_brokers(cluster=cluster), admin.system_topics())
    rows = [row for row in _rows(found, set(systems)) if every or row["kind"] == "user"]
    shown: tuple[Column, ...] = LIST
    if groups:
        by_topic = await admin.groups_by_topic(cluster=cluster)
        for row in rows:
            row["groups"] = sorted(by_topic.get(row["name"], ()))
        shown = (*LIST, Column("GROUPS", "groups"))
    return View({"topics": rows}, [Table(shown, rows, "no topics")], items="topics",
                missing=found.unreachable)


def _rows(found: Found[TopicOnBroker], systems: set[str]) -> list[dict[str, Any]]:
    """One row a topic. Brokers may differ in their counts: the row has the largest of each."""
    rows: dict[str, dict[str, Any]] = {}
    for one in found:
        config = one.config
        row = rows.setdefault(config.name, {
            "name": config.name, "kind": _kind(config.name, systems), "readQueues": 0,
            "writeQueues": 0, "permission": permission(config.perm), "ordered": False,
            "brokers": [],
        })
        row["readQueues"] = max(row["readQueues"], config.read_queue_count)
        row["writeQueues"] = max(row["writeQueues"], config.write_queue_count)
        row["ordered"] |= config.order
        row["brokers"].append(one.broker_name)
    return [rows[name] for name in sorted(rows)]


def _kind(name: str, systems: set[str]) -> str:
    if name in systems:
        return "system"
    return next((kind for prefix, kind in KINDS.items() if name.startswith(prefix)), "user")


# -- show -----------------------------------------------------------------------------------------

SETTINGS = (
    Column("BROKER", "broker"), Column("ADDRESS", "address"),
    Column("READ", "readQueues", right=True), Column("WRITE", "writeQueues", right=True),
    Column("PERM", "permission"), Column("ORDERED", "ordered"),
)
TYPE = Column("TYPE", "messageType", lambda kind: kind or "any")

QUEUES = (
    Column("BROKER", "broker"), Column("QUEUE", "queueId", right=True),
    Column("FIRST", "minOffset", right=True), Column("NEXT", "maxOffset", right=True),
    Column("MESSAGES", "messages", units.count, right=True),
    Column("LAST MESSAGE", "lastMessageAgeSeconds", lambda age: _ago(age)),
)


def _ago(seconds: float | None) -> str:
    return "-" if seconds is None else f"{units.age(seconds)} ago"


@topic_group.command("show")
@topic_argument
@reads()
async def show_command(admin: AsyncAdmin, topic: str) -> View:
    """A topic's settings by broker, its queues with their offsets, its groups."""
    route, settings, stats, groups = await asyncio.gather(
        admin.topic_route(topic), admin.topics_on_brokers(name=topic),
        admin.topic_stats(topic), admin.topic_groups(topic))
    of_brokers = [{
        "broker": one.broker_name, "address": one.address,
        "readQueues": one.config.read_queue_count, "writeQueues": one.config.write_queue_count,
        "permission": permission(one.config.perm), "ordered": one.config.order,
    } for one in settings]
    typed = any(one.config.kind for one in settings)
    if typed:
        for row, one in zip(of_brokers, settings, strict=True):
            row["messageType"] = one.config.kind
    queues = [{
        "broker": one.queue.broker_name, "queueId": one.queue.queue_id,
        "minOffset": one.min_offset, "maxOffset": one.max_offset,
        "messages": one.max_offset - one.min_offset,
        "lastMessage": units.iso(one.last_update),
        "lastMessageAgeSeconds": units.seconds_since(one.last_update),
    } for one in stats.queues]
    clusters = sorted({broker.cluster for broker in route.brokers})
    document = {
        "name": topic, "clusters": clusters, "messages": stats.message_count,
        "groups": list(groups), "brokers": of_brokers, "queues": queues,
    }
    missing = {one.address: one for found in (settings, stats, groups)
               for one in found.unreachable}
    return View(document, [
        Facts([("topic", topic), ("clusters", ", ".join(clusters)),
               ("messages", units.count(stats.message_count)),
               ("groups", ", ".join(groups) or "none")]),
        Table((*SETTINGS, TYPE) if typed else SETTINGS, of_brokers), Table(QUEUES, queues),
    ], missing=list(missing.values()))


# -- create, edit, rm -----------------------------------------------------------------------------

counts = click.IntRange(0, QUEUES_MAX)


@topic_group.command("create")
@topic_argument
@click.option("--queues", default=8, show_default=True, type=click.IntRange(1, QUEUES_MAX),
              help="Queues on each broker.")
@click.option("--perm", default="rw", show_default=True, type=Permission(),
              help="Permission of clients.")
@click.option("--ordered", is_flag=True, help="Name servers tell that its queues are ordered.")
@click.option("--type", "message_type", type=click.Choice(MESSAGE_TYPES),
              help="The only kind of messages that RocketMQ 5's clients may send; else all.")
@broker_option
@cluster_option
@changes
async def create_command(
    admin: AsyncAdmin, topic: str, queues: int, perm: int, ordered: bool,
    message_type: str | None, broker: str | None, cluster: str | None,
) -> Plan:
    """Create a topic. One that exists keeps its messages and gets these settings."""
    existing = [one for one in await admin.topics_on_brokers(name=topic, cluster=cluster)
                if broker in (None, one.broker_name, one.address)]
    will = {"name": topic, "queues": queues, "permission": permission(perm), "ordered": ordered,
            **({"messageType": message_type} if message_type else {})}
    before = View({**will, "existsOn": [one.broker_name for one in existing]}, [Text([
        f"create topic {topic} with {queues} queues a broker, {permission(perm)}",
        *_existing(existing)])])

    async def work() -> View:
        names = await admin.create_topic(
            topic, queues=queues, perm=perm, order=ordered, message_type=message_type,
            broker=broker, cluster=cluster)
        return View({**will, "brokers": list(names)},
                    [Text([f"created topic {topic} on {', '.join(names)}"])])

    question = f"change the settings of topic {topic}" if existing else ""
    return Plan(before, work, question, topic)


def _existing(found: Sequence[TopicOnBroker]) -> list[str]:
    return [f"it exists on {one.broker_name}: {one.config.read_queue_count} read and "
            f"{one.config.write_queue_count} write queues, {permission(one.config.perm)}"
            for one in found]


@topic_group.command("edit")
@topic_argument
@click.option("--queues", type=click.IntRange(1, QUEUES_MAX), help="Read and write queues.")
@click.option("--read-queues", type=counts, help="Queues that consumers read.")
@click.option("--write-queues", type=counts, help="Queues that producers use.")
@click.option("--perm", type=Permission(), help="Permission of clients.")
@broker_option
@cluster_option
@changes
async def edit_command(
    admin: AsyncAdmin, topic: str, queues: int | None, read_queues: int | None,
    write_queues: int | None, perm: int | None, broker: str | None, cluster: str | None,
) -> Plan:
    """Change a topic that exists; options that are not given keep their value."""
    read_queues = queues if read_queues is None else read_queues
    write_queues = queues if write_queues is None else write_queues
    if read_queues is None and write_queues is None and perm is None:
        raise click.UsageError("give --queues, --read-queues, --write-queues or --perm")
    existing = [one for one in await _existing_topic(admin, topic, cluster)
                if broker in (None, one.broker_name, one.address)]
    rows = []
    for one in existing:
        old = one.config
        rows.append({
            "broker": one.broker_name,
            "readQueues": old.read_queue_count if read_queues is None else read_queues,
            "readQueuesBefore": old.read_queue_count,
            "writeQueues": old.write_queue_count if write_queues is None else write_queues,
            "writeQueuesBefore": old.write_queue_count,
            "permission": permission(old.perm if perm is None else perm),
            "permissionBefore": permission(old.perm),
        })
    document = {"name": topic, "brokers": rows}

    def parts() -> list[Any]:
        return [Text([
            f"{row['broker']}: read {row['readQueuesBefore']} -> {row['readQueues']}, "
            f"write {row['writeQueuesBefore']} -> {row['writeQueues']}, "
            f"perm {row['permissionBefore']} -> {row['permission']}" for row in rows])]

    async def work() -> View:
        await admin.update_topic(topic, read_queues=read_queues, write_queues=write_queues,
                                 perm=perm, broker=broker, cluster=cluster)
        return View(document, parts())

    return Plan(View(document, parts()), work, f"change topic {topic}", topic)


@topic_group.command("rm")
@topic_argument
@cluster_option
@changes
async def remove_command(admin: AsyncAdmin, topic: str, cluster: str | None) -> Plan:
    """Delete a topic with its messages."""
    existing = await _existing_topic(admin, topic, cluster)
    stats, groups = await asyncio.gather(admin.topic_stats(topic), admin.topic_groups(topic))
    document = {
        "name": topic, "brokers": [one.broker_name for one in existing],
        "messages": stats.message_count, "groups": list(groups),
    }
    before = View(document, [Text([
        f"delete topic {topic} with {units.count(stats.message_count)} messages from "
        f"{', '.join(document['brokers'])}",
        f"groups that consume it: {', '.join(groups) or 'none'}",
    ])], missing=stats.unreachable)

    async def work() -> View:
        names = await admin.delete_topic(topic, cluster=cluster)
        return View({**document, "brokers": list(names)},
                    [Text([f"deleted topic {topic} from {', '.join(names)}"])])

    return Plan(before, work, f"delete topic {topic}", topic)


async def _existing_topic(
    admin: AsyncAdmin, topic: str, cluster: str | None,
) -> Found[TopicOnBroker]:
    found = await admin.topics_on_brokers(name=topic, cluster=cluster)
    if not found and not found.unreachable:
        raise NotFound("topic", topic, await admin.topics(), "mqcore topic ls")
    return found


# -- clean, queue ---------------------------------------------------------------------------------

@topic_group.command("clean")
@broker_option
@cluster_option
@changes
async def clean_command(admin: AsyncAdmin, broker: str | None, cluster: str | None) -> Plan:
    """Delete queues of topics that were deleted, and queues whose messages have all expired."""
    what = "delete queues of deleted topics, and queues whose messages have all expired"
    where = broker or (f"cluster {cluster}" if cluster else "all brokers")

    async def work() -> View:
        unused = await admin.clean_unused_topics(broker=broker, cluster=cluster)
        await admin.clean_expired_queues(broker=broker, cluster=cluster)
        return View({"brokers": list(unused)}, [Text([f"cleaned {', '.join(unused)}"])])

    before = View({"broker": broker, "cluster": cluster}, [Text([f"{what}, on {where}"])])
    return Plan(before, work, f"clean {where}")


ENTRIES = (
    Column("OFFSET", "offset", right=True), Column("LOG POSITION", "logPosition", right=True),
    Column("BYTES", "bytes", right=True), Column("TAG CODE", "tagCode", right=True),
    Column("MATCHES", "matches"), Column("REMARK", "remark"),
)


@topic_group.command("queue")
@topic_argument
@click.argument("queue_id", type=click.IntRange(0, QUEUES_MAX))
@click.option("-b", "--broker", required=True, metavar="NAME", help="The broker's name.")
@click.option("--from", "start", type=click.IntRange(0),
              help="The first offset  [default: the queue's last entries].")
@click.option("--count", default=10, show_default=True, type=click.IntRange(1, 10_000),
              help="How many entries.")
@group_option(help="Also whether this group's filter takes each.")
@reads(items=True)
async def queue_command(
    admin: AsyncAdmin, topic: str, queue_id: int, broker: str, start: int | None, count: int,
    group: str | None,
) -> View:
    """Entries of one queue: where each message is in the commit log."""
    queue = MessageQueue(topic, broker, queue_id)
    if start is None:
        start = max(await admin.min_offset(queue), await admin.max_offset(queue) - count, 0)
    found = await admin.queue_entries(queue, start, count, group=group)
    rows = [{
        "offset": one.offset, "logPosition": one.log_position, "bytes": one.size,
        "tagCode": one.tag_code, "matches": one.matches, "remark": one.remark or None,
    } for one in found.entries]
    return View(
        {"topic": topic, "broker": broker, "queueId": queue_id, "minOffset": found.min_offset,
         "maxOffset": found.max_offset, "entries": rows},
        [Facts([("queue", f"{topic} {queue_id} on {broker}"),
                ("offsets", f"{found.min_offset} to {found.max_offset}")]),
         Table(ENTRIES, rows, "no entries")],
        items="entries", name="offset")
