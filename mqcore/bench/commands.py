"""`mqcore bench`: loads a RocketMQ broker, ours or any other, and says what it costs."""
from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import click

from mqcore.admin.shell.connection import signs
from mqcore.bench.control import BenchError, Target, find_target
from mqcore.bench.load import (
    ConsumeOptions,
    EndToEndOptions,
    ProduceOptions,
    Report,
    Span,
    consume,
    end_to_end,
    produce,
)
from mqcore.wire.command import Codec

SECONDS_DEFAULT = 10.0
CODECS = {"json": Codec.JSON, "rocketmq": Codec.ROCKETMQ}


@click.group("bench")
def bench_group() -> None:
    """Load a broker and measure it: rates, latencies, CPU per message."""


def _common(command: Callable[..., None]) -> Callable[..., None]:
    """The options that every load has."""
    for option in reversed((
        click.option("-b", "--broker", metavar="HOST:PORT", help="The broker to load."),
        click.option("-n", "--namesrv", metavar="HOST:PORT",
                     help="Ask this name server for a broker instead."),
        click.option("-t", "--topic", default="mqcore_bench", show_default=True),
        click.option("-q", "--queues", default=8, show_default=True,
                     type=click.IntRange(1, 1024), help="Queues of the topic."),
        click.option("--create/--no-create", default=True, show_default=True,
                     help="Make the topic, or change it to --queues, before the run."),
        click.option("--heartbeat/--no-heartbeat", default=True, show_default=True,
                     help="Register the connections as real clients do."),
        click.option("--header", type=click.Choice(sorted(CODECS)), default="json",
                     show_default=True, help="How headers are encoded."),
        click.option("--broker-pid", "broker_pids", type=int, multiple=True, metavar="PID",
                     help="Count the CPU of this process and all below it; may be repeated."),
        click.option("--tls", is_flag=True,
                     help="By TLS 1.3 with AES-128-GCM; whoever answers is believed."),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
    )):
        command = option(command)
    return signs(command)


def _target(options: dict[str, Any]) -> Target:
    if (options["broker"] is None) == (options["namesrv"] is None):
        raise click.UsageError("give either --broker or --namesrv")
    return find_target(options["topic"], broker=options["broker"], namesrv=options["namesrv"],
                       queues=options["queues"], create=options["create"], tls=options["tls"],
                       credentials=options["credentials"])


def _span(count: int | None, seconds: float | None, warmup: int) -> Span:
    if count is not None and seconds is not None:
        raise click.UsageError("give --count or --seconds, not both")
    if count is None and seconds is None:
        seconds = SECONDS_DEFAULT
    return Span(count=count, seconds=seconds, warmup=warmup)


def _run(load: Callable[[], Report], as_json: bool) -> None:
    try:
        report = load()
    except (BenchError, ValueError, OSError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(json.dumps(report.as_dict()) if as_json else format_report(report))
    if report.errors or report.lost:
        sys.exit(1)


def format_report(report: Report) -> str:
    """The report for people."""
    lines = [
        f"{report.name}: {report.items:,} messages in {report.seconds:.2f} s = "
        f"{report.rate_per_s:,.0f}/s",
    ]
    if report.latency_us.get("count"):
        names = [name for name in report.latency_us if name.startswith("p")] + ["max_us"]
        parts = (f"{name[:-3]} {report.latency_us[name]:,.0f}" for name in names)
        lines.append(f"latency, us: {', '.join(parts)}")
    if report.broker_cpu_us is not None:
        resident = (report.broker_resident_bytes or 0) / 2**20
        lines.append(f"CPU of the broker: {report.broker_cpu_us:.2f} us a message; "
                     f"resident: {resident:,.0f} MiB")
        lines.append(f"other processes took {report.others_cpu_share or 0.0:.0%} of the machine")
    lines.append(f"CPU of this load: {report.own_cpu_us:.2f} us a message; "
                 f"{report.reads:,} reads, {report.writes:,} writes")
    if report.errors or report.lost:
        lines.append(f"errors by code: {report.errors_by_code}, lost: {report.lost}; "
                     f"first: {report.first_error}")
    return "\n".join(lines)


@bench_group.command("produce")
@_common
@click.option("-c", "--connections", default=8, show_default=True, type=click.IntRange(1, 4096))
@click.option("-d", "--depth", default=32, show_default=True, type=click.IntRange(1, 65_536),
              help="Requests in flight on each connection.")
@click.option("-s", "--size", default=128, show_default=True,
              type=click.IntRange(0, 4 * 1024 * 1024), help="Body bytes.")
@click.option("--count", type=click.IntRange(1), help="Messages to measure.")
@click.option("--seconds", type=float, help=f"Time to measure [default: {SECONDS_DEFAULT:g}].")
@click.option("--warmup", default=0, show_default=True, help="Messages before the measured part.")
@click.option("--rate", default=0.0, type=click.FloatRange(0),
              help="Open loop: messages per second, each timed from when it was due.")
@click.option("--oneway", is_flag=True, help="Send without answers.")
@click.option("--verify/--no-verify", default=True, show_default=True,
              help="With --oneway: ask the broker how many messages arrived.")
@click.option("--transactional", is_flag=True,
              help="Half messages, each committed when it is stored: a message is a transaction.")
@click.option("--delay-level", default=0, help="Delayed messages: their level.")
@click.option("--keys", is_flag=True, help="Give each message a KEYS property of its own.")
@click.option("--tags", default="TagA", show_default=True, help="TAGS property; empty for none.")
def produce_command(
    connections: int, depth: int, size: int, count: int | None, seconds: float | None,
    warmup: int, rate: float, oneway: bool, verify: bool, transactional: bool, delay_level: int,
    keys: bool, tags: str, **common: Any,
) -> None:
    """Send messages: as many in flight as asked, or at a rate."""
    options = ProduceOptions(
        span=_span(count, seconds, warmup), connections=connections, depth=depth, size=size,
        rate=rate, oneway=oneway, verify=verify, transactional=transactional,
        delay_level=delay_level, keys=keys, tags=tags or None, codec=CODECS[common["header"]],
        heartbeat=common["heartbeat"], broker_pids=common["broker_pids"])
    _run(lambda: produce(_target(common), options), common["as_json"])


@bench_group.command("consume")
@_common
@click.option("-c", "--connections", default=8, show_default=True, type=click.IntRange(1, 4096))
@click.option("-d", "--depth", default=4, show_default=True, type=click.IntRange(1, 4096),
              help="Pulls in flight on each connection.")
@click.option("--batch", default=32, show_default=True, type=click.IntRange(1, 1024),
              help="Messages asked for in one pull.")
@click.option("--count", type=click.IntRange(1),
              help="Messages to receive, from the start again if need be [default: all, once].")
@click.option("--warmup", default=0, show_default=True, help="Messages before the measured part.")
@click.option("-g", "--group", default="mqcore_bench_consumer", show_default=True)
def consume_command(
    connections: int, depth: int, batch: int, count: int | None, warmup: int, group: str,
    **common: Any,
) -> None:
    """Pull what the topic's queues hold, and check every record."""
    options = ConsumeOptions(
        count=count, connections=connections, depth=depth, batch=batch, warmup=warmup, group=group,
        codec=CODECS[common["header"]], heartbeat=common["heartbeat"],
        broker_pids=common["broker_pids"])
    _run(lambda: consume(_target(common), options), common["as_json"])


@bench_group.command("e2e")
@_common
@click.option("--rate", default=1000.0, show_default=True, type=click.FloatRange(0, min_open=True),
              help="Messages per second.")
@click.option("--producers", default=4, show_default=True, type=click.IntRange(1, 1024),
              help="Connections that send.")
@click.option("--consumers", default=4, show_default=True, type=click.IntRange(1, 1024),
              help="Connections that hold the queues' pulls.")
@click.option("-s", "--size", default=128, show_default=True,
              type=click.IntRange(16, 4 * 1024 * 1024), help="Body bytes.")
@click.option("--count", type=click.IntRange(1), help="Messages to measure.")
@click.option("--seconds", type=float, help=f"Time to measure [default: {SECONDS_DEFAULT:g}].")
@click.option("--warmup", default=100, show_default=True,
              help="Messages before the measured part.")
@click.option("-g", "--group", default="mqcore_bench_e2e", show_default=True)
def e2e_command(
    rate: float, producers: int, consumers: int, size: int, count: int | None,
    seconds: float | None, warmup: int, group: str, **common: Any,
) -> None:
    """Send at a rate and time each message from when it was due to when a held pull returns it."""
    options = EndToEndOptions(
        span=_span(count, seconds, warmup), rate=rate, producers=producers, consumers=consumers,
        size=size, group=group, codec=CODECS[common["header"]], heartbeat=common["heartbeat"],
        broker_pids=common["broker_pids"])
    _run(lambda: end_to_end(_target(common), options), common["as_json"])


if __name__ == "__main__":
    bench_group()
