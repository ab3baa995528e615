"""
Honest clients, in the clear and by TLS, beside peers that begin handshakes: how long sends take, or
at a name server routes and registrations.

    python -m perf.handshakes [--server broker|namesrv] [--seconds S] [--rounds N] [--rate N]
                              [--kind KIND] [--key p-256|rsa-2048]

Each kind (tests/tls/floods.py) runs for so many seconds at the server that the honest clients are
at, and as long at another one like it that nobody else uses, which loads the machine alike
(`elsewhere`). The turns alternate, between two calm ones of each round. So `here` against
`elsewhere` is what the server's own clients pay, and `elsewhere` against calm what the machine
does; the table at the end has the medians of the rounds' p99.

The honest clients send 200 messages/s each, timed from when they were due, or ask for 200 routes
and register 20 times a second. Peers stand for other machines: they take what is left of this one,
unless --no-idle says that they take their share of it. `turning` are as many processes that only
turn. key: of the servers' certificate.
"""
from __future__ import annotations

import contextlib
import json
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import click

from mqcore.thread_times import threads_ns
from perf.contenders import MQCORE_STORE
from tests.attacks.honest import median, p99
from tests.attacks.honest_names import REGISTRATIONS, ROUTES, HonestNames
from tests.support.idle import take_what_is_left
from tests.support.mqcore_process import MqcoreProcess, die_with_parent, mqcore_up
from tests.tls.certificates import Authority, careless
from tests.tls.floods import KINDS, OTHERS, PROCESSES, flood
from tests.wire_live.peer import Peer
from tests.workers.processes import by_role

HONEST_RATE, REGISTRATION_RATE = 200, 20
NEWCOMERS = 40
WAYS = ("in the clear", "by TLS")
ROLES = {"broker": "serving", "namesrv": "namesrv"}
CALM, HERE, ELSEWHERE = "calm", "here", "elsewhere"
KEYS = {"p-256": ("ec", "-pkeyopt", "ec_paramgen_curve:P-256"), "rsa-2048": ("rsa:2048",)}

Latencies = dict[str, dict[str, float]]       # of each way, in us


def sends(broker: MqcoreProcess, seconds: float) -> Latencies:
    """Latencies of sends of one client in the clear and one by TLS, side by side, in us."""
    started = {}
    for way in WAYS:
        started[way] = subprocess.Popen(
            [sys.executable, "-m", "mqcore.admin.cli", "bench", "produce", "-b",
             broker.broker_addr, "--rate", str(HONEST_RATE), "--seconds", str(seconds), "-c", "2",
             "--json", *(["--tls"] if way == "by TLS" else [])],
            stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
    return {way: json.loads(process.communicate(timeout=seconds + 60)[0])["latency_us"]
            for way, process in started.items()}


def names(address: str, seconds: float) -> Latencies:
    """Latencies of routes and registrations, in the clear and by TLS, in us."""
    with contextlib.ExitStack() as ends:
        spans = {}
        for way, tls in zip(WAYS, (None, careless()), strict=True):
            honest = ends.enter_context(HonestNames(
                address, tls=tls, rates={ROUTES: HONEST_RATE, REGISTRATIONS: REGISTRATION_RATE}))
            spans[way] = ends.enter_context(honest.span())
        time.sleep(seconds)
    return {f"{what} {way}": {"p50_us": 1000 * median(took), "p99_us": 1000 * p99(took)}
            for way, span in spans.items() for what, took in span.items()}


def newcomers(address: str) -> str:
    """How long handshakes of honest clients take, one after the other, from another address."""
    took = []
    for _ in range(NEWCOMERS):
        began = time.monotonic()
        with contextlib.suppress(OSError), Peer(address, tls=careless(), source="127.0.0.2"):
            took.append(1000 * (time.monotonic() - began))
    if not took:
        return f"none of {NEWCOMERS} newcomers came in"
    return (f"{len(took)} of {NEWCOMERS} newcomers came in, median "
            f"{statistics.median(took):.1f}, at most {max(took):.1f} ms")


def turn(idle: bool) -> None:
    """Takes a core, as long as it is let."""
    if idle:
        take_what_is_left()
    while True:
        pass


@contextlib.contextmanager
def turning(idle: bool) -> Iterator[None]:
    """Processes that only turn."""
    processes = [multiprocessing.get_context("fork").Process(target=turn, args=(idle,), daemon=True)
                 for _ in range(PROCESSES)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


class Work:
    """CPU of processes of a role from now on: of their loops, and of their other threads."""

    def __init__(self, broker: MqcoreProcess, server: str = "broker") -> None:
        self._processes = [pid for role, pid in by_role(broker).items() if ROLES[server] in role]
        self._began, self._before = time.monotonic(), self._ns()

    def _ns(self) -> tuple[int, int]:
        loops = threads = 0
        for pid in self._processes:
            for thread, (ran, _) in threads_ns(pid).items():
                if int(thread) == pid:
                    loops += ran
                else:
                    threads += ran
        return loops, threads

    def line(self, answered: int = 0) -> str:
        """In percent of a core; answered: peers meanwhile, whose cost each is told."""
        spent = time.monotonic() - self._began
        loops, threads = (
            now - before for now, before in zip(self._ns(), self._before, strict=True))
        each = (f"; {loops / 1000 / answered:.0f} and {threads / 1000 / answered:.0f} us for each "
                "answer" if answered else "")
        return (f"loops {loops / 1e7 / spent:.1f} % of a core, their threads "
                f"{threads / 1e7 / spent:.1f} %{each}")


class Table:
    """p99 of each round: of the calm turns, of each kind here and elsewhere."""

    def __init__(self) -> None:
        self._p99s: dict[tuple[str, str, str], list[float]] = defaultdict(list)

    def told(self, kind: str, where: str, found: Latencies, more: str = "") -> None:
        """One turn, on the screen as well."""
        for way, each in found.items():
            self._p99s[kind, where, way].append(each["p99_us"] / 1000)
        name = where if where == CALM else f"{kind}, {where}"
        parts = (f"{way} p50 {each['p50_us'] / 1000:6.2f} p99 {each['p99_us'] / 1000:6.2f} ms"
                 for way, each in found.items())
        click.echo(f"{name:24} {'; '.join(parts)}{more}")

    def lines(self) -> Iterator[str]:
        """For each kind and way: here, elsewhere, calm, and their ratios."""
        for kind, where, way in self._p99s:
            if where == HERE:
                here, elsewhere, calm = (statistics.median(self._p99s[key]) for key in (
                    (kind, HERE, way), (kind, ELSEWHERE, way), (CALM, CALM, way)))
                yield (f"{kind:14} {way:24} p99 {here:6.2f} ms here, {elsewhere:6.2f} elsewhere "
                       f"({here / elsewhere:4.2f} times), {calm:6.2f} calm ({here / calm:4.2f} and "
                       f"{elsewhere / calm:4.2f} times)")


@click.command(help=__doc__)
@click.option("--server", default="broker", show_default=True, type=click.Choice(tuple(ROLES)))
@click.option("--seconds", default=10.0, show_default=True, type=click.FloatRange(1, 3600))
@click.option("--rounds", default=1, show_default=True, type=click.IntRange(1, 1000))
@click.option("--rate", default=2000.0, show_default=True, type=click.FloatRange(1, 100_000))
@click.option("--kind", "kinds", multiple=True, type=click.Choice(KINDS + OTHERS), default=KINDS)
@click.option("--key", default="p-256", show_default=True, type=click.Choice(tuple(KEYS)))
@click.option("--idle/--no-idle", default=True, show_default=True,
              help="Whether the peers take only what others leave of the machine.")
def main(server: str, seconds: float, rounds: int, rate: float, kinds: tuple[str, ...], key: str,
         idle: bool) -> None:
    """See the module's text."""
    with tempfile.TemporaryDirectory(prefix="mqcore-perf-handshakes-") as scratch:
        folder = Path(scratch)
        certificate, private = Authority(folder / "authority").sign("server", key=KEYS[key])
        settings = {**MQCORE_STORE, "tls.certificate": certificate, "tls.key": private}
        with (mqcore_up(folder / HERE, settings) as ours,
              mqcore_up(folder / ELSEWHERE, settings) as other):
            addresses = {where: one.broker_addr if server == "broker" else one.namesrv_addr
                         for where, one in ((HERE, ours), (ELSEWHERE, other))}
            measure = partial(sends, ours) if server == "broker" else partial(
                names, addresses[HERE])
            table = Table()
            for number in range(rounds):
                work = Work(ours, server)
                found = measure(seconds)
                table.told(CALM, CALM, found, f"; {work.line()}")
                with turning(idle):
                    table.told("turning", "", measure(seconds))
                for kind in kinds:
                    for where in ((HERE, ELSEWHERE), (ELSEWHERE, HERE))[number % 2]:
                        with flood(kind, addresses[where], rate=rate, idle=idle) as counts:
                            work = Work(ours if where == HERE else other, server)
                            found = measure(seconds)
                            begun, answered, spent = counts.begun, counts.answered, counts.seconds
                            more = (f"\n{'':24} {begun / spent:.0f} begun a second of {rate:.0f} "
                                    f"asked, {answered / spent:.0f} answered; "
                                    f"{work.line(answered)}")
                            if where == HERE:
                                more += f"; {newcomers(addresses[HERE])}"
                        table.told(kind, where, found, more)
                table.told(CALM, CALM, measure(seconds))
            for line in table.lines():
                click.echo(line)


if __name__ == "__main__":
    main()
