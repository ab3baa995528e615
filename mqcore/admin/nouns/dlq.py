"""`mqcore dlq`: dead letters: list, show, export, send again, delete."""
from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from itertools import compress
from typing import Any

import click
from msgspec import Struct

from mqcore.admin.nouns.paging import pages
from mqcore.admin.nouns.parameters import cluster_option, group_argument
from mqcore.admin.nouns.stored import document_of, preview, row_of
from mqcore.admin.shell import units
from mqcore.admin.shell.connection import Connection
from mqcore.admin.shell.exits import Exit, NotFound
from mqcore.admin.shell.grep import Grep, grepping
from mqcore.admin.shell.runner import Plan, changes, reads, streams
from mqcore.admin.shell.view import Column, Part, Table, Text, View
from mqcore.client import AsyncAdmin, RocketMQError, SendResult
from mqcore.client.admin import DeadLetter, Found, TopicStats, Unreachable
from mqcore.wire.codes import DLQ_PREFIX

TOPICS_AT_ONCE = 16
REDRIVE_MAX = 10_000
STEP_MAX = 20                          # letters that are sent before copies are looked for again
PAGE_COUNT = 1_000                     # that one request for an export brings


@click.group("dlq")
def dlq_group() -> None:
    """Dead letters: ls, show, export, redrive, purge."""


# -- ls, show, export -----------------------------------------------------------------------------

LIST = (Column("GROUP", "name"), Column("DEAD LETTERS", "messages", units.count, right=True),
        Column("NEWEST", "newestSeconds", lambda age: "-" if age is None
               else f"{units.age(age)} ago", right=True))


@dlq_group.command("ls")
@cluster_option
@reads(items=True)
async def list_command(admin: AsyncAdmin, cluster: str | None) -> View:
    """List groups that have dead letters."""
    rows = []
    missing: dict[str, Unreachable] = {}
    for stats in await dead_letter_stats(admin, cluster):
        missing.update((failure.address, failure) for failure in stats.unreachable)
        ages = [age for queue in stats.queues
                if (age := units.seconds_since(queue.last_update)) is not None]
        if stats.message_count:
            rows.append({"name": stats.topic.removeprefix(DLQ_PREFIX),
                         "messages": stats.message_count,
                         "newestSeconds": min(ages, default=None)})
    return View({"groups": rows}, [Table(LIST, rows, "no dead letters")], items="groups",
                missing=list(missing.values()))


async def dead_letter_stats(
    admin: AsyncAdmin, cluster: str | None = None, group: str | None = None,
) -> list[TopicStats]:
    """The queues of all topics of dead letters, or of one group's; sorted by topic."""
    places = asyncio.Semaphore(TOPICS_AT_ONCE)

    async def one(topic: str) -> TopicStats:
        async with places:
            return await admin.topic_stats(topic)

    return await asyncio.gather(*(
        one(name) for name in await admin.topics(cluster) if name.startswith(DLQ_PREFIX)
        and group in (None, name.removeprefix(DLQ_PREFIX))))


ROWS = (
    Column("GIVEN UP", "stored", units.moment), Column("FROM", "originTopic"),
    Column("TAG", "tags"), Column("KEYS", "keys"), Column("TRIES", "reconsumeTimes", right=True),
    Column("ID", "messageId", wide=True), Column("BODY", "preview"),
)


def letter_document(letter: DeadLetter) -> dict[str, Any]:
    """A dead letter: the message, and the topic that it came from."""
    return {**document_of(letter.message), "group": letter.group, "originTopic": letter.topic}


def _filters(command: Any) -> Any:
    for option in (
        click.option("--grep", metavar="REGEX", help="Only bodies in which this is found."),
        click.option("--key", help="Only messages with this key."),
        click.option("--until", metavar="TIME", help="Given up before."),
        click.option("--since", metavar="TIME", help="Given up then or later: `1h ago`."),
    ):
        command = option(command)
    return command


def _pages(
    admin: AsyncAdmin, group: str, since: str | None, until: str | None, count: int,
) -> AsyncGenerator[Found[DeadLetter], None]:
    """All dead letters of a group, some at a time, the oldest first."""
    return pages(
        lambda begin, count: admin.dead_letters(group, begin=begin, end=until, count=count),
        lambda letter: letter.message, since, count, f"dead letters of group {group}")


async def _taken(
    letters: Sequence[DeadLetter], key: str | None, search: Grep,
) -> list[DeadLetter]:
    named = [letter for letter in letters if key is None or key in letter.message.keys]
    return list(compress(named, await search.found([one.message.body for one in named])))


async def _letters(
    admin: AsyncAdmin, group: str, since: str | None, until: str | None, key: str | None,
    grep: str | None, limit: int,
) -> Found[DeadLetter]:
    """The dead letters of a group that a command is about, the oldest first."""
    taken: list[DeadLetter] = []
    missing: dict[str, Unreachable] = {}
    more = False
    async with grepping(grep) as search, aclosing(
            _pages(admin, group, since, until, min(limit, PAGE_COUNT))) as pages:
        async for found in pages:
            taken += await _taken(found.items, key, search)
            missing.update((failure.address, failure) for failure in found.unreachable)
            size = sum(one.message.body_size for one in taken)
            more = found.more or len(taken) > limit
            if len(taken) >= limit or size > admin.read_bytes_max:
                break
    return Found(tuple(taken[:limit]), tuple(missing.values()), more)


limit_option = click.option("--limit", default=100, show_default=True,
                            type=click.IntRange(1, REDRIVE_MAX),
                            help="At most so many, the oldest ones.")


@dlq_group.command("show")
@group_argument
@_filters
@limit_option
@reads(items=True)
async def show_command(admin: AsyncAdmin, group: str, limit: int, **filters: Any) -> View:
    """The dead letters of a group."""
    found = await _letters(admin, group, limit=limit, **filters)
    documents = [letter_document(letter) for letter in found]
    rows = [{**row_of(document), "preview": preview(document)} for document in documents]
    parts: list[Part] = [Table(ROWS, rows, "no dead letters")]
    if found.more:
        parts.append(Text(["there are more: raise --limit"]))
    return View({"group": group, "messages": documents, "more": found.more}, parts,
                items="messages", name="messageId", missing=found.unreachable)


@dlq_group.command("export")
@group_argument
@_filters
@streams
async def export_command(
    connection: Connection, group: str, **filters: Any,
) -> AsyncIterator[tuple[dict[str, Any], str]]:
    """All dead letters of a group; with --ndjson in the form that `message send` reads."""
    async with AsyncAdmin(connection.namesrv, credentials=connection.credentials) as admin:
        async for document in exported(admin, group, **filters):
            row = row_of(document)
            yield document, "  ".join(column.text(row) for column in ROWS if not column.wide)


async def exported(
    admin: AsyncAdmin, group: str, since: str | None, until: str | None, key: str | None,
    grep: str | None,
) -> AsyncGenerator[dict[str, Any], None]:
    """All dead letters of a group as documents. Raises where a broker does not answer."""
    async with grepping(grep) as search, aclosing(
            _pages(admin, group, since, until, PAGE_COUNT)) as pages:
        async for found in pages:
            if found.unreachable:
                raise found.unreachable[0].error
            for letter in await _taken(found.items, key, search):
                yield letter_document(letter)


# -- redrive, purge -------------------------------------------------------------------------------

SENT = (Column("ID", "messageId"), Column("TO", "topic"), Column("RESULT", "result"))


@dlq_group.command("redrive")
@group_argument
@_filters
@limit_option
@click.option("--to", type=click.Choice(["group", "topic"]), default="group", show_default=True,
              help="Only this group gets them, or all groups of the topic that they came from.")
@click.option("--rate", type=click.FloatRange(0.001), help="At most so many a second.")
@click.option("--again", is_flag=True, help="Also those that were sent again before.")
@changes
async def redrive_command(
    admin: AsyncAdmin, group: str, limit: int, to: str, rate: float | None, again: bool,
    **filters: Any,
) -> Plan:
    """
    Send dead letters again. They also stay where they are.

    A copy has the property REDRIVE_FROM with the dead letter's offset message id. A letter whose
    copy is still stored where it went is not sent again.
    """
    found = await redrive(admin, group, limit=limit, to=to, rate=rate, again=again, **filters)

    async def work() -> View:
        rows = [row async for row in found.rows(admin)]
        return found.result(rows)

    return Plan(found.view(), work, found.line, group)


LEFT_OUT, SENT_AGAIN = "left out", "sent"


class Redrive(Struct, frozen=True):
    """
    Dead letters to be sent again.

    letters     in their order; each leaves it when it was tried
    skipped     how many were left out: sent again before, or without their topic's name
    more        whether there are letters beyond the limit
    missing     brokers that did not answer
    """

    group: str
    letters: deque[DeadLetter]
    count: int
    skipped: int
    more: bool
    missing: tuple[Unreachable, ...]
    topics: tuple[str, ...]
    to: str
    rate: float | None
    again: bool

    @property
    def line(self) -> str:
        """The plan in one line."""
        target = f"group {self.group}" if self.to == "group" else ", ".join(self.topics)
        return f"send {self.count} dead letters of group {self.group} to {target}"

    @property
    def document(self) -> dict[str, Any]:
        """For --json, before and after."""
        return {"group": self.group, "to": self.to, "letters": self.count, "skipped": self.skipped,
                "more": self.more, "topics": list(self.topics)}

    def view(self) -> View:
        """The plan."""
        lines = [self.line]
        if self.skipped:
            lines.append(f"{self.skipped} are left out: sent again before, or without their topic's"
                         " name")
        if self.more:
            lines.append("there are more: raise --limit, or send these first")
        return View(self.document, [Text(lines)], missing=list(self.missing))

    def result(self, rows: Sequence[dict[str, Any]]) -> View:
        """The result."""
        failed = sum(row["error"] is not None for row in rows)
        sent = sum(row["result"] == SENT_AGAIN for row in rows)
        return View({**self.document, "sent": list(rows), "failed": failed}, [
            Table(SENT, rows, "nothing to send"),
            Text([f"{sent} sent, {failed} failed, {self.skipped + len(rows) - sent - failed}"
                  " left out"])], status=Exit.REFUSED if failed else Exit.DONE)

    async def rows(self, admin: AsyncAdmin) -> AsyncGenerator[dict[str, Any], None]:
        """
        Send them, some at a time; a row each. Raises where a whole step fails.

        Copies are looked for again before each step: another one may send the same letters
        meanwhile.
        """
        loop = asyncio.get_running_loop()
        step = STEP_MAX if self.rate is None else max(1, min(STEP_MAX, round(self.rate)))
        due = loop.time()
        while self.letters:
            if self.rate is not None:
                await asyncio.sleep(max(0.0, due - loop.time()))
                due = max(due, loop.time() - 1) + step / self.rate
            letters = [self.letters.popleft() for _ in range(min(step, len(self.letters)))]
            before = frozenset() if self.again else await admin.resent_before(letters, to=self.to)
            fresh = [one for one in letters if one.message.offset_message_id not in before]
            for letter in letters:
                if letter.message.offset_message_id in before:
                    yield _row(letter, LEFT_OUT)
            for one in await admin.resend_dead_letters(self.group, fresh, to=self.to):
                yield _row(one.letter, SENT_AGAIN if one.error is None else str(one.error),
                           one.error, one.result)


async def redrive(
    admin: AsyncAdmin, group: str, *, limit: int, to: str, rate: float | None, again: bool,
    **filters: Any,
) -> Redrive:
    """The letters that a redrive is about. Raises NotFound where there are none."""
    found = await _letters(admin, group, limit=limit, **filters)
    if not found:
        raise NotFound("dead letter of group", group)
    before = frozenset() if again else await admin.resent_before(found.items, to=to)
    letters = deque(one for one in found
                    if one.message.offset_message_id not in before and one.topic)
    return Redrive(group, letters, len(letters), len(found) - len(letters), found.more,
                   found.unreachable, tuple(sorted({one.topic for one in letters})), to, rate,
                   again)


def _row(letter: DeadLetter, result: str, error: RocketMQError | None = None,
         sent: SendResult | None = None) -> dict[str, Any]:
    return {
        "messageId": letter.message.message_id,
        "offsetMessageId": letter.message.offset_message_id, "topic": letter.topic,
        "error": None if error is None else str(error), "result": result,
        "newOffsetMessageId": None if sent is None else sent.offset_message_id,
    }


@dlq_group.command("purge")
@group_argument
@changes
async def purge_command(admin: AsyncAdmin, group: str) -> Plan:
    """Delete all dead letters of a group."""
    topic = DLQ_PREFIX + group
    if topic not in await admin.topics():
        raise NotFound("dead letter of group", group)
    stats = await admin.topic_stats(topic)
    document = {"group": group, "messages": stats.message_count}
    line = f"delete {units.count(stats.message_count)} dead letters of group {group}"

    async def work() -> View:
        await admin.delete_topic(topic)
        return View(document, [Text([f"deleted {units.count(stats.message_count)} dead letters"])])

    return Plan(View(document, [Text([line])], missing=stats.unreachable), work, line, group)
