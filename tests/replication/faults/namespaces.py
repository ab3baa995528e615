"""
Hosts on one machine: network namespaces on a bridge, each with an address of its own.

    with hosts("master", "slave", "clients") as net:
        net.program("master")                  # for mqcore_up
        net.run_in("clients", function)        # in a thread whose sockets are that host's

Needs root; skips elsewhere, and fails in CI.
"""
from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.ci import unavailable
from tests.support.mqcore_process import MQCORE

CLONE_NEWNET = 0x40000000
NOBODYS = "02:00:00:00:00:01"          # a link address that no host has


@dataclass
class Hosts:
    """Namespaces, by the names of the hosts; their addresses are 10.77.0.1, .2, ..."""

    prefix: str
    names: Sequence[str]

    def namespace(self, host: str) -> str:
        return f"{self.prefix}-{host}"

    def address(self, host: str) -> str:
        return f"10.77.0.{self.names.index(host) + 1}"

    def within(self, host: str) -> tuple[str, ...]:
        """What runs a command on a host."""
        return ("ip", "netns", "exec", self.namespace(host))

    def program(self, host: str) -> tuple[str, ...]:
        """What runs `mqcore` on a host."""
        return (*self.within(host), *MQCORE)

    def run_in(self, host: str, function: Callable[[], None]) -> None:
        """Run it in a thread that is on that host, as are those it starts; raises what it does."""
        failure: list[BaseException] = []

        def body() -> None:
            try:
                enter(self.namespace(host))
                function()
            except BaseException as error:
                failure.append(error)

        thread = threading.Thread(target=body)
        thread.start()
        thread.join()
        if failure:
            raise failure[0]

    def unplug(self, host: str) -> None:
        """Nothing comes or goes; nobody is told."""
        self._at_switch("link", "set", f"p-{host}", "down")

    def plug(self, host: str) -> None:
        self._at_switch("link", "set", f"p-{host}", "up")

    def deafen(self, host: str, to: str) -> None:
        """What `to` sends to `host` goes nowhere; what `host` sends arrives."""
        ip("-n", self.namespace(to), "neigh", "replace", self.address(host), "dev", "eth0",
           "lladdr", NOBODYS, "nud", "permanent")

    def hear(self, host: str, to: str) -> None:
        ip("-n", self.namespace(to), "neigh", "del", self.address(host), "dev", "eth0")

    def make(self) -> None:
        ip("netns", "add", self.namespace("switch"))
        self._at_switch("link", "add", "bridge", "type", "bridge", "forward_delay", "0")
        self._at_switch("link", "set", "bridge", "up")
        for host in self.names:
            inside = ("-n", self.namespace(host))
            ip("netns", "add", self.namespace(host))
            ip(*inside, "link", "set", "lo", "up")
            self._at_switch("link", "add", f"p-{host}", "type", "veth", "peer", "name", "eth0",
                            "netns", self.namespace(host))
            self._at_switch("link", "set", f"p-{host}", "master", "bridge", "up")
            ip(*inside, "address", "add", f"{self.address(host)}/24", "dev", "eth0")
            ip(*inside, "link", "set", "eth0", "up")

    def remove(self) -> None:
        for name in (*self.names, "switch"):
            subprocess.run(["ip", "netns", "del", self.namespace(name)], check=False,
                           capture_output=True)

    def _at_switch(self, *arguments: str) -> None:
        ip("-n", self.namespace("switch"), *arguments)


def ip(*arguments: str) -> None:
    """Raises CalledProcessError."""
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


def enter(namespace: str) -> None:
    """This thread is in that namespace from now on. Raises OSError."""
    handle = os.open(Path("/run/netns") / namespace, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(handle, CLONE_NEWNET):
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
    finally:
        os.close(handle)


@contextlib.contextmanager
def hosts(*names: str) -> Iterator[Hosts]:
    """Hosts for the length of the block; no test where they cannot be made."""
    if shutil.which("ip") is None:
        unavailable("network namespaces are made with ip (Debian: iproute2)")
    made = Hosts(f"mq{os.getpid()}", names)
    try:
        try:
            made.make()
        except (OSError, subprocess.CalledProcessError) as error:
            unavailable(f"no network namespaces here: {getattr(error, 'stderr', error)}")
        yield made
    finally:
        made.remove()
