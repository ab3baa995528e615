"""The sockets of a run: opened by the supervisor, inherited by who serves them."""
from __future__ import annotations

import socket

from mqcore.broker.settings.model import Settings
from mqcore.workers.process.activated import Activated, ActivationError
from mqcore.workers.process.inherited import Listeners

BACKLOG = 4096
ACTIVATED_MAX = 2                # of one port for a process: LISTENERS_MAX (transport.pxd) has two


class ListenError(RuntimeError):
    """A port cannot be had; the text names its setting."""


def open_listeners(settings: Settings, serving_count: int, activated: Activated, *,
                   embedded: bool) -> Listeners:
    """All of them, or none. activated: those that are open already. Raises ListenError."""
    result = Listeners(serving=[[] for _ in range(serving_count)])
    try:
        _open(result, settings, activated, embedded=embedded)
    except (ListenError, ActivationError) as error:
        result.close()
        raise ListenError(str(error)) from error
    activated.say_unused()
    return result


def _open(result: Listeners, settings: Settings, activated: Activated, *, embedded: bool) -> None:
    broker = settings.broker
    serving = result.serving[:-1] if settings.serves_pop else result.serving
    ports = [(broker.listen_port, False)]
    if settings.fast_port is not None:
        ports.append((settings.fast_port, True))
    for port, fast in ports:
        given = activated.take(broker.listen_host, port, "broker.listen_port")
        if given:
            _share_out(given, serving, fast=fast)
            continue
        several = len(serving) > 1
        if several:                # SO_REUSEPORT alone would share with another broker
            listen(broker.listen_host, port, "broker.listen_port").close()
        for sockets in serving:
            sockets.append((listen(broker.listen_host, port, "broker.listen_port", share=several),
                            fast))
    if settings.grpc.enable:
        port = settings.grpc.listen_port
        given = activated.take(broker.listen_host, port, "grpc.listen_port")
        result.serving[-1] += [(one, False) for one in given or [
            listen(broker.listen_host, port, "grpc.listen_port")]]
    follows = settings.follows     # its port is taken, and opened when it leads
    if settings.replication.listen:
        result.replication.append(listen(broker.listen_host, settings.ha_port, "replication.port",
                                         opened=not follows))
    if embedded:
        names = settings.namesrv
        result.namesrv += activated.take(names.listen_host, names.listen_port,
                                         "namesrv.listen_port")
    if embedded and not result.namesrv:
        result.namesrv.append(listen(settings.namesrv.listen_host, settings.namesrv.listen_port,
                                     "namesrv.listen_port"))


def _share_out(
    given: list[socket.socket], serving: list[list[tuple[socket.socket, bool]]], *, fast: bool
) -> None:
    """
    Each process gets a socket, and each socket a process: a connection waits at one of several
    (SO_REUSEPORT) until its process accepts it. Raises ListenError.
    """
    if len(given) > ACTIVATED_MAX * len(serving):
        raise ListenError(f"the service manager listens with {len(given)} sockets at a port of "
                          f"broker.listen_port: expected at most {ACTIVATED_MAX} for each of "
                          f"{len(serving)} serving processes")
    for index in range(max(len(given), len(serving))):
        one = given[index] if index < len(given) else given[index % len(given)].dup()
        serving[index % len(serving)].append((one, fast))


def listen(host: str, port: int, key: str, *, share: bool = False,
           opened: bool = True) -> socket.socket:
    """
    A listening socket that does not block; opened: else it has its port, and who comes is refused.
    Raises ListenError naming the setting.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if share:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listener.bind((host, port))
        if opened:
            listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ListenError(
            f"{host}:{port} ({key}) cannot be listened on: {error.strerror}") from error
    return listener
