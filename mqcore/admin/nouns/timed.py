"""`mqcore message timed` and `recall`: messages with a time of delivery."""
from __future__ import annotations

from typing import Any

import click

from mqcore.admin.nouns.parameters import masters
from mqcore.admin.shell import units
from mqcore.admin.shell.exits import Exit, Failure
from mqcore.admin.shell.runner import Plan, changes, reads
from mqcore.admin.shell.view import Column, Table, Text, View
from mqcore.client import AsyncAdmin, RocketMQError
from mqcore.client.admin import TimedMessages, Unreachable
from mqcore.wire.recall_handle import HandleError, RecallHandle, RecallOutcome

STATUS = {RecallOutcome.RECALLED: Exit.DONE, RecallOutcome.DELIVERED: Exit.REFUSED}


@click.command("recall")
@click.argument("handle")
@changes
async def recall_command(admin: AsyncAdmin, handle: str) -> Plan:
    """
    Take a message back before its time of delivery.

    HANDLE is the recallHandle that `mqcore message send --in` or a client's send printed. What
    became of the message is printed, and the exit status says it: recalled, now or before (0);
    delivered (1); delivering: it may be on its way, ask again (5); unknown: there is no such
    message, or the broker does not say (5).
    """
    try:
        said = RecallHandle.read(handle)
    except HandleError as error:
        raise Failure(f"HANDLE: {error}", Exit.USAGE) from None
    document = {"topic": said.topic, "broker": said.broker_name, "messageId": said.message_id,
                "second": units.iso_of(said.second_ms / 1000)}
    line = (f"take back message {said.message_id} of topic {said.topic}, due in the second from"
            f" {units.moment(said.second_ms / 1000)} on")

    async def take_back() -> View:
        outcome = (await admin.recall(handle)).outcome
        return View({**document, "outcome": outcome.value}, [
            Text([f"{outcome.value}: {said.message_id}"])],
            status=STATUS.get(outcome, Exit.UNKNOWN))

    return Plan(View(document, [Text([line])]), take_back)


# -- timed ----------------------------------------------------------------------------------------

LATE_PART = 0.99
BROKERS = (
    Column("BROKER", "broker"), Column("PENDING", "pending", right=True),
    Column("NEXT DUE", "nextDue"), Column("LATER", "later", right=True),
    Column("DELIVERED", "delivered", right=True),
    Column("LATE P99", "lateP99", units.age, right=True),
)
TOPICS = (Column("TOPIC", "topic"), Column("BROKER", "broker"),
          Column("PENDING", "pending", right=True))
HOURS = (Column("HOUR", "hour"), Column("BROKER", "broker"), Column("DUE", "pending", right=True))


@click.command("timed")
@click.option("-b", "--broker", metavar="NAME|HOST:PORT",
              help="The broker to ask  [default: all masters].")
@reads()
async def timed_command(admin: AsyncAdmin, broker: str | None) -> View:
    """
    Messages that wait for a time of delivery of their own, by topic and by hour.

    LATER counts what was more than two days ahead when it was stored: it is in no hour. Recalled
    messages count until their time.
    """
    documents: list[dict[str, Any]] = []
    missing: list[Unreachable] = []
    for name, address in await masters(admin, broker):
        try:
            documents.append(_document(name, await admin.timed_messages(address)))
        except RocketMQError as error:
            if broker is not None:
                raise
            missing.append(Unreachable(name, address, error))
    notes = [Text([f"{one['broker']} still counts: there are more"])
             for one in documents if not one["counted"]]
    return View({"brokers": documents}, [
        Table(BROKERS, documents, "no broker answered"),
        Table(TOPICS, _rows(documents, "topics", "topic"), "nothing waits", "topics"),
        Table(HOURS, _rows(documents, "hours", "hour"), title="hours"), *notes], missing=missing)


def _document(broker: str, timed: TimedMessages) -> dict[str, Any]:
    topics = dict(sorted(timed.topics.items(), key=lambda row: (-row[1], row[0])))
    if timed.others:
        topics["(others)"] = timed.others
    return {
        "broker": broker, "pending": timed.pending, "counted": timed.counted, "topics": topics,
        "hours": {units.iso(begin): count for begin, count in timed.hours}, "later": timed.later,
        "nextDue": units.iso(timed.next_due), "delivered": sum(timed.late),
        "lateP99": timed.late_at_most(LATE_PART), "lateSeconds": timed.late_sum}


def _rows(documents: list[dict[str, Any]], member: str, name: str) -> list[dict[str, Any]]:
    return [{name: key, "broker": one["broker"], "pending": count}
            for one in documents for key, count in one[member].items()]
