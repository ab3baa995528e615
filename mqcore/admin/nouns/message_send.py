"""`mqcore message send` and `consume`: messages by hand."""
from __future__ import annotations

import asyncio
import base64
import contextlib
import copy
import fcntl
import itertools
import json
import os
import signal
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import click

from mqcore.admin.nouns.parameters import group_option, topic_option
from mqcore.admin.nouns.stored import document_of
from mqcore.admin.shell import units
from mqcore.admin.shell.connection import Connection, connects
from mqcore.admin.shell.exits import Failure, status_of
from mqcore.admin.shell.lazy import HELP
from mqcore.client import (
    AsyncProducer,
    AsyncPushConsumer,
    ConsumeContext,
    Message,
    ReceivedMessage,
    RocketMQError,
    SendResult,
)
from mqcore.wire.printable import json_line
from mqcore.wire.properties import user_properties

SEND_GROUP = "MQCORE_TOOLS_PRODUCER"
LINE_BYTES_MAX = 16 << 20


def _fail(error: Exception) -> click.ClickException:
    return Failure(str(error), status_of(error))


def properties_of(pairs: tuple[str, ...]) -> dict[str, str]:
    properties = {}
    for pair in pairs:
        name, found, value = pair.partition("=")
        if not found or not name or not value:
            raise click.BadParameter(f"{pair!r}: expected name=value", param_hint="--property")
        properties[name] = value
    return properties


def _body(body: str | None, file: Path | None) -> bytes:
    if (body is None) == (file is None):
        raise click.UsageError("give the message with either --body or --file")
    if body is not None:
        return os.fsencode(body)
    assert file is not None
    return sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()


@click.command("send", context_settings=HELP)
@topic_option(help="The topic; made on the first send. Of --ndjson: instead of "
              "the documents' own.")
@click.option("-p", "--body", help="The message as text.")
@click.option("--file", type=click.Path(path_type=Path, exists=True, allow_dash=True),
              help="The message from a file; - is standard input.")
@click.option("--ndjson", "lines", type=click.Path(path_type=Path, exists=True, allow_dash=True),
              help="Messages as JSON lines, as `message tail --ndjson` prints them.")
@click.option("--tags", help="The message's tag.")
@click.option("--keys", help="Keys to find it by, separated by blanks.")
@click.option("--count", default=1, show_default=True, type=click.IntRange(1, 1_000_000),
              help="How often to send it.")
@click.option("--rate", type=click.FloatRange(0.001), help="At most so many messages a second.")
@click.option("--property", "pairs", multiple=True, metavar="NAME=VALUE", help="A user property.")
@click.option("--delay-level", default=0, type=click.IntRange(0, 18), help="Deliver it later.")
@click.option("--in", "after", metavar="DURATION", help="Deliver it so much later: `90s`, `1.5h`.")
@click.option("--at", metavar="TIME", help="Deliver it then: an ISO time with its zone.")
@connects
def send_command(
    *, connection: Connection, topic: str | None, body: str | None, file: Path | None,
    lines: Path | None, tags: str | None, keys: str | None, count: int, rate: float | None,
    pairs: tuple[str, ...], delay_level: int, after: str | None, at: str | None,
) -> None:
    """Send a message, or many, and print where each went, one JSON line each."""
    try:
        if lines is not None:
            if body is not None or file is not None or pairs or tags or keys:
                raise click.UsageError("--ndjson has bodies, tags, keys and properties in it")
            if after is not None or at is not None:
                raise click.UsageError("--ndjson: --in and --at are for one message")
            messages = messages_of(_opened(lines), str(lines), topic)
        else:
            if topic is None:
                raise click.UsageError("give --topic")
            message = Message(topic, _body(body, file), tags=tags, keys=keys,
                              properties=properties_of(pairs), delay_level=delay_level,
                              delay=None if after is None else units.seconds_of(after),
                              deliver_at=None if at is None else units.moment_of(at))
            messages = itertools.repeat(message, count)
        asyncio.run(_send(connection, messages, rate))
    except (RocketMQError, ValueError) as error:
        raise _fail(error) from error


async def _send(
    connection: Connection, messages: Iterable[Message], rate: float | None,
) -> None:
    loop = asyncio.get_running_loop()
    async with AsyncProducer(SEND_GROUP, namesrv=connection.namesrv,
                             credentials=connection.credentials) as producer:
        due = loop.time()
        for message in messages:
            if rate is not None:
                await asyncio.sleep(max(0.0, due - loop.time()))
                due = max(due, loop.time() - 1.0) + 1.0 / rate
            click.echo(json.dumps(_sent(await producer.send(copy.copy(message)))))


def _opened(file: Path) -> Iterator[bytes]:
    """The lines of a file; each is read when it is asked for."""
    if str(file) == "-":
        yield from iter(lambda: sys.stdin.buffer.readline(LINE_BYTES_MAX + 1), b"")
        return
    try:
        with file.open("rb") as opened:
            yield from iter(lambda: opened.readline(LINE_BYTES_MAX + 1), b"")
    except OSError as error:
        raise Failure(f"{file}: cannot be read: {error.strerror}") from None


def messages_of(
    lines: Iterable[bytes], where: str, topic: str | None = None,
) -> Iterator[Message]:
    """
    The messages of JSON lines, in the form of `message tail --ndjson`.

    :param where: names the file in errors
    :param topic: instead of the documents' own
    Of their properties those of applications are taken. Raises Failure with line and field.
    """
    for number, line in enumerate(lines, 1):
        place = f"{where}, line {number}"
        if len(line) > LINE_BYTES_MAX:
            raise Failure(f"{place}: expected at most {LINE_BYTES_MAX} bytes")
        if not line.strip():
            continue
        try:
            document = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise Failure(f"{place}: not JSON: {error}") from None
        if not isinstance(document, dict):
            raise Failure(f"{place}: expected an object")
        yield _message_of(document, place, topic)


def _message_of(document: dict[str, Any], place: str, topic: str | None) -> Message:
    name = topic or document.get("topic")
    if not isinstance(name, str):
        raise Failure(f"{place}: topic: expected a name, or --topic")
    tags, keys = document.get("tags"), document.get("keys") or []
    if tags is not None and not isinstance(tags, str):
        raise Failure(f"{place}: tags: expected text")
    if isinstance(keys, str):
        keys = keys.split()
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise Failure(f"{place}: keys: expected a list of texts")
    properties = document.get("properties") or {}
    if not isinstance(properties, dict) or not all(
            isinstance(value, str) for value in properties.values()):
        raise Failure(f"{place}: properties: expected names with texts")
    try:
        return Message(name, _body_of(document, place), tags=tags, keys=" ".join(keys) or None,
                       properties=user_properties(properties))
    except ValueError as error:
        raise Failure(f"{place}: {error}") from None


def _body_of(document: dict[str, Any], place: str) -> bytes:
    text, encoded = document.get("body"), document.get("bodyBase64")
    if (text is None) == (encoded is None):
        raise Failure(f"{place}: expected one of body, bodyBase64")
    if text is not None:
        if not isinstance(text, str):
            raise Failure(f"{place}: body: expected text")
        return text.encode(errors="surrogatepass")
    try:
        return base64.b64decode(str(encoded), validate=True)
    except ValueError:
        raise Failure(f"{place}: bodyBase64: expected Base64") from None


def _sent(result: SendResult) -> dict[str, Any]:
    return {
        "status": result.status.name, "messageId": result.message_id,
        "offsetMessageId": result.offset_message_id, "broker": result.queue.broker_name,
        "queueId": result.queue.queue_id, "queueOffset": result.queue_offset,
        **({"recallHandle": result.recall_handle} if result.recall_handle else {}),
    }


@click.command("consume", context_settings=HELP)
@topic_option(required=True, help="The topic to read.")
@group_option(required=True, help="The consumer group; it commits what it read.")
@click.option("--tags", default="*", show_default=True, help="TagA || TagB.")
@click.option("--count", type=click.IntRange(1), help="Stop after this many messages.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(0.1), help="Stop after S seconds.")
@click.option("--from", "start", type=click.Choice(["earliest", "latest"]), default="earliest",
              show_default=True, help="Where a new group begins.")
@connects
def consume_command(
    *, connection: Connection, topic: str, group: str, tags: str, count: int | None,
    timeout_s: float | None, start: Literal["earliest", "latest"],
) -> None:
    """Print messages of a topic, one JSON line each, until --count, --timeout or Ctrl-C, or until
    nothing reads the output any more. The group's next member gets what was not printed.

    With --count, ends with status 1 when fewer messages came in time.
    """
    try:
        printed = asyncio.run(_consume(
            connection, topic, group, tags, count, timeout_s, start))
    except (RocketMQError, ValueError) as error:
        raise _fail(error) from error
    if count is not None and printed < count:
        raise click.ClickException(f"{printed} of {count} messages came")


async def _consume(
    connection: Connection, topic: str, group: str, tags: str, count: int | None,
    timeout_s: float | None, start: Literal["earliest", "latest"],
) -> int:
    enough = asyncio.Event()
    printed = 0
    failure: OSError | None = None

    async def show(messages: list[ReceivedMessage], context: ConsumeContext) -> None:
        nonlocal printed, failure
        for message in messages:
            if not enough.is_set():
                try:
                    click.echo(json_line(document_of(message)))
                    printed += 1
                    continue
                except OSError as error:
                    failure = error
                    enough.set()
            # Not printed: not done, so that it is not committed for the group, nor sent back.
            await asyncio.Event().wait()
        if count is not None and printed >= count:
            enough.set()

    consumer = AsyncPushConsumer(
        group, topic, show, filter=tags, namesrv=connection.namesrv, concurrency=1,
        credentials=connection.credentials, start=start,
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, enough.set)
    output = _pipe_of_output()
    if output is not None:
        loop.add_reader(output, enough.set)         # ready when its other end was closed
    await consumer.start()
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await enough.wait()
    finally:
        await consumer.close(timeout=1.0)
    if failure is not None:
        raise failure
    return printed


def _pipe_of_output() -> int | None:
    """The descriptor of standard output where it is the end of a pipe to write to."""
    try:
        output = sys.stdout.fileno()
    except OSError:
        return None
    is_pipe = stat.S_ISFIFO(os.fstat(output).st_mode)
    is_read = fcntl.fcntl(output, fcntl.F_GETFL) & os.O_ACCMODE != os.O_WRONLY
    return output if is_pipe and not is_read else None
