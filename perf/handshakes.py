"""
Honest clients, in the clear and by TLS, beside peers that begin handshakes: how long sends take, or
at a name server routes.

    python -m perf.handshakes [--server broker|namesrv] [--seconds S] [--rounds N] [--rate N]
                              [--kind KIND]

Each kind (tests/tls/floods.py) runs for so many seconds between two calm turns, in each round; the
honest clients send 200 messages/s each, or ask for 200 routes, timed from when they were due. Peers
stand for other machines: they take what is left of this one, unless --no-idle says that they take
their share of it. What the machine itself costs then shows beside `turning`, as many processes that
only turn.
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
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import click

from mqcore.net.transport.tls_context import self_signed
from mqcore.wire.codes import RequestCode
from perf.contenders import MQCORE_STORE
from tests.support.idle import take_what_is_left
from tests.support.mqcore_process import MqcoreProcess, die_with_parent, mqcore_up
from tests.tls.certificates import careless
from tests.tls.floods import KINDS, PROCESSES, flood
from tests.wire_live.peer import Peer
from tests.workers.processes import by_role

HONEST_RATE = 200
NEWCOMERS = 40
WAYS = ("in the clear", "by TLS")
ROLES = {"broker": "serving", "namesrv": "namesrv"}


def honest(broker: MqcoreProcess, seconds: float) -> dict[str, dict[str, float]]:
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


def routes(address: str, seconds: float) -> dict[str, dict[str, float]]:
    """Latencies of routes that two clients ask for, one in the clear and one by TLS, in us."""

    def ask(way: str) -> dict[str, float]:
        took = []
        with Peer(address, tls=careless() if way == "by TLS" else None) as peer:
            due = time.monotonic()
            end = due + seconds
            while due < end:
                time.sleep(max(due - time.monotonic(), 0))
                peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "nowhere"})
                took.append(1e6 * (time.monotonic() - due))
                due += 1 / HONEST_RATE
        took.sort()
        return {"p50_us": took[len(took) // 2], "p99_us": took[len(took) * 99 // 100]}

    with ThreadPoolExecutor(len(WAYS)) as pool:
        return dict(zip(WAYS, pool.map(ask, WAYS), strict=True))


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
            for task in Path(f"/proc/{pid}/task").iterdir():
                took = int((task / "schedstat").read_text().split()[0])
                if int(task.name) == pid:
                    loops += took
                else:
                    threads += took
        return loops, threads

    def line(self) -> str:
        """In percent of a core."""
        spent = time.monotonic() - self._began
        loops, threads = (100 * (now - before) / 1e9 / spent
                          for now, before in zip(self._ns(), self._before, strict=True))
        return f"loops {loops:.1f} % of a core, their threads {threads:.1f} %"


def told(name: str, found: dict[str, dict[str, float]], more: str = "") -> None:
    parts = (f"{way} p50 {each['p50_us'] / 1000:6.2f} p99 {each['p99_us'] / 1000:6.2f} ms"
             for way, each in found.items())
    click.echo(f"{name:14} {'; '.join(parts)}{more}")


@click.command(help=__doc__)
@click.option("--server", default="broker", show_default=True, type=click.Choice(tuple(ROLES)))
@click.option("--seconds", default=10.0, show_default=True, type=click.FloatRange(1, 3600))
@click.option("--rounds", default=1, show_default=True, type=click.IntRange(1, 1000))
@click.option("--rate", default=2000.0, show_default=True, type=click.FloatRange(1, 100_000))
@click.option("--kind", "kinds", multiple=True, type=click.Choice(KINDS), default=KINDS)
@click.option("--idle/--no-idle", default=True, show_default=True,
              help="Whether the peers take only what others leave of the machine.")
def main(server: str, seconds: float, rounds: int, rate: float, kinds: tuple[str, ...],
         idle: bool) -> None:
    """See the module's text."""
    with tempfile.TemporaryDirectory(prefix="mqcore-perf-handshakes-") as scratch:
        certificate = Path(scratch, "certificate.pem")
        certificate.write_bytes(self_signed("perf"))
        with mqcore_up(Path(scratch, "broker"),
                       {**MQCORE_STORE, "tls.certificate": certificate}) as broker:
            address = broker.broker_addr if server == "broker" else broker.namesrv_addr
            measure = partial(honest, broker) if server == "broker" else partial(routes, address)
            for _ in range(rounds):
                work = Work(broker, server)
                found = measure(seconds)
                told("calm", found, f"; {work.line()}")
                with turning(idle):
                    told("turning", measure(seconds))
                for kind in kinds:
                    with flood(kind, address, rate=rate, idle=idle) as counts:
                        work = Work(broker, server)
                        found = measure(seconds)
                        more = (f"\n{'':14} {counts.begun / counts.seconds:.0f} begun a second of "
                                f"{rate:.0f} asked, {counts.answered / counts.seconds:.0f} "
                                f"answered; {work.line()}; ")
                        more += newcomers(address)
                    told(kind, found, more)
            told("calm", measure(seconds))


if __name__ == "__main__":
    main()
