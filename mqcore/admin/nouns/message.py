"""`mqcore message`: get, find, tail, trace, resend stored messages."""
from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from itertools import compress
from pathlib import Path
from typing import Any

import click

from mqcore.admin.nouns.paging import pages
from mqcore.admin.nouns.parameters import group_option, topic_option
from mqcore.admin.nouns.stored import ROWS, document_of, parts_of, row_of
from mqcore.admin.shell import units
from mqcore.admin.shell.connection import Connection
from mqcore.admin.shell.durations import Duration
from mqcore.admin.shell.exits import Exit, Failure, NotFound
from mqcore.admin.shell.grep import grepping
from mqcore.admin.shell.runner import Plan, changes, reads, streams
from mqcore.admin.shell.view import Column, Facts, Part, Table, Text, View
from mqcore.client import AsyncAdmin, AsyncReader, MessageQueue, ReceivedMessage
from mqcore.client.admin import MessageTrace, Track, Unreachable
from mqcore.client.admin.messages import READ_BYTES_MAX

FIND_MAX = 10_000
PATIENCE_MAX_S = 86_400.0
GREP_MAX = 100_000                     # messages that a search looks at
GREP_COUNT = 1_000                     # of each queue at a time
PLACE = re.compile(r"(?P<topic>[^/]+)/(?P<broker>[^/]+)/(?P<queue>\d+)/(?P<offset>\d+)")


# -- get ------------------------------------------------------------------------------------------

TRACKS = (Column("GROUP", "group"), Column("STATE", "state"), Column("REMARK", "error"))


@click.command("get")
@click.argument("which", metavar="ID|KEY|TOPIC/BROKER/QUEUE/OFFSET")
@topic_option(help="The topic of a key or of a client's id.")
@click.option("--groups", "with_groups", is_flag=True, help="Also what each group did with it.")
@click.option("--body-to", "body_file", type=click.Path(path_type=Path, dir_okay=False),
              help="Write the body to this file.")
@reads(items=True)
async def get_command(
    admin: AsyncAdmin, which: str, topic: str | None, with_groups: bool, body_file: Path | None,
) -> View:
    """Messages by id, by key, or by their place."""
    found = await _found(admin, which, topic)
    documents = [document_of(message) for message in found]
    parts: list[Part] = []
    for message, document in zip(found, documents, strict=True):
        parts += parts_of(document)
        if with_groups:
            tracks = [_track(one) for one in await admin.consumed_by(message)]
            document["groups"] = tracks
            parts.append(Table(TRACKS, tracks, "no group knows the topic"))
    if body_file is not None:
        if len(found) != 1:
            raise Failure(f"--body-to: {len(found)} messages were found, expected one", Exit.USAGE)
        _write(body_file, found[0].body)
    return View({"messages": documents}, parts, items="messages", name="messageId")


async def _found(admin: AsyncAdmin, which: str, topic: str | None) -> Sequence[ReceivedMessage]:
    place = PLACE.fullmatch(which)
    if place is not None:
        queue = MessageQueue(place["topic"], place["broker"], int(place["queue"]))
        return [await admin.message_at(queue, int(place["offset"]))]
    if topic is None:
        return [await admin.message(which)]
    found = await admin.query(topic, which)
    if not found:
        raise NotFound(f"message of topic {topic} with id or key", which)
    return found


def _track(one: Track) -> dict[str, Any]:
    return {"group": one.group, "state": str(one.state),
            "error": None if one.error is None else str(one.error)}


def _write(file: Path, body: bytes) -> None:
    try:
        file.write_bytes(body)
    except OSError as error:
        raise Failure(f"{file}: cannot be written: {error.strerror}") from None


# -- find, tail -----------------------------------------------------------------------------------

def _filters(command: Any) -> Any:
    for option in (
        click.option("--grep", metavar="REGEX", help="Only bodies in which this is found."),
        click.option("--sql", metavar="CONDITION", help="Only these, by SQL92."),
        click.option("--tag", "tags", metavar="A||B", help="Only these tags."),
        topic_option(required=True, help="The topic to read."),
    ):
        command = option(command)
    return command


def _expression(tags: str | None, sql: str | None) -> dict[str, Any]:
    if tags and sql:
        raise click.UsageError("give --tag or --sql, not both")
    return {"expression": sql, "sql": True} if sql else {"expression": tags or "*"}


@click.command("find")
@_filters
@click.option("--since", metavar="TIME", help="Stored then or later: `1h ago`, an ISO time.")
@click.option("--until", metavar="TIME", help="Stored before.")
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1, FIND_MAX),
              help="At most so many, the first ones.")
@reads(items=True)
async def find_command(
    admin: AsyncAdmin, topic: str, tags: str | None, sql: str | None, grep: str | None,
    since: str | None, until: str | None, limit: int,
) -> View:
    """Messages of a topic in the order in which they were stored, without a group."""
    options = _expression(tags, sql)
    taken: list[ReceivedMessage] = []
    missing: dict[str, Unreachable] = {}
    looked_at = size = 0
    more = False
    async with grepping(grep) as search, aclosing(pages(
            lambda begin, count: admin.read(topic, begin=begin, end=until, count=count, **options),
            lambda message: message, since, limit if grep is None else GREP_COUNT,
            f"messages of topic {topic}")) as found_pages:
        async for found in found_pages:
            bodies = [one.body for one in found]
            taken += compress(found, await search.found(bodies))
            missing.update((failure.address, failure) for failure in found.unreachable)
            looked_at += len(found)
            size += sum(map(len, bodies))
            more = found.more or len(taken) > limit
            if len(taken) >= limit or looked_at >= GREP_MAX or size >= READ_BYTES_MAX:
                break
            if sum(one.body_size for one in taken) > admin.read_bytes_max:
                break
    documents = [document_of(message) for message in taken[:limit]]
    rows = [row_of(document) for document in documents]
    parts: list[Part] = [Table(ROWS, rows, "no messages")]
    if more:
        parts.append(Text([f"there are more: raise --limit, or give --since {_after(rows)}"]))
    return View({"messages": documents, "more": more}, parts, items="messages", name="messageId",
                missing=list(missing.values()))


def _after(rows: Sequence[dict[str, Any]]) -> str:
    return units.iso_of(rows[-1]["stored"]) if rows else "TIME"


@click.command("tail")
@_filters
@click.option("--since", metavar="TIME", help="From there on  [default: only new messages].")
@click.option("--limit", type=click.IntRange(1), help="End after so many.")
@click.option("--patience", "patience_s", type=Duration(0.1, PATIENCE_MAX_S), default="5s",
              show_default=True, help="End when a broker does not answer for so long.")
@streams
async def tail_command(
    connection: Connection, topic: str, tags: str | None, sql: str | None, grep: str | None,
    since: str | None, limit: int | None, patience_s: float,
) -> AsyncIterator[tuple[dict[str, Any], str]]:
    """Messages of a topic as they come, until Ctrl-C; without a group."""
    _expression(tags, sql)
    options: dict[str, Any] = {"sql": sql} if sql else {"filter": tags or "*"}
    async with grepping(grep) as search, AsyncReader(
            topic, start="latest" if since is None else units.moment_of(since), timeout=patience_s,
            namesrv=connection.namesrv, credentials=connection.credentials, **options) as reader:
        count = 0
        async for message in reader:
            if not (await search.found([message.body]))[0]:
                continue
            document = document_of(message)
            row = row_of(document)
            yield document, "  ".join(column.text(row) for column in ROWS if not column.wide)
            count += 1
            if count == limit:
                return


# -- trace ----------------------------------------------------------------------------------------

SENDS = (Column("AT", "at"), Column("GROUP", "group"), Column("CLIENT", "client"),
         Column("BROKER", "broker"), Column("TOOK", "seconds", units.age, right=True),
         Column("BYTES", "bodyBytes", right=True), Column("OK", "success"))
CONSUMES = (Column("AT", "at"), Column("GROUP", "group"), Column("CLIENT", "client"),
            Column("TRY", "retries", right=True), Column("TOOK", "seconds", units.age, right=True),
            Column("OUTCOME", "outcome"))


@click.command("trace")
@click.argument("message_id", metavar="ID")
@click.option("--trace-topic", default="RMQ_SYS_TRACE_TOPIC", show_default=True,
              help="The topic that clients write traces to.")
@reads()
async def trace_command(admin: AsyncAdmin, message_id: str, trace_topic: str) -> View:
    """The sends, tries and transaction ends of a message, as clients with tracing told."""
    trace = await admin.trace(message_id, trace_topic=trace_topic)
    if not (trace.sends or trace.consumes or trace.ends) and not trace.unreachable:
        raise NotFound("trace of message", message_id)
    document = _trace_document(trace)
    return View(document, [
        Facts([("message", message_id)]),
        Table(SENDS, document["sends"], "no send was traced", "sends"),
        Table(CONSUMES, document["consumes"], "no consumer traced it", "consumed"),
        *([Table((Column("AT", "at"), Column("GROUP", "group"), Column("STATE", "state")),
                 document["ends"], title="transaction")] if trace.ends else []),
    ], missing=trace.unreachable)


def _trace_document(trace: MessageTrace) -> dict[str, Any]:
    return {
        "messageId": trace.message_id,
        "sends": [{
            "at": units.iso(one.at), "group": one.group, "topic": one.topic, "client": one.client,
            "broker": one.broker, "seconds": one.took, "bodyBytes": one.body_size,
            "success": one.success, "tags": one.tags or None, "keys": list(one.keys),
        } for one in trace.sends],
        "consumes": [{
            "at": units.iso(one.at), "group": one.group, "client": one.client,
            "retries": one.retries, "seconds": one.took, "success": one.success,
            "outcome": one.outcome or None,
        } for one in trace.consumes],
        "ends": [{
            "at": units.iso(one.at), "group": one.group, "topic": one.topic, "state": one.state,
            "fromCheck": one.from_check,
        } for one in trace.ends],
    }


# -- resend ---------------------------------------------------------------------------------------

@click.command("resend")
@click.argument("message_id", metavar="ID")
@topic_option(help="The topic of a client's id.")
@group_option(help="Hand it to a member of this group, and store no copy.")
@click.option("--member", help="The member's client id  [default: the first one].")
@changes
async def resend_command(
    admin: AsyncAdmin, message_id: str, topic: str | None, group: str | None, member: str | None,
) -> Plan:
    """
    Send a stored message again.

    Without -g a copy is stored in its topic, for all groups. With -g a connected member of the
    group gets it at once, and its answer is shown; offsets stay.
    """
    if member is not None and group is None:
        raise click.UsageError("--member needs --group")
    message = await admin.message(message_id, topic=topic)
    document = document_of(message)
    if group is None:
        async def copy() -> View:
            sent = await admin.resend(message)
            return View({
                "messageId": sent.message_id, "offsetMessageId": sent.offset_message_id,
                "broker": sent.queue.broker_name, "queueId": sent.queue.queue_id,
                "queueOffset": sent.queue_offset,
            }, [Text([f"stored again: {sent.queue.broker_name}, queue {sent.queue.queue_id}, "
                      f"offset {sent.queue_offset}"])])

        line = f"store a copy of {message_id} in topic {message.topic}, for all its groups"
        return Plan(View(document, [Text([line])]), copy, line)
    members = [one.client_id for one in (await admin.members(group)).members]
    if not members:
        raise NotFound("connected member of group", group)
    chosen = member or members[0]
    if chosen not in members:
        raise NotFound("member", chosen, tuple(members), f"mqcore group show {group}")

    async def hand_over() -> View:
        result = await admin.consume_directly(group, chosen, message_id, topic=topic)
        failed = result.result != "CR_SUCCESS"
        shown = {"clientId": chosen, "result": result.result, "remark": result.remark or None,
                 "seconds": result.took}
        return View(shown, [Text([
            f"{chosen}: {result.result} in {units.age(result.took)}"
            + (f": {result.remark}" if result.remark else "")])],
            status=Exit.REFUSED if failed else Exit.DONE)

    line = f"hand {message_id} to {chosen} of group {group}"
    return Plan(View(document, [Text([line])]), hand_over, line)
