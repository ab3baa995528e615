"""`mqcore message spans`: traces of clients, as spans of OpenTelemetry."""
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import chain, islice, repeat
from typing import Any
from urllib.parse import urlsplit

import click

from mqcore.admin.lines import say
from mqcore.admin.nouns.parameters import group_option
from mqcore.admin.shell.connection import Connection
from mqcore.admin.shell.exits import Failure
from mqcore.admin.shell.runner import streams
from mqcore.admin.spans import SpanPush, TraceSpan, spans_of
from mqcore.client import AsyncConsumer
from mqcore.wire.codes import TRACE_TOPIC

MESSAGES_AT_ONCE = 64
SPANS_AT_ONCE = 512
AGAIN_S = (1.0, 2.0, 5.0, 10.0)          # waits between pushes that fail; the last one repeats
LOOK_S = 1.0


def _url(context: click.Context, parameter: click.Parameter, text: str) -> str:
    try:
        parts = urlsplit(text)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return text
    except ValueError:
        pass
    raise click.BadParameter(f"{text!r}: expected http://HOST:4318/v1/traces")


@click.command("spans")
@click.option("--to", "url", required=True, metavar="URL", callback=_url,
              help="The collector's OTLP by HTTP: http://HOST:4318/v1/traces.")
@group_option(default="mqcore-spans", show_default=True,
              help="The group that remembers what was pushed.")
@click.option("--trace-topic", default=TRACE_TOPIC, show_default=True,
              help="The topic that clients write traces to.")
@click.option("--count", type=click.IntRange(1), help="End after so many trace messages.")
@streams
async def spans_command(
    connection: Connection, *, url: str, group: str, trace_topic: str, count: int | None,
) -> AsyncIterator[tuple[dict[str, Any], str]]:
    """
    Push the traces of clients to a collector of OpenTelemetry, until Ctrl-C.

    A message's send is the parent of what its consumers did. Spans that the collector refuses are
    pushed again; several processes of one group share the work.
    """
    try:
        push = SpanPush(url)
    except ModuleNotFoundError as error:
        raise Failure(f"needs pip install 'mqcore[otlp]': no module {error.name}") from None
    left = count
    try:
        async with AsyncConsumer(
                group, trace_topic, namesrv=connection.namesrv, start="earliest", ack="manual",
                credentials=connection.credentials) as consumer:
            while left is None or left > 0:
                found = await consumer.receive(
                    max=min(MESSAGES_AT_ONCE, left or MESSAGES_AT_ONCE), timeout=LOOK_S)
                if not found:
                    continue
                pushed = 0
                spans = chain.from_iterable(map(spans_of, found))
                while some := list(islice(spans, SPANS_AT_ONCE)):
                    await _until_taken(push, some, url)
                    pushed += len(some)
                for message in found:
                    message.ack()
                left = None if left is None else left - len(found)
                yield ({"messages": len(found), "spans": pushed},
                       f"{len(found)} messages, {pushed} spans")
    finally:
        push.stop()


async def _until_taken(push: SpanPush, spans: list[TraceSpan], url: str) -> None:
    """A line for a collector that takes nothing, and one for the end of that."""
    waits = chain(AGAIN_S, repeat(AGAIN_S[-1]))
    failed = False
    while not await asyncio.to_thread(push.send, spans):
        if not failed:
            say(f"{url} does not take spans: they are pushed again", err=True)
        failed = True
        await asyncio.sleep(next(waits))
    if failed:
        say(f"{url} takes spans again", err=True)
