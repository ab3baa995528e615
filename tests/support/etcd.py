"""An etcd of one member or of several, as processes: short election timeouts, for short leases."""
from __future__ import annotations

import os
import shutil
import signal
import ssl
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from mqcore.failover.etcd import Etcd, EtcdError
from tests.support.ci import unavailable
from tests.support.stock import free_port
from tests.support.waiting import wait_until


@dataclass
class EtcdServer:
    """A running etcd; address: http://host:port, or https."""

    process: subprocess.Popen[bytes]
    address: str
    context: ssl.SSLContext | None = None

    @property
    def addresses(self) -> list[str]:
        return [self.address]

    def stop_answering(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)

    def answer_again(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """With -9."""
        self.process.kill()
        self.process.wait()

    def client(self, timeout_s: float = 10.0) -> Etcd:
        return Etcd([self.address], timeout_s, self.context)

    def leads(self, account: tuple[str, str] | None = None) -> bool:
        """Whether it says that it leads its etcd. Raises EtcdError."""
        client = Etcd([self.address], 2.0, self.context, account)
        try:
            status = client._ask("/v3/maintenance/status", {})
        finally:
            client.close()
        return status["leader"] == status["header"]["member_id"]


@dataclass
class EtcdMembers:
    """One etcd of several members."""

    servers: list[EtcdServer] = field(default_factory=list)
    account: tuple[str, str] | None = None

    @property
    def addresses(self) -> list[str]:
        return [server.address for server in self.servers]

    def client(self, timeout_s: float = 10.0) -> Etcd:
        return Etcd(self.addresses, timeout_s, self.servers[0].context, self.account)

    def leader(self) -> EtcdServer:
        """Of those that run."""
        found: list[EtcdServer] = []

        def is_there() -> bool:
            found[:] = [server for server in self.servers
                        if server.process.poll() is None and server.leads(self.account)]
            return len(found) == 1

        wait_until(is_there, "one member leads")
        return found[0]


def program() -> str:
    """The path of etcd; skips where there is none, and fails in CI."""
    found = shutil.which("etcd")
    if found is None:
        unavailable("etcd is not installed (Debian: etcd-server)")
    return found


@contextmanager
def etcd_server(folder: Path, settings: Sequence[str | Path] = (),
                context: ssl.SSLContext | None = None, ip: str = "127.0.0.1",
                within: Sequence[str] = ()) -> Iterator[EtcdServer]:
    """An etcd with its data below `folder`; leases run out after a second at the least."""
    with etcd_members(folder, 1, settings, context, ip, within) as members:
        yield members.servers[0]


@contextmanager
def etcd_members(folder: Path, count: int, settings: Sequence[str | Path] = (),
                 context: ssl.SSLContext | None = None, ip: str = "127.0.0.1",
                 within: Sequence[str] = ()) -> Iterator[EtcdMembers]:
    """
    settings: arguments of each more; context: clients come by TLS, and tests with this one. ip:
    where clients come. within: a command that runs another one: etcd goes behind it.
    """
    scheme = "http" if context is None else "https"
    clients = [f"{scheme}://{ip}:{free_port()}" for _ in range(count)]
    peers = [f"http://127.0.0.1:{free_port()}" for _ in range(count)]
    members = EtcdMembers()
    try:
        for number in range(count):
            with (folder / f"etcd{number}.log").open("wb") as output:
                members.servers.append(EtcdServer(subprocess.Popen(
                    [*within, program(), "--name", f"member{number}", "--data-dir",
                     str(folder / f"etcd{number}"), "--listen-client-urls", clients[number],
                     "--advertise-client-urls", clients[number], "--listen-peer-urls",
                     peers[number], "--initial-advertise-peer-urls", peers[number],
                     "--initial-cluster",
                     ",".join(f"member{one}={peer}" for one, peer in enumerate(peers)),
                     "--heartbeat-interval", "50", "--election-timeout", "500",
                     *map(str, settings)],
                    stdout=output, stderr=subprocess.STDOUT), clients[number], context))
        for server in members.servers:
            _wait(server)
        yield members
    finally:
        for server in members.servers:
            if server.process.poll() is None:
                server.answer_again()
                server.kill()


def _wait(server: EtcdServer) -> None:
    client = server.client()

    def answers() -> bool:
        assert server.process.poll() is None, "etcd has ended"
        try:
            client.below("/")
        except EtcdError:
            return False
        return True

    wait_until(answers, "etcd answers")
    client.close()
