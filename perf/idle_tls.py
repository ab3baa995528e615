"""
What a connection with TLS that says nothing costs a serving process: memory of its own (RssAnon).

    python -m perf.idle_tls [--connections N] [--certificates]

One serving process; connections are made one after the other, and all stay. certificates: each
client shows one, which `openssl` signs.
"""
from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

import click

from mqcore.net.transport.tls_context import self_signed
from tests.support.mqcore_process import mqcore_up
from tests.tls.certificates import Authority, careless
from tests.wire_live.peer import Peer
from tests.workers.processes import pid_of

ROLE = "pull-serving-0"
WARMUP = 200                         # connections before the first look: tables that grow by steps


def own_kib(pid: int) -> int:
    """RssAnon of a process."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(text.partition("RssAnon:")[2].split()[0])


@click.command(help=__doc__)
@click.option("--connections", default=3_000, show_default=True, type=click.IntRange(1, 20_000))
@click.option("--certificates", is_flag=True)
def main(connections: int, certificates: bool) -> None:
    """See the module's text."""
    with tempfile.TemporaryDirectory(prefix="mqcore-perf-idle-") as scratch:
        folder = Path(scratch)
        pem = folder / "certificate.pem"
        pem.write_bytes(self_signed("perf"))
        given: dict[str, object] = {"tls.certificate": pem, "processes.serving_count": 1}
        context = careless()
        if certificates:
            authority = Authority(folder / "authority")
            context.load_cert_chain(*authority.sign("client"))
            given |= {"tls.client_auth": "require", "tls.trust": authority.certificate}
        with mqcore_up(folder / "broker", given) as broker, contextlib.ExitStack() as peers:
            pid = pid_of(broker, ROLE)

            def connect(count: int) -> int:
                for _ in range(count):
                    peers.enter_context(Peer(broker.broker_addr, tls=context))
                return own_kib(pid)

            before = connect(WARMUP)
            cost = (connect(connections) - before) / connections
    click.echo(f"{connections} connections: {cost:.1f} KiB for each")


if __name__ == "__main__":
    main()
