"""
What a slave costs: rate and CPU of sends with one and without; how fast an empty one catches up,
with sends beside it and without; how far one lags behind; how long a send takes that waits for it.

    python -m perf.replication [--rounds N] [--seconds S] [--size BYTES] [--folder P]
                               [--only rates,catch-up,lag,latency] [--lag-rate N]

rates: a master alone, one with a slave that nobody waits for, and one whose sends wait for it take
turns, each on fresh stores below P. catch-up: empty slaves come to the log of a master, while
nothing is sent, while as much is sent as the master takes, while --lag-rate a second are sent; how
much the log grows meanwhile is held against the same without the slave. lag: at --lag-rate,
how long ago at most the master's log ended where the slave's ends, in looks at both ends with one
clock. latency: one send in flight, of a master whose slave nobody waits for and of one whose sends
wait for it, in turns.

Both brokers and the load share the machine: ratios say more than rates, CPU for each MiB more than
MiB a second. A virtual machine may have given free memory back to its host, from where it comes
slowly: before each catch-up a plain file as long as the log is written twice and removed, which has
the memory brought, and says how fast it can be at most.
"""
from __future__ import annotations

import bisect
import contextlib
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from mqcore.bench.control import Target, create_topic
from mqcore.bench.load import ProduceOptions, Report, Span, produce
from mqcore.shm.segment import Segment
from mqcore.thread_times import processor_ns
from perf.contenders import MQCORE_STORE
from tests.replication.pairs import NAME, slave_up
from tests.support.mqcore_process import MqcoreProcess, mqcore_namesrv, mqcore_up
from tests.support.waiting import wait_until
from tests.workers.processes import by_role
from tests.workers.test_end import segment_of

ALONE, ASYNC, SYNC = KINDS = ("alone", "async-master", "sync-master")
PARTS = ("rates", "catch-up", "lag", "latency")
TOPIC = "replication"
QUEUES = 8
WARMUP = 20_000
WAIT_S = 600.0
MIB = 1 << 20
LOOK_S = 0.0005
SETTLE_S = 0.5
START_S = 4.0                     # for a slave's processes


@dataclass
class Turn:
    """report: of the load, with the master's CPU; slave_us: the slave's, for each message."""

    report: Report
    slave_us: float


@dataclass
class Brokers:
    master: MqcoreProcess
    names: str
    folder: Path


def cpu_s(pids: list[int]) -> float:
    """Processor time of processes with all of their threads, in seconds."""
    return processor_ns(*pids)[0] / 1e9


def end_of(segment: Segment) -> int:
    return int(segment.log_state()["published"])


@contextlib.contextmanager
def master_up(folder: Path, names: str, kind: str) -> Iterator[MqcoreProcess]:
    with mqcore_up(folder / "master", {
            **MQCORE_STORE, "broker.name": NAME, "replication.listen": True,
            "replication.role": "sync-master" if kind == SYNC else "async-master"},
            namesrv_addr=names) as running:
        create_topic(running.broker_addr, TOPIC, QUEUES)
        yield running


@contextlib.contextmanager
def fresh(place: Path | None, kind: str) -> Iterator[Brokers]:
    """A master of one kind, on an empty store."""
    with tempfile.TemporaryDirectory(dir=place) as name:
        folder = Path(name)
        with mqcore_namesrv(folder / "names") as names, master_up(
                folder, names.namesrv_addr, kind) as master:
            yield Brokers(master, names.namesrv_addr, folder)


@contextlib.contextmanager
def follower(brokers: Brokers, name: str = "slave") -> Iterator[MqcoreProcess]:
    port = int(brokers.master.broker_addr.rpartition(":")[2]) + 1
    with slave_up(brokers.folder / name, brokers.names, {
            **MQCORE_STORE, "replication.master_address": f"127.0.0.1:{port}"}) as slave:
        wait_until(lambda: "ha-slave" in by_role(slave), "the slave")
        yield slave


def load(brokers: Brokers, seconds: float, size: int, *, rate: float = 0.0,
         one: bool = False) -> Report:
    """one: a single connection with a single send in flight."""
    span = Span(seconds=seconds, warmup=500 if one else WARMUP)
    many = {"connections": 1, "depth": 1} if one else {}
    return produce(Target(brokers.master.broker_addr, TOPIC, QUEUES), ProduceOptions(
        span=span, size=size, rate=rate, broker_pids=(brokers.master.pid,), **many))


# -- rates -----------------------------------------------------------------------------------------


def rates_turn(place: Path | None, kind: str, seconds: float, size: int) -> Turn:
    """One turn. Raises BenchError when answers stop."""
    with fresh(place, kind) as brokers:
        if kind == ALONE:
            return Turn(load(brokers, seconds, size), 0.0)
        with follower(brokers) as slave:
            ends = segment_of(brokers.master), segment_of(slave)
            began, start = cpu_s(slave.family()), time.monotonic()
            report = load(brokers, seconds, size)
            wait_until(lambda: end_of(ends[0]) == end_of(ends[1]), "the slave's log", WAIT_S)
            click.echo(f"  the slave had all {time.monotonic() - start - seconds:.2f} s after the "
                       "load", err=True)
            return Turn(report, 1e6 * (cpu_s(slave.family()) - began)
                        / (report.rate_per_s * seconds + WARMUP))


def rates(place: Path | None, rounds: int, seconds: float, size: int) -> None:
    turns: dict[str, list[Turn]] = {kind: [] for kind in KINDS}
    for number in range(rounds):
        for kind in KINDS:
            turn = rates_turn(place, kind, seconds, size)
            turns[kind].append(turn)
            click.echo(f"round {number + 1} {kind}: {turn.report.rate_per_s:,.0f}/s, master "
                       f"{turn.report.broker_cpu_us or 0.0:.2f} us, slave {turn.slave_us:.2f} us, "
                       f"p50 {turn.report.latency_us['p50_us']:,.0f} us", err=True)
            if turn.report.errors:
                click.echo(f"{kind}: {turn.report.errors} errors, {turn.report.first_error}",
                           err=True)
    base = statistics.median(turn.report.rate_per_s for turn in turns[ALONE])
    base_cpu = statistics.median(turn.report.broker_cpu_us or 0.0 for turn in turns[ALONE])
    for kind, found in turns.items():
        rate = statistics.median(turn.report.rate_per_s for turn in found)
        cpu = statistics.median(turn.report.broker_cpu_us or 0.0 for turn in found)
        slave = statistics.median(turn.slave_us for turn in found)
        click.echo(f"{kind:<13} {rate:>10,.0f}/s  {rate / base:>5.2f}   master {cpu:5.2f} us CPU "
                   f"{cpu / base_cpu:>5.2f}   slave {slave:5.2f} us")


# -- catch-up --------------------------------------------------------------------------------------


def growth(segment: Segment, seconds: float) -> float:
    """Bytes a second that a log grows by."""
    start, before = time.monotonic(), end_of(segment)
    time.sleep(seconds)
    return (end_of(segment) - before) / (time.monotonic() - start)


def plain_write(folder: Path, length: int) -> float:
    """GB/s of a file of so many bytes that is written, and removed."""
    piece, path = bytes(MIB), folder / "plain"
    start = time.monotonic()
    with path.open("wb", buffering=0) as file:
        for _ in range(-(-length // MIB)):
            file.write(piece)
    took_s = time.monotonic() - start
    path.unlink()
    return length / took_s / 1e9


def bring_memory(brokers: Brokers) -> str:
    """Has as much memory brought as the log is long; the rates of it, as text."""
    first, again = (
        plain_write(brokers.folder, end_of(segment_of(brokers.master))) for _ in range(2))
    return f"a plain file: {first:.2f} GB/s, again {again:.2f}"


def come_up(brokers: Brokers, name: str, what: str) -> float:
    """An empty slave comes to where the master's log ends; the master's growth meanwhile."""
    log = segment_of(brokers.master)
    sender = [by_role(brokers.master)["ha-master"]]
    before = cpu_s(sender)
    with follower(brokers, name) as slave:
        own = segment_of(slave)
        start, at, end = time.monotonic(), end_of(own), end_of(log)
        wait_until(lambda: end_of(own) >= end, "the whole log", WAIT_S)
        took_s, came, grown = time.monotonic() - start, end_of(own), end_of(log) - end
        roles = by_role(slave)
        used = {role: cpu_s([roles[role]]) for role in ("ha-slave", "writer")}
        used["ha-master"] = cpu_s(sender) - before
        queues, dispatcher = int(own.log_state()["dispatched"]), cpu_s([roles["dispatcher"]])
        behind = time.monotonic()
        wait_until(lambda: int(own.log_state()["dispatched"]) >= end, "its queues", WAIT_S)
        behind = time.monotonic() - behind
    spent = ", ".join(f"{role} {1000 * seconds * MIB / came:.2f}" for role, seconds in used.items())
    click.echo(f"catch-up, {what}: {(came - at) / MIB:,.0f} MiB in {took_s:.2f} s, "
               f"{(came - at) / took_s / 1e9:.2f} GB/s; ms of CPU for each MiB: {spent}, "
               f"dispatcher {1000 * dispatcher * MIB / max(queues, 1):.2f}; its queues had "
               f"{queues / came:.0%} of that, and all of it {behind:.2f} s later")
    return grown / took_s


def catch_up_beside(brokers: Brokers, what: str, seconds: float, size: int, rate: float) -> None:
    sends = threading.Thread(target=load, kwargs={
        "brokers": brokers, "seconds": 2 * seconds + START_S, "size": size, "rate": rate})
    plain = bring_memory(brokers)
    sends.start()
    time.sleep(SETTLE_S)
    alone = growth(segment_of(brokers.master), seconds / 2)
    beside = come_up(brokers, "slave", what)
    ended = "" if sends.is_alive() else "; they ended before the catch-up did"
    sends.join()
    click.echo(f"  sends meanwhile {beside / MIB:,.0f} MiB/s, {alone / MIB:,.0f} MiB/s without the "
               f"slave: {beside / alone:.2f}{ended}; {plain}")


def catch_up(place: Path | None, rounds: int, seconds: float, size: int, slow: float) -> None:
    with fresh(place, ALONE) as brokers:
        load(brokers, seconds, size)
        for number in range(rounds):
            click.echo(f"before the next one: {bring_memory(brokers)}")
            come_up(brokers, f"slave-{number}", "no sends")
    for what, rate in (("all sends", 0.0), (f"{slow:,.0f} sends/s", slow)):
        with fresh(place, ALONE) as brokers:
            load(brokers, seconds, size)
            catch_up_beside(brokers, what, seconds, size, rate)


# -- lag -------------------------------------------------------------------------------------------


def lag(place: Path | None, seconds: float, size: int, rate: float) -> None:
    """
    Looks at both ends again and again, at the slave's first: the time since the last look that
    showed no more at the master than the slave has now is the lag at most.
    """
    with fresh(place, ASYNC) as brokers, follower(brokers) as slave:
        ends = segment_of(brokers.master), segment_of(slave)
        time.sleep(SETTLE_S)
        found: list[Report] = []
        sends = threading.Thread(
            target=lambda: found.append(load(brokers, seconds, size, rate=rate)))
        times: list[float] = []
        masters: list[int] = []
        lags: list[float] = []
        sends.start()
        time.sleep(SETTLE_S)
        while sends.is_alive():
            has = end_of(ends[1])
            at = time.monotonic()
            times.append(at)
            masters.append(end_of(ends[0]))
            if has >= masters[-1]:
                lags.append(0.0)
            elif masters[0] <= has:
                lags.append(1000 * (at - times[bisect.bisect_right(masters, has) - 1]))
            time.sleep(LOOK_S)
        sends.join()
        lags.sort()
        click.echo(
            f"lag at {found[0].rate_per_s:,.0f}/s: p50 {lags[len(lags) // 2]:.2f} ms, p99 "
            f"{lags[len(lags) * 99 // 100]:.2f} ms, most {lags[-1]:.2f} ms; {len(lags):,} samples, "
            f"{1000 * (times[-1] - times[0]) / len(times):.2f} ms apart")


# -- latency ---------------------------------------------------------------------------------------


def latency(place: Path | None, rounds: int, seconds: float, size: int) -> None:
    found: dict[str, list[float]] = {ASYNC: [], SYNC: []}
    for _ in range(rounds):
        for kind, medians in found.items():
            with fresh(place, kind) as brokers, follower(brokers):
                time.sleep(SETTLE_S)
                report = load(brokers, seconds, size, one=True)
                medians.append(report.latency_us["p50_us"])
                if report.errors:
                    click.echo(f"{kind}: {report.errors} errors, {report.first_error}", err=True)
    middle = {kind: statistics.median(medians) for kind, medians in found.items()}
    for kind, medians in found.items():
        click.echo(f"one send in flight, {kind:<13} p50 {middle[kind]:6.0f} us  "
                   f"{middle[kind] / middle[ASYNC]:.2f}   of each round: "
                   + ", ".join(f"{value:.0f}" for value in medians))


@click.command(help=__doc__)
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1, 100))
@click.option("--seconds", default=4.0, show_default=True, type=click.FloatRange(0.2, 600))
@click.option("--size", default=1024, show_default=True, type=click.IntRange(0, 4 << 20))
@click.option("--lag-rate", default=100_000.0, show_default=True, type=click.FloatRange(min=1))
@click.option("--only", default=",".join(PARTS), show_default=True)
@click.option("--folder", type=click.Path(file_okay=False, exists=True, path_type=Path))
def main(rounds: int, seconds: float, size: int, lag_rate: float, only: str,
         folder: Path | None) -> None:
    wanted = only.split(",")
    for part in wanted:
        if part not in PARTS:
            raise click.UsageError(f"--only: expected some of {', '.join(PARTS)}, got {part}")
    if "rates" in wanted:
        rates(folder, rounds, seconds, size)
    if "catch-up" in wanted:
        catch_up(folder, rounds, seconds, size, lag_rate)
    if "lag" in wanted:
        lag(folder, seconds, size, lag_rate)
    if "latency" in wanted:
        latency(folder, rounds, seconds, size)


if __name__ == "__main__":
    main()
