"""
Side by side: mqcore, another state of it, the bare C yardstick and the stock Java broker, on one
machine in one run.

    python -m perf.compare [--quick] [--bare PROGRAM] [--only mqcore,stock] [--before MQCORE]...
                           [--json FILE]

Brokers take turns (A B A B ...), each on a fresh store, so that a machine that gets slower or
busier does so for all of them. The table shows the median of the rounds. docs/performance.md says
how each figure is measured and what it does not say.
"""
from __future__ import annotations

import dataclasses
import json
import platform
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import click

from mqcore.bench.control import BenchError, Target, create_topic, wait_for_stored
from mqcore.bench.cpu import process_tree
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
from perf.contenders import Contender, Running, bare_program, contenders
from perf.ledger.counts import private_bytes

QUEUES = 8
CASE_SECONDS = 5.0
QUICK_SECONDS = 1.5
ROUNDS = 3
CONSUME_COUNT = 2_000_000
E2E_WARMUP_S = 1.0


@dataclass(frozen=True)
class Case:
    """One row: a load, and whether it needs more than a yardstick that only takes sends."""

    name: str
    flush: str
    run: Callable[[Running, Contender, float], Report]
    needs_whole: bool = False


def _topic(running: Running, contender: Contender, topic: str) -> Target:
    if contender.is_whole:
        create_topic(running.addr, topic, QUEUES)
    return Target(running.addr, topic, QUEUES)


def produce_case(size: int, connections: int = 8, depth: int = 32,
                 ) -> Callable[[Running, Contender, float], Report]:
    """A closed loop of sends."""

    def run(running: Running, contender: Contender, seconds: float) -> Report:
        warmup = contender.warmup if depth > 1 else min(contender.warmup, 10_000)
        return produce(_topic(running, contender, f"produce_{size}_{depth}"), ProduceOptions(
            span=Span(seconds=seconds, warmup=warmup), connections=connections, depth=depth,
            size=size, heartbeat=contender.is_whole, broker_pids=(running.pid,)))

    return run


def consume_case(running: Running, contender: Contender, seconds: float) -> Report:
    """Pulls of 32 from a topic that was filled before; the first pass over it is not measured."""
    target = _topic(running, contender, "consume_128")
    count = int(CONSUME_COUNT * seconds / CASE_SECONDS)
    stored = min(count, 500_000)
    produce(target, ProduceOptions(span=Span(count=stored), heartbeat=contender.is_whole))
    if wait_for_stored(target, stored) < stored:
        raise BenchError(f"not all of {stored} messages reached their queues")
    return consume(target, ConsumeOptions(count=count, warmup=stored, broker_pids=(running.pid,)))


def e2e_case(rate: float) -> Callable[[Running, Contender, float], Report]:
    """Messages at a rate to held pulls."""

    def run(running: Running, contender: Contender, seconds: float) -> Report:
        return end_to_end(_topic(running, contender, f"e2e_{rate:g}"), EndToEndOptions(
            span=Span(seconds=seconds, warmup=int(rate * E2E_WARMUP_S)), rate=rate,
            broker_pids=(running.pid,)))

    return run


CASES = (
    Case("produce 128 B, 8 x 32", "async", produce_case(128)),
    Case("produce 1 KB, 8 x 32", "async", produce_case(1024)),
    Case("consume 128 B, 32 a pull", "async", consume_case, needs_whole=True),
    Case("one in flight, 128 B", "async", produce_case(128, 1, 1)),
    Case("end to end, 1,000/s", "async", e2e_case(1_000), needs_whole=True),
    Case("end to end, 10,000/s", "async", e2e_case(10_000), needs_whole=True),
    Case("produce 128 B, 8 x 32, sync flush", "sync", produce_case(128), needs_whole=True),
    Case("one in flight, sync flush", "sync", produce_case(128, 1, 1), needs_whole=True),
)


@dataclass
class Results:
    """Reports by case and contender, one per round; failures by the same keys."""

    reports: dict[str, dict[str, list[Report]]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    start_s: dict[str, list[float]] = field(default_factory=dict)
    start_cpu_s: dict[str, list[float]] = field(default_factory=dict)
    idle_bytes: dict[str, list[int]] = field(default_factory=dict)

    def add(self, case: str, contender: str, report: Report) -> None:
        self.reports.setdefault(case, {}).setdefault(contender, []).append(report)

    def median(self, case: str, contender: str, pick: Callable[[Report], float | None],
               ) -> float | None:
        values = [pick(report) for report in self.reports.get(case, {}).get(contender, [])]
        known = [value for value in values if value is not None]
        return statistics.median(known) if known else None


def run_round(
    columns: list[Contender], cases: list[Case], seconds: float, results: Results, folder: Path
) -> None:
    """Every contender once with each flush mode that the cases ask for."""
    for flush in dict.fromkeys(case.flush for case in cases):
        for contender in columns:
            due = [case for case in cases if case.flush == flush
                   and (contender.is_whole or not case.needs_whole)]
            if due:
                _run_contender(contender, flush, due, seconds, results, folder)


def _run_contender(
    contender: Contender, flush: str, cases: list[Case], seconds: float, results: Results,
    folder: Path,
) -> None:
    with (
        tempfile.TemporaryDirectory(dir=folder, prefix=f"{contender.name}-") as store,
        contender.start(Path(store), flush) as running,
    ):
        results.start_s.setdefault(contender.name, []).append(running.start_s)
        results.start_cpu_s.setdefault(contender.name, []).append(running.start_cpu_s)
        if contender.name.startswith(("mqcore", "before")):
            results.idle_bytes.setdefault(contender.name, []).append(
                private_bytes(process_tree(running.pid)))
        for case in cases:
            try:
                report = case.run(running, contender, seconds)
            except BenchError as error:
                results.failures.append(f"{case.name}, {contender.name}: {error}")
                continue
            results.add(case.name, contender.name, report)
            click.echo(f"  {contender.name:7s} {case.name:34s} {_cell(report)}", err=True)


def _cell(report: Report) -> str:
    cpu = f"{report.broker_cpu_us:.2f}" if report.broker_cpu_us is not None else "-"
    errors = f", errors {report.errors_by_code}" if report.errors else ""
    busy = f", others took {report.others_cpu_share or 0:.0%} of the machine"
    p50, p99 = report.latency_us["p50_us"], report.latency_us["p99_us"]
    return (f"{report.rate_per_s:,.0f}/s, {cpu} us CPU, p50 {p50:,.0f} p99 {p99:,.0f} us"
            f"{errors}{busy}")


def _mib(size: int | None) -> float | None:
    return None if size is None else size / 2**20


FIGURES: tuple[tuple[str, Callable[[Report], float | None], str], ...] = (
    ("messages/s", lambda report: report.rate_per_s, ",.0f"),
    ("CPU us", lambda report: report.broker_cpu_us, ",.2f"),
    ("p50 us", lambda report: report.latency_us.get("p50_us"), ",.0f"),
    ("p99 us", lambda report: report.latency_us.get("p99_us"), ",.0f"),
    ("p99.9 us", lambda report: report.latency_us.get("p99.9_us"), ",.0f"),
    ("resident MiB", lambda report: _mib(report.broker_resident_bytes), ",.0f"),
    ("others' CPU", lambda report: report.others_cpu_share, ".0%"),
)


def table(results: Results, cases: list[Case], names: list[str]) -> str:
    """Markdown: a row per case and figure, a column per contender, then ratios to mqcore."""
    others = [name for name in names if name != "mqcore"] if "mqcore" in names else []
    heads = ["case", "figure", *names, *(f"mqcore / {name}" for name in others)]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for case in cases:
        for figure, pick, style in FIGURES:
            values = {name: results.median(case.name, name, pick) for name in names}
            if all(value is None for value in values.values()):
                continue
            cells = [_text(values[name], style) for name in names]
            cells += [_ratio(values.get("mqcore"), values[name]) if style != ".0%" else ""
                      for name in others]
            lines.append("| " + " | ".join([case.name, figure, *cells]) + " |")
    return "\n".join(lines)


def _text(value: float | None, style: str) -> str:
    return "-" if value is None else format(value, style)


def _ratio(ours: float | None, theirs: float | None) -> str:
    return "-" if ours is None or not theirs else f"{ours / theirs:.2f}"


@click.command()
@click.option("--quick", is_flag=True, help="One short round: shows that it works, not how fast.")
@click.option("--bare", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Another yardstick, called as PROGRAM PORT FILE one|two  [default: "
                   "perf/bare_broker.c, where there is a C compiler].")
@click.option("--bare-mode", type=click.Choice(["one", "two"]), default="two", show_default=True)
@click.option("--only", default="mqcore,bare,stock", show_default=True,
              help="Which brokers, separated by commas.")
@click.option("--before", multiple=True,
              type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="The mqcore command of another state of the project, built elsewhere; several "
                   "times: ratios to the last one hide what came little by little.")
@click.option("--case", "case_part", default="", help="Only cases whose name contains this.")
@click.option("--rounds", type=click.IntRange(1, 20), help=f"Turns each [default: {ROUNDS}].")
@click.option("--seconds", type=click.FloatRange(0.2, 120), help="Measured part of each case.")
@click.option("--folder", type=click.Path(exists=True, file_okay=False, path_type=Path),
              default=Path(tempfile.gettempdir()), help="Where the temporary stores go.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="All reports, raw.")
def main(
    quick: bool, bare: Path | None, bare_mode: str, only: str, before: tuple[Path, ...],
    case_part: str, rounds: int | None, seconds: float | None, folder: Path,
    json_file: Path | None,
) -> None:
    """Compare brokers on this machine."""
    wanted, results = set(only.split(",")), Results()
    with tempfile.TemporaryDirectory(dir=folder) as made:
        if bare is None and "bare" in wanted:
            bare = bare_program(Path(made))
        columns = contenders(bare, bare_mode, wanted, before)
        cases = [case for case in CASES if case_part in case.name]
        if not columns or not cases:
            raise click.UsageError("nothing to compare: no broker or no case is left")
        for number in range(rounds or (1 if quick else ROUNDS)):
            click.echo(f"round {number + 1}", err=True)
            run_round(columns, cases, seconds or (QUICK_SECONDS if quick else CASE_SECONDS),
                      results, folder)
    names = [contender.name for contender in columns]
    click.echo(f"{platform.processor() or platform.machine()}, Linux {platform.release()}, "
               f"Python {platform.python_version()}\n")
    click.echo(table(results, cases, names))
    for name in names:
        starts = results.start_s.get(name, [])
        if starts:
            click.echo(f"\n{name}: start to first connection {statistics.median(starts):.2f} s, "
                       f"{statistics.median(results.start_cpu_s[name]):.2f} s CPU")
        if name in results.idle_bytes:
            click.echo(f"{name}: {statistics.median(results.idle_bytes[name]) / 2**20:.1f} MiB "
                       "private behind it")
    if json_file:
        json_file.write_text(json.dumps(dataclasses.asdict(results), indent=1))
    for failure in results.failures:
        click.echo(f"FAILED {failure}", err=True)
    if results.failures:
        sys.exit(1)


if __name__ == "__main__":
    main()
