"""
The three flush modes side by side: rate and broker CPU of a closed loop of sends.

    python -m perf.flush_modes [--rounds N] [--seconds S] [--size BYTES] [--folder P] [--e2e RATE]

The modes take turns (A B C A B C ...), each on a fresh store below P, so that a machine that gets
busier does so for all of them; medians and ratios to async are printed, and the share of the cores
that other processes took. --e2e measures the way to a held pull at a rate instead.
"""
from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import click

from mqcore.bench.control import Target, create_topic
from mqcore.bench.load import (
    EndToEndOptions,
    ProduceOptions,
    Report,
    Span,
    end_to_end,
    produce,
)
from perf.contenders import MQCORE_STORE
from tests.support.mqcore_process import mqcore_up

MODES = ("async", "transient-pool", "sync")
TOPIC = "flush_modes"
QUEUES = 8
WARMUP = 50_000


def measure(folder: Path, mode: str, seconds: float, size: int, rate: float) -> Report:
    """One turn of one mode. Raises BenchError when answers stop."""
    with mqcore_up(folder, {**MQCORE_STORE, "store.flush": mode}) as broker:
        create_topic(broker.broker_addr, TOPIC, QUEUES)
        target = Target(broker.broker_addr, TOPIC, QUEUES)
        if rate:
            return end_to_end(target, EndToEndOptions(
                span=Span(seconds=seconds, warmup=int(rate)), rate=rate,
                broker_pids=(broker.pid,)))
        return produce(target, ProduceOptions(
            span=Span(seconds=seconds, warmup=WARMUP), size=size, broker_pids=(broker.pid,)))


def line(mode: str, reports: list[Report], base: list[Report]) -> str:
    """One row of the table."""
    rate = statistics.median(report.rate_per_s for report in reports)
    cpu = statistics.median(report.broker_cpu_us or 0.0 for report in reports)
    base_rate = statistics.median(report.rate_per_s for report in base)
    base_cpu = statistics.median(report.broker_cpu_us or 0.0 for report in base)
    latencies = [statistics.median(report.latency_us[name] for report in reports)
                 for name in ("p50_us", "p99_us")]
    others = max(report.others_cpu_share or 0.0 for report in reports)
    return (f"{mode:<15} {rate:>10,.0f}/s  {rate / base_rate:>5.2f} of async   {cpu:5.2f} us CPU  "
            f"{cpu / base_cpu:>5.2f} of async   p50 {latencies[0]:,.0f} us  "
            f"p99 {latencies[1]:,.0f} us   others took up to {others:.0%}")


@click.command(help=__doc__)
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1, 100))
@click.option("--seconds", default=4.0, show_default=True, type=click.FloatRange(0.2, 600))
@click.option("--size", default=128, show_default=True, type=click.IntRange(0, 4 << 20))
@click.option("--folder", type=click.Path(file_okay=False, exists=True, path_type=Path))
@click.option("--e2e", "rate", default=0.0, type=click.FloatRange(0), help="Messages a second.")
@click.option("--modes", default=",".join(MODES), show_default=True)
def main(rounds: int, seconds: float, size: int, folder: Path | None, rate: float,
         modes: str) -> None:
    names = modes.split(",")
    reports: dict[str, list[Report]] = {mode: [] for mode in names}
    for number in range(rounds):
        for mode in names:
            with tempfile.TemporaryDirectory(dir=folder) as place:
                report = measure(Path(place), mode, seconds, size, rate)
            reports[mode].append(report)
            click.echo(f"round {number + 1} {mode}: {report.rate_per_s:,.0f}/s, "
                       f"{report.broker_cpu_us or 0.0:.2f} us", err=True)
            if report.errors:
                click.echo(f"{mode}: {report.errors} errors, {report.first_error}", err=True)
    for mode in names:
        click.echo(line(mode, reports[mode], reports[names[0]]))


if __name__ == "__main__":
    main()
