"""
Clients that all come back at once by TLS, as behind a restart: how long until each has had a send
answered, and the floor: the processor time of as many clients that come one by one.

    python -m perf.reconnects [--clients N] [--rounds N] [--handshakes N]

A client whose connection was closed comes back AGAIN_S later, as clients do: a broker has
`tls.handshake_count_max` handshakes at a time, and closes the oldest for another one. Clients and
broker share the machine. The floor is the processor time of both, spread over all processors:
nothing is served sooner here.
"""
from __future__ import annotations

import asyncio
import os
import resource
import ssl
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import click

from mqcore.net.transport.tls_context import self_signed
from mqcore.thread_times import processor_ns
from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.command import encode, request
from perf.contenders import MQCORE_STORE
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.tls.certificates import careless
from tests.wire_live.peer import send_fields
from tests.wire_live.state import State

TOPIC = "Reconnects"
ONE_BY_ONE = 300
TIMEOUT_S = 60
AGAIN_S = 0.1
SPARE_FILES = 200


@dataclass(frozen=True)
class Spent:
    """Of so many clients: time, and processor time of the broker and of the clients."""

    clients: int
    seconds: float
    broker_s: float
    clients_s: float
    tries: int

    @property
    def floor_s(self) -> float:
        """The time of one client, on all processors together."""
        cores = len(os.sched_getaffinity(0))
        return (self.broker_s + self.clients_s) / self.clients / cores


class Clients:
    """Clients of one broker; tries: how often they have connected."""

    def __init__(self, address: str) -> None:
        self._address, self._context = address, careless()
        self.tries = 0

    async def one(self) -> asyncio.StreamWriter:
        while True:
            self.tries += 1
            try:
                return await client(self._address, self._context)
            except (ConnectionError, asyncio.IncompleteReadError):
                await asyncio.sleep(AGAIN_S)

    async def one_by_one(self, count: int) -> list[asyncio.StreamWriter]:
        return [await self.one() for _ in range(count)]

    async def at_once(self, count: int) -> list[asyncio.StreamWriter]:
        return await asyncio.gather(*(self.one() for _ in range(count)))


async def client(address: str, context: ssl.SSLContext) -> asyncio.StreamWriter:
    """Connects, sends, reads the answer; the connection stays. Raises OSError, ValueError."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    writer.write(encode(request(Code.SEND_MESSAGE_V2, send_fields(TOPIC), b"x" * 128)))
    answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
    if b'"code":0,' not in answer:
        raise ValueError(f"a send was answered: {answer!r}")
    return writer


async def spent(broker: MqcoreProcess, count: int, *, at_once: bool) -> Spent:
    clients, family = Clients(broker.broker_addr), broker.family()
    began, ours, theirs = time.monotonic(), time.process_time(), processor_ns(*family)[0]
    writers = await asyncio.wait_for(
        (clients.at_once if at_once else clients.one_by_one)(count), TIMEOUT_S)
    found = Spent(count, time.monotonic() - began, (processor_ns(*family)[0] - theirs) / 1e9,
                  time.process_time() - ours, clients.tries)
    for writer in writers:
        writer.transport.abort()
    return found


@click.command(help=__doc__)
@click.option("--clients", default=2000, show_default=True, type=click.IntRange(1, 5000))
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1, 100))
@click.option("--handshakes", default=1000, show_default=True, type=click.IntRange(1, 5000),
              help="tls.handshake_count_max")
def main(clients: int, rounds: int, handshakes: int) -> None:
    """See the module's text."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if clients + SPARE_FILES > most:
        raise click.UsageError(f"--clients: {clients} and {SPARE_FILES} files more, expected at "
                               f"most {most}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    ratios = []
    with tempfile.TemporaryDirectory(prefix="mqcore-perf-reconnects-") as scratch:
        certificate = Path(scratch, "certificate.pem")
        certificate.write_bytes(self_signed("reconnects"))
        for number in range(rounds):
            with mqcore_up(Path(scratch, str(number)), {
                    **MQCORE_STORE, "tls.certificate": certificate,
                    "tls.handshake_count_max": handshakes}) as broker, State(
                    broker.broker_addr) as state:
                state.topic(TOPIC, 8)
                asyncio.run(spent(broker, ONE_BY_ONE // 3, at_once=False))
                single = asyncio.run(spent(broker, ONE_BY_ONE, at_once=False))
                all_of_them = asyncio.run(spent(broker, clients, at_once=True))
            floor = single.floor_s * clients
            ratios.append(all_of_them.seconds / floor)
            click.echo(
                f"{clients} clients at once, {all_of_them.tries} connections: "
                f"{all_of_them.seconds:.2f} s, floor {floor:.2f} s "
                f"({ratios[-1]:.2f} times); CPU of the broker for each "
                f"{1e6 * all_of_them.broker_s / clients:.0f} us, one by one "
                f"{1e6 * single.broker_s / single.clients:.0f} us; of a client "
                f"{1e6 * all_of_them.clients_s / clients:.0f} and "
                f"{1e6 * single.clients_s / single.clients:.0f} us")
    click.echo(f"median: {statistics.median(ratios):.2f} times the floor")


if __name__ == "__main__":
    main()
