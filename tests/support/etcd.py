"""An etcd of one member, as a process: a short election timeout, so that leases may be short."""
from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mqcore.failover.etcd import Etcd, EtcdError
from tests.interop.toolchain import unavailable
from tests.support.stock import free_port
from tests.support.waiting import wait_until


@dataclass
class EtcdServer:
    """A running etcd; address: http://host:port."""

    process: subprocess.Popen[bytes]
    address: str

    def stop_answering(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)

    def answer_again(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def client(self, timeout_s: float = 2.0) -> Etcd:
        return Etcd([self.address], timeout_s)


def program() -> str:
    """The path of etcd; skips where there is none, and fails in CI."""
    found = shutil.which("etcd")
    if found is None:
        unavailable("etcd is not installed (Debian: etcd-server)")
    return found


@contextmanager
def etcd_server(folder: Path) -> Iterator[EtcdServer]:
    """An etcd with its data below `folder`; leases run out after a second at the least."""
    clients, peers = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    with (folder / "etcd.log").open("wb") as output:
        process = subprocess.Popen(
            [program(), "--data-dir", str(folder / "etcd"), "--listen-client-urls", clients,
             "--advertise-client-urls", clients, "--listen-peer-urls", peers,
             "--initial-advertise-peer-urls", peers, "--initial-cluster", f"default={peers}",
             "--heartbeat-interval", "50", "--election-timeout", "500"],
            stdout=output, stderr=subprocess.STDOUT)
    try:
        server = EtcdServer(process, clients)
        _wait(server)
        yield server
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()


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
