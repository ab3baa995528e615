"""
Sends in the clear and by TLS 1.3 with AES-128-GCM, side by side: rate and CPU of a closed loop.

    python -m perf.tls [--rounds N] [--seconds S] [--size BYTES]

The two take turns (A B A B ...) on one broker whose port serves both, so that a machine that gets
busier does so for both; medians are printed, their ratios, and the share of the cores that other
processes took.
"""
from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import click

from mqcore.bench.control import find_target
from mqcore.bench.load import ProduceOptions, Report, Span, produce
from mqcore.client import Credentials
from mqcore.net.transport.tls_context import self_signed
from perf.contenders import MQCORE_STORE
from tests.support.mqcore_process import mqcore_up

TOPIC = "perf_tls"
QUEUES = 8
WARMUP = 50_000


def measure(address: str, pid: int, seconds: float, size: int, *, tls: bool = False,
            credentials: Credentials | None = None, rate: float = 0.0,
            beforehand: bool = False) -> Report:
    """One turn; rate: messages a second, 0: as many as go. Raises BenchError when answers stop."""
    target = find_target(TOPIC, broker=address, namesrv=None, queues=QUEUES, tls=tls,
                         credentials=credentials)
    return produce(target, ProduceOptions(
        span=Span(seconds=seconds, warmup=WARMUP), size=size, rate=rate, broker_pids=(pid,),
        beforehand=beforehand))


def medians(reports: list[Report]) -> tuple[float, float]:
    """Messages a second, and microseconds of the broker's CPU for one."""
    return (statistics.median(report.rate_per_s for report in reports),
            statistics.median(report.broker_cpu_us or 0.0 for report in reports))


@click.command(help=__doc__)
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1, 100))
@click.option("--seconds", default=4.0, show_default=True, type=click.FloatRange(0.2, 600))
@click.option("--size", default=128, show_default=True, type=click.IntRange(0, 4 << 20))
def main(rounds: int, seconds: float, size: int) -> None:
    """See the module's text."""
    found: dict[bool, list[Report]] = {False: [], True: []}
    with tempfile.TemporaryDirectory(prefix="mqcore-perf-tls-") as scratch:
        certificate = Path(scratch, "certificate.pem")
        certificate.write_bytes(self_signed("perf"))
        with mqcore_up(Path(scratch, "broker"),
                       {**MQCORE_STORE, "tls.certificate": certificate}) as broker:
            for _ in range(rounds):
                for tls, reports in found.items():
                    reports.append(measure(broker.broker_addr, broker.pid, seconds, size, tls=tls))
    (plain_rate, plain_cpu), (rate, cpu) = medians(found[False]), medians(found[True])
    others = max(report.others_cpu_share or 0.0 for each in found.values() for report in each)
    click.echo(f"in the clear {plain_rate:>10,.0f}/s  {plain_cpu:5.2f} us CPU")
    click.echo(f"by TLS       {rate:>10,.0f}/s  {cpu:5.2f} us CPU  {rate / plain_rate:.2f} of the "
               f"rate, {cpu / plain_cpu:.2f} of the CPU; others took up to {others:.0%}")


if __name__ == "__main__":
    main()
