"""`mqcore send` and `mqcore consume`: messages by hand."""
from __future__ import annotations

import asyncio
import base64
import contextlib
import fcntl
import json
import os
import signal
import stat
import sys
from pathlib import Path
from typing import Any, Literal

import click

from mqcore.admin.signing import signed
from mqcore.client import (
    AsyncProducer,
    AsyncPushConsumer,
    ConsumeContext,
    Credentials,
    Message,
    ReceivedMessage,
    RocketMQError,
    SendResult,
)
from mqcore.wire.printable import json_line

DEFAULT_NAME_SERVER = "127.0.0.1:9876"
SEND_GROUP = "MQCORE_TOOLS_PRODUCER"

namesrv_option = click.option(
    "-n", "--namesrv", envvar="NAMESRV_ADDR", default=DEFAULT_NAME_SERVER, show_default=True,
    show_envvar=True,
    help="Name servers, host:port;host:port; by TLS: rocketmq://host:port?tls=verify&ca=FILE.",
)


def _fail(error: Exception) -> click.ClickException:
    return click.ClickException(str(error))


def _properties(pairs: tuple[str, ...]) -> dict[str, str]:
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
        return body.encode()
    assert file is not None
    return sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()


@click.command("send")
@click.option("-t", "--topic", required=True, help="The topic; made on the first send.")
@namesrv_option
@click.option("-p", "--body", help="The message as text.")
@click.option("--file", type=click.Path(path_type=Path, exists=True, allow_dash=True),
              help="The message from a file; - is standard input.")
@click.option("--tags", help="The message's tag.")
@click.option("--keys", help="Keys to find it by, separated by blanks.")
@click.option("--count", default=1, show_default=True, type=click.IntRange(1, 1_000_000),
              help="How often to send it.")
@click.option("--property", "pairs", multiple=True, metavar="NAME=VALUE", help="A user property.")
@click.option("--delay-level", default=0, type=click.IntRange(0, 18), help="Deliver it later.")
@signed
def send_command(
    *, credentials: Credentials | None,
    topic: str, namesrv: str, body: str | None, file: Path | None, tags: str | None,
    keys: str | None, count: int, pairs: tuple[str, ...], delay_level: int,
) -> None:
    """Send a message and print where each copy went, one JSON line each."""
    content, properties = _body(body, file), _properties(pairs)

    async def run() -> None:
        async with AsyncProducer(SEND_GROUP, namesrv=namesrv, credentials=credentials) as producer:
            for _ in range(count):
                message = Message(topic, content, tags=tags, keys=keys, properties=properties,
                                  delay_level=delay_level)
                click.echo(json.dumps(_sent(await producer.send(message))))

    try:
        asyncio.run(run())
    except (RocketMQError, ValueError) as error:
        raise _fail(error) from error


def _sent(result: SendResult) -> dict[str, Any]:
    return {
        "status": result.status.name, "messageId": result.message_id,
        "offsetMessageId": result.offset_message_id, "broker": result.queue.broker_name,
        "queueId": result.queue.queue_id, "queueOffset": result.queue_offset,
    }


@click.command("consume")
@click.option("-t", "--topic", required=True, help="The topic to read.")
@click.option("-g", "--group", required=True, help="The consumer group; it commits what it read.")
@namesrv_option
@click.option("--tags", default="*", show_default=True, help="TagA || TagB.")
@click.option("--count", type=click.IntRange(1), help="Stop after this many messages.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(0.1), help="Stop after S seconds.")
@click.option("--from", "start", type=click.Choice(["earliest", "latest"]), default="earliest",
              show_default=True, help="Where a new group begins.")
@signed
def consume_command(
    *, credentials: Credentials | None,
    topic: str, group: str, namesrv: str, tags: str, count: int | None, timeout_s: float | None,
    start: Literal["earliest", "latest"],
) -> None:
    """Print messages of a topic, one JSON line each, until --count, --timeout or Ctrl-C, or until
    nothing reads the output any more. The group's next member gets what was not printed.

    With --count, ends with status 1 when fewer messages came in time.
    """
    try:
        printed = asyncio.run(_consume(
            topic, group, namesrv, tags, count, timeout_s, start, credentials))
    except (RocketMQError, ValueError) as error:
        raise _fail(error) from error
    except BrokenPipeError:
        raise                           # the command ends, with status 1 and without a word
    except OSError as error:
        raise click.ClickException(f"the output: {error}") from error
    if count is not None and printed < count:
        raise click.ClickException(f"{printed} of {count} messages came")


async def _consume(
    topic: str, group: str, namesrv: str, tags: str, count: int | None, timeout_s: float | None,
    start: Literal["earliest", "latest"], credentials: Credentials | None,
) -> int:
    enough = asyncio.Event()
    printed = 0
    failure: OSError | None = None

    async def show(messages: list[ReceivedMessage], context: ConsumeContext) -> None:
        nonlocal printed, failure
        for message in messages:
            if not enough.is_set():
                try:
                    click.echo(json_line(_received(message)))
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
        group, topic, show, filter=tags, namesrv=namesrv, concurrency=1, credentials=credentials,
        start=start,
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


def _received(message: ReceivedMessage) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "topic": message.topic, "messageId": message.message_id,
        "broker": message.queue.broker_name, "queueId": message.queue.queue_id,
        "queueOffset": message.queue_offset, "tags": message.tags, "keys": message.keys,
        "bornTimestamp": message.born_timestamp_ms, "storeTimestamp": message.store_timestamp_ms,
        "reconsumeTimes": message.reconsume_times, "properties": message.properties,
    }
    try:
        shown["body"] = message.body.decode()
    except UnicodeDecodeError:
        shown["bodyBase64"] = base64.b64encode(message.body).decode()
    return shown
