"""
Listening sockets that a service manager opened and hands to the process that it starts, as
systemd's sd_listen_fds(3) takes them. They outlive the process: what connects during a restart
waits in their queues and is not refused.
"""
from __future__ import annotations

import ipaddress
import logging
import os
import socket
from collections.abc import MutableMapping

FIRST_FD = 3
FDS_MAX = 64
WORDS = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")

log = logging.getLogger("mqcore.supervisor")


class ActivationError(ValueError):
    """A descriptor or an address that cannot be used; the text says why."""


class Activated:
    """
    The sockets of this process, kept until it ends; `take` gives copies.

    environment: the words for this process are taken out. Raises ActivationError.
    """

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        said = {word: environment.pop(word, "") for word in WORDS}
        self._sockets: list[socket.socket] = []
        self._taken: set[int] = set()
        if not said["LISTEN_FDS"] or said["LISTEN_PID"] != str(os.getpid()):
            return
        count = said["LISTEN_FDS"]
        if not (count.isascii() and count.isdecimal() and int(count) <= FDS_MAX):
            raise ActivationError(f"LISTEN_FDS = {count}: expected a number up to {FDS_MAX}")
        for fd in range(FIRST_FD, FIRST_FD + int(count)):
            self._sockets.append(_listening(fd))

    def take(self, host: str, port: int, key: str) -> list[socket.socket]:
        """
        Copies of the sockets of this address, that do not block; none: it is to be opened. key: the
        setting that names the port. Raises ActivationError for a socket of the port and another
        address.
        """
        found = []
        for one in self._sockets:
            address = one.getsockname()
            if address[1] != port:
                continue
            if not _same(address[0], host):
                raise ActivationError(
                    f"the service manager listens at {_shown(one)}, and {key} is {host}:{port}: "
                    "expected the same address")
            self._taken.add(one.fileno())
            found.append(one.dup())
            found[-1].setblocking(False)
        return found

    def say_unused(self) -> None:
        """A warning for each socket that nothing has taken."""
        for one in self._sockets:
            if one.fileno() not in self._taken:
                log.warning("the service manager listens at %s, and no setting has that address: "
                            "connections to it wait in vain", _shown(one))


def _listening(fd: int) -> socket.socket:
    """Raises ActivationError for anything else than a TCP socket that listens."""
    try:
        os.set_inheritable(fd, False)
        one = socket.socket(fileno=fd)
    except OSError as error:
        raise ActivationError(
            f"descriptor {fd} of the service manager is no socket: {error.strerror}") from None
    if one.family not in (socket.AF_INET, socket.AF_INET6) or (
            one.type != socket.SOCK_STREAM
            or not one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)):
        one.detach()
        raise ActivationError(
            f"descriptor {fd} of the service manager: expected a TCP socket that listens")
    return one


def _same(address: str, host: str) -> bool:
    """Whether a socket's address is what a setting says; "::" takes IPv4 as well."""
    given = ipaddress.ip_address(address.partition("%")[0])
    try:
        wanted = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:                       # a name
        return False
    return given == wanted or (given.is_unspecified and wanted.is_unspecified)


def _shown(one: socket.socket) -> str:
    host, port = one.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
