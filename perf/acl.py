"""
Sends to a broker that asks who sends, and to one that does not, side by side.

    python -m perf.acl [--rounds N] [--seconds S] [--size BYTES] [--rate N]
                       [--beforehand]

The two take turns (A B A B ...), so that a machine that gets busier does so for both; medians are
printed, the ratio of the rates, what a check costs, and the share of the cores that other processes
took. The load signs each message: what that takes of its core is printed, too. rate: of both, as
said; then both brokers work in batches as large, and the difference of CPU is the check alone.
beforehand: the load sends one signed message again and again: what those do that sign, on machines
of their own, is no part of what this one does then.
"""
from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import click

from mqcore.bench.load import Report
from mqcore.client import Credentials
from perf.contenders import MQCORE_STORE
from perf.tls import measure, medians
from tests.support.mqcore_process import mqcore_up

ACCOUNT = Credentials("the-bench", "the-bench-secret")
RULES = f"""accounts:
- {{accessKey: {ACCOUNT.access_key}, secretKey: {ACCOUNT.secret_key}, admin: true,
   defaultTopicPerm: PUB, topicPerms: [other=PUB]}}
"""


@click.command(help=__doc__)
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1, 100))
@click.option("--seconds", default=4.0, show_default=True, type=click.FloatRange(0.2, 600))
@click.option("--size", default=128, show_default=True, type=click.IntRange(0, 4 << 20))
@click.option("--rate", default=0.0, type=click.FloatRange(0), help="Messages/s; 0: all that go.")
@click.option("--beforehand", is_flag=True, help="Messages are signed once.")
def main(rounds: int, seconds: float, size: int, rate: float, beforehand: bool) -> None:
    """See the module's text."""
    found: dict[bool, list[Report]] = {False: [], True: []}
    with tempfile.TemporaryDirectory(prefix="mqcore-perf-acl-") as scratch:
        Path(scratch, "plain_acl.yml").write_text(RULES)
        asking = {**MQCORE_STORE, "acl.enable": True, "acl.folder": scratch}
        with (mqcore_up(Path(scratch, "open"), MQCORE_STORE) as plain,
              mqcore_up(Path(scratch, "asking"), asking) as guarded):
            for _ in range(rounds):
                for signed, reports in found.items():
                    broker = guarded if signed else plain
                    reports.append(measure(
                        broker.broker_addr, broker.pid, seconds, size, rate=rate,
                        credentials=ACCOUNT if signed else None, beforehand=beforehand))
    (plain_rate, plain_cpu), (signed_rate, cpu) = medians(found[False]), medians(found[True])
    signing = [statistics.median(report.own_cpu_us for report in each) for each in found.values()]
    others = max(report.others_cpu_share or 0.0 for each in found.values() for report in each)
    click.echo(f"asked for nothing {plain_rate:>10,.0f}/s  {plain_cpu:5.2f} us CPU")
    click.echo(f"with accounts     {signed_rate:>10,.0f}/s  {cpu:5.2f} us CPU  "
               f"{signed_rate / plain_rate:.2f} of "
               f"the rate, {cpu - plain_cpu:+.2f} us; the load itself "
               f"{signing[1] - signing[0]:+.2f} us; others took up to {others:.0%}")


if __name__ == "__main__":
    main()
