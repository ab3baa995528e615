"""Listening sockets of a service manager (sd_listen_fds): a restart refuses no connection."""
from __future__ import annotations

import configparser
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mqcore.broker.settings.model import Settings
from mqcore.wire.codes import RequestCode
from mqcore.workers.process import activated
from mqcore.workers.process.activated import Activated, ActivationError
from mqcore.workers.process.listening import ListenError, open_listeners
from tests.support.mqcore_process import MQCORE, mqcore_namesrv, mqcore_up
from tests.support.stock import free_broker_port
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer

UNIT = Path(__file__).parents[2] / "docs" / "service" / "mqcore.socket"
LAUNCHER = """
import fcntl, os, socket, sys
with socket.socket(socket.AF_UNIX) as manager:
    manager.connect(sys.argv[1])
    _, found, *_ = socket.recv_fds(manager, 1, 16)
above = [fcntl.fcntl(fd, fcntl.F_DUPFD, 100) for fd in found]
for number, fd in enumerate(above, 3):
    os.dup2(fd, number)
    os.close(fd)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(above))}
os.execv(sys.argv[2], sys.argv[2:])
"""


class Manager:
    """Holds listening sockets, and hands them to each program that it starts."""

    def __init__(self, path: Path, listening: list[socket.socket]) -> None:
        self.sockets = listening
        self.program = [sys.executable, "-c", LAUNCHER, str(path), *MQCORE]
        self._asked = socket.socket(socket.AF_UNIX)
        self._asked.bind(str(path))
        self._asked.listen()
        threading.Thread(target=self._hand_over, daemon=True).start()

    def _hand_over(self) -> None:
        while True:
            try:
                peer, _ = self._asked.accept()
            except OSError:                       # closed
                return
            with peer:
                socket.send_fds(peer, [b"x"], [one.fileno() for one in self.sockets])

    def close(self) -> None:
        for one in [self._asked, *self.sockets]:
            one.shutdown(socket.SHUT_RDWR)
            one.close()


def listening(port: int = 0, *, host: str = "127.0.0.1", shared: bool = False) -> socket.socket:
    one = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    if shared:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    one.bind((host, port))
    one.listen(4096)
    return one


def port_of(one: socket.socket) -> int:
    port: int = one.getsockname()[1]
    return port


@dataclass
class Client:
    """Connects again and again to one address, and asks something each time."""

    address: str
    answered: int = 0
    closed: int = 0                  # after it was connected: the broker ended
    refused: list[str] = field(default_factory=list)

    def run(self, ends: threading.Event) -> None:
        while not ends.is_set():
            try:
                with Peer(self.address) as peer:
                    try:
                        peer.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
                        self.answered += 1
                    except (OSError, EOFError, AssertionError):
                        self.closed += 1
            except OSError as error:
                self.refused.append(str(error))


@contextmanager
def connecting(*addresses: str) -> Iterator[list[Client]]:
    ends, clients = threading.Event(), [Client(one) for one in addresses for _ in range(2)]
    threads = [threading.Thread(target=one.run, args=[ends], daemon=True) for one in clients]
    for thread in threads:
        thread.start()
    try:
        yield clients
    finally:
        ends.set()
        for thread in threads:
            thread.join()


def all_answered_again(clients: list[Client]) -> None:
    before = [one.answered for one in clients]
    wait_until(lambda: all(one.answered > count + 2 for one, count in zip(
        clients, before, strict=True)), "an answer to each client")


def test_restarts_refuse_no_connection(tmp_path: Path) -> None:
    """Of broker, fast port and name server, with two processes that share a socket."""
    with ExitStack() as stack:
        main = free_broker_port()
        sockets = [listening(main), listening(main - 2), listening()]
        names = port_of(sockets[2])
        manager = stack.enter_context(closing(Manager(tmp_path / "manager", sockets)))
        settings = {"broker.listen_port": main, "namesrv.listen_port": names,
                    "processes.serving_count": 2}
        ports = (main, main - 2, names)
        last = stack.enter_context(ExitStack())
        with connecting(*(f"127.0.0.1:{port}" for port in ports)) as clients:
            for restart in ("SIGTERM", "SIGUSR1", "SIGKILL"):
                with mqcore_up(tmp_path, settings, program=manager.program) as running:
                    all_answered_again(clients)
                    if restart == "SIGUSR1":
                        os.kill(running.pid, signal.SIGUSR1)
                        wait_until(lambda: "to begin anew" in running.tail(), "another run")
                        all_answered_again(clients)
                    elif restart == "SIGKILL":
                        running.kill()
            last.enter_context(mqcore_up(tmp_path, settings, program=manager.program))
            all_answered_again(clients)
        assert [one.refused for one in clients] == [[]] * 6
        assert "wait in vain" not in (tmp_path / "mqcore.out").read_text()


def test_a_name_server_by_itself_takes_its_socket(tmp_path: Path) -> None:
    with closing(Manager(tmp_path / "manager", [listening()])) as manager:
        port = port_of(manager.sockets[0])
        settings = {"namesrv.listen_port": port}
        with ExitStack() as last, connecting(f"127.0.0.1:{port}") as clients:
            with mqcore_namesrv(tmp_path, settings, program=manager.program):
                all_answered_again(clients)
            last.enter_context(mqcore_namesrv(tmp_path, settings, program=manager.program))
            all_answered_again(clients)
        assert [one.refused for one in clients] == [[], []]


def test_a_socket_of_another_address_ends_the_start(tmp_path: Path) -> None:
    with closing(Manager(tmp_path / "manager", [listening(host="::")])) as manager:
        port = port_of(manager.sockets[0])
        with pytest.raises(AssertionError, match=rf"\[::\]:{port}, and broker.listen_port is "
                           rf"127.0.0.1:{port}: expected the same address"), \
                mqcore_up(tmp_path, {"broker.listen_port": port}, program=manager.program):
            pass


# -- without a broker ------------------------------------------------------------------------------


@contextmanager
def handed_over(monkeypatch: pytest.MonkeyPatch, *sockets: socket.socket) -> Iterator[Activated]:
    """As a process has them whose manager gave it these, from the descriptor 700 on."""
    for number, one in enumerate(sockets, 700):
        os.dup2(one.fileno(), number)
    monkeypatch.setattr(activated, "FIRST_FD", 700)
    environment = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(sockets)), "OTHER": "x"}
    try:
        found = Activated(environment)
        assert environment == {"OTHER": "x"}
        yield found
        for one in found._sockets:
            one.detach()
    finally:
        for number, one in enumerate(sockets, 700):
            os.close(number)
            one.close()


def settings_at(port: int, host: str = "127.0.0.1") -> Settings:
    from mqcore.broker.settings.load import load

    return load(None, {}, [f"broker.listen_host={host}", f"broker.listen_port={port}",
                           "broker.advertised_ip=127.0.0.1", "namesrv.embedded=false"])


def test_each_socket_has_a_process_and_each_process_a_socket(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    first = listening(shared=True)
    port = port_of(first)
    others = [listening(port, shared=True) for _ in range(2)]
    for serving, wanted in ((1, None), (2, [2, 1]), (3, [1, 1, 1]), (4, [1, 1, 1, 1])):
        again = [socket.fromfd(one.fileno(), one.family, one.type) for one in (first, *others)]
        with handed_over(monkeypatch, *again) as found:
            if wanted is None:
                with pytest.raises(ListenError, match="at most 2 for each of 1 serving"):
                    open_listeners(settings_at(port), serving, found, embedded=False)
                continue
            made = open_listeners(settings_at(port), serving, found, embedded=False)
            of_port = [[one for one, fast in sockets if not fast] for sockets in made.serving]
            assert [len(sockets) for sockets in of_port] == wanted
            inodes = {os.fstat(one.fileno()).st_ino for sockets in of_port for one in sockets}
            assert inodes == {os.fstat(one.fileno()).st_ino for one in again}
            assert not any(one.getblocking() for sockets in of_port for one in sockets)
            made.close()
    for one in (first, *others):
        one.close()


def test_every_interface_is_one_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """systemd opens [::] for a port without an address."""
    one = listening(host="::")
    port = port_of(one)
    with handed_over(monkeypatch, one) as found:
        (same,) = found.take("0.0.0.0", port, "key")
        same.close()
        with pytest.raises(ActivationError, match="expected the same address"):
            found.take("127.0.0.1", port, "key")
        assert found.take("0.0.0.0", port + 1, "key") == []


def test_a_socket_that_no_setting_names_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one = listening()
    port = port_of(one)
    with handed_over(monkeypatch, one) as found:
        found.say_unused()
    assert f"listens at 127.0.0.1:{port}, and no setting has that address" in caplog.text


def test_what_is_no_listening_socket_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = socket.socket()
    for one in (silent, socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
                socket.socket(socket.AF_UNIX)):
        with pytest.raises(ActivationError, match=r"700 .*expected a TCP socket that listens"), \
                handed_over(monkeypatch, one):
            pass
    for count in ("-1", "65", "x"):
        with pytest.raises(ActivationError, match=f"LISTEN_FDS = {count}: expected a number"):
            Activated({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": count})
    monkeypatch.setattr(activated, "FIRST_FD", 999)
    with pytest.raises(ActivationError, match="is no socket"):
        Activated({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"})


def test_sockets_of_another_process_are_left_alone() -> None:
    environment = {"LISTEN_PID": "1", "LISTEN_FDS": "1", "LISTEN_FDNAMES": "a"}
    assert Activated(environment).take("127.0.0.1", 10911, "key") == []
    assert environment == {}


def test_the_unit_has_the_ports_of_the_settings_as_shipped() -> None:
    unit = configparser.RawConfigParser(strict=False)
    lines = UNIT.read_text(encoding="utf-8").splitlines()
    streams = [line.removeprefix("ListenStream=") for line in lines
               if line.startswith("ListenStream=")]
    unit.read_string("\n".join(lines))
    shipped = Settings()
    assert streams == [
        f"127.0.0.1:{shipped.broker.listen_port}", f"127.0.0.1:{shipped.broker.listen_port - 2}",
        f"127.0.0.1:{shipped.namesrv.listen_port}"]
    assert shipped.broker.listen_host == shipped.namesrv.listen_host == "127.0.0.1"
    assert unit["Socket"]["backlog"] == "4096"
