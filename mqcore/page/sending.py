"""The form that sends a message, in the shape of a command that changes something."""
from __future__ import annotations

from collections.abc import Sequence

import click

from mqcore.admin.nouns.message_send import properties_of
from mqcore.admin.nouns.parameters import topic_option
from mqcore.admin.shell.runner import Plan, changes
from mqcore.admin.shell.view import Text, View
from mqcore.client import AsyncAdmin


@click.command("send")
@topic_option(required=True, help="Where it goes.")
@click.option("-p", "--body", required=True, help="The body, in UTF-8.")
@click.option("--tag", help="The tag that consumers filter by.")
@click.option("--key", "keys", multiple=False, help="Keys, with blanks between them.")
@click.option("--property", "pairs", multiple=False, help="name=value, with blanks between two.")
@changes
async def send_command(
    admin: AsyncAdmin, topic: str, body: str, tag: str | None, keys: str | None, pairs: str | None,
) -> Plan:
    """Send a message to a topic."""
    properties = properties_of(tuple((pairs or "").split()))
    shown = {"topic": topic, "bytes": len(body.encode()), "tag": tag,
             "keys": _words(keys), "properties": properties}
    line = f"send {shown['bytes']} bytes to topic {topic}"

    async def work() -> View:
        sent = await admin.send(topic, body, tags=tag, keys=_words(keys), properties=properties)
        return View({
            "messageId": sent.message_id, "offsetMessageId": sent.offset_message_id,
            "broker": sent.queue.broker_name, "queueId": sent.queue.queue_id,
            "queueOffset": sent.queue_offset,
        }, [Text([f"stored: {sent.queue.broker_name}, queue {sent.queue.queue_id}, "
                  f"offset {sent.queue_offset}, id {sent.message_id}"])])

    return Plan(View(shown, [Text([line])]), work)


def _words(text: str | None) -> Sequence[str]:
    return (text or "").split()
