"""A name server in a process: beside a broker, or by itself."""
from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mqcore.layout import WORKER_ABSENT, WORKER_RUNNING, WORKER_STOPPED
from mqcore.namesrv.access import Beside
from mqcore.namesrv.server import NameServer, open_sockets, serve
from mqcore.namesrv.settings import NamesrvAclSettings, NamesrvSettings
from mqcore.participants import COORDINATOR, NAMESRV
from mqcore.shm.figure_slots import FigureSlots
from mqcore.tls.settings import served
from mqcore.workers.process import descriptors, secured, signals
from mqcore.workers.process.output import complain
from mqcore.workers.process.said import Said, of_name_server

if TYPE_CHECKING:                 # a name server alone needs nothing of it
    from mqcore.http.server import Asked, HttpServer
    from mqcore.workers.process.inherited import Inherited

TURN_INTERVAL_S = 1.0
UNREGISTER_WAIT_S = 2.0           # for the broker beside it

log = logging.getLogger("namesrv")


def run(
    settings: NamesrvSettings,
    listen_sockets: list[socket.socket] | None = None,
    stop_requested: Callable[[], bool] | None = None,
    ready_callback: Callable[[], None] | None = None,
    bell: int = -1,
    beside: Beside | None = None,
    read_again: Callable[[], NamesrvSettings] | None = None,
) -> None:
    """Run a name server in this process until `stop_requested()`, or a signal if there is none.

    listen_sockets   bound and listening; None opens the address in `settings`
    stop_requested   asked once a second, for a parent that stops its children through memory; None:
                     the signals of mqcore/workers/process/signals.py that stop a broker
    bell             an eventfd that the parent rings when the answer has changed, -1: none
    ready_callback   called once connections are accepted
    beside           what it has of the broker that it runs beside
    read_again       reads the settings when SIGHUP asks for it; None: there is no file of them

    Raises OSError when the address is taken, ValueError when a file of it cannot be read.
    """
    is_successor = beside is not None and beside.kept_tls is not None
    said = None if read_again is None else of_name_server(settings, read_again)
    settings = replace(settings, tls=secured.prepared(settings.tls, again=is_successor))
    sockets = open_sockets(settings) if listen_sockets is None else listen_sockets
    settings = replace(settings, connection_count_max=descriptors.namesrv_connections(
        settings.connection_count_max))
    asyncio.run(_run(settings, sockets, stop_requested, ready_callback or _nothing, bell, beside,
                     said))


def _nothing() -> None:
    """A ready callback for callers that do not wait."""


async def _run(
    settings: NamesrvSettings, sockets: list[socket.socket],
    stop_requested: Callable[[], bool] | None, on_ready: Callable[[], None],
    bell: int, beside: Beside | None, said: Said[NamesrvSettings] | None,
) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    watching = None
    servers: list[NameServer] = []
    if stop_requested is None:
        terminal = signals.Terminal()

        def on_hangup() -> None:
            if terminal.is_gone:
                stopping.set()
            elif said is not None and servers and said.again(log):
                servers[0].say(said.settings)

        for number in signals.STOPS:
            loop.add_signal_handler(number, stopping.set)
        signal.signal(signals.AGAIN, signal.SIG_IGN)
        if terminal.hangs_up:
            loop.add_signal_handler(signal.SIGHUP, on_hangup)
    else:                                # signals are the parent's business
        watching = asyncio.create_task(_watch(stop_requested, stopping))
        asked = stop_requested

        def on_bell() -> None:
            os.eventfd_read(bell)
            if asked():
                stopping.set()

        if bell >= 0:
            loop.add_reader(bell, on_bell)
    http = None
    if settings.http_listen:
        figures: dict[str, int] = {}
        beside = Beside(None, None, figures.__setitem__)
        http = await _serve_http(settings, figures)
    try:
        await serve(settings, sockets, on_ready=on_ready, stopping=stopping, beside=beside,
                    on_made=servers.append)
    finally:
        if http is not None:
            await http.stop()
        if watching is not None:
            watching.cancel()


async def _serve_http(settings: NamesrvSettings, figures: Mapping[str, int]) -> HttpServer:
    """Metrics and health, in the loop that serves: an answer proves that it turns."""
    from http import HTTPStatus

    from mqcore.broker.settings.exposure import is_loopback
    from mqcore.http import namesrv, text
    from mqcore.http.server import TEXT, Answer, HttpServer
    from mqcore.workers.process.listening import ListenError, listen

    node = f"{settings.listen_host}:{settings.listen_port}"

    def answer(asked: Asked) -> Answer:
        if asked.path == "/metrics":
            content_type = text.accepted(asked.accept)
            return Answer(HTTPStatus.OK, content_type,
                          ["".join(namesrv.scrape(figures, node, content_type))])
        if asked.path in ("/healthz", "/readyz"):
            return Answer(HTTPStatus.OK, "application/json", ['{"ok": true, "checks": []}\n'])
        return Answer(HTTPStatus.NOT_FOUND, TEXT, ["/metrics\n/healthz\n/readyz\n"])

    host, _, port = settings.http_listen.rpartition(":")
    host = host.strip("[]")
    server = HttpServer(answer, own_machine=is_loopback(host))
    try:
        await server.start(listen(host, int(port), "namesrv.http_listen"))
    except ListenError as error:
        raise ValueError(str(error)) from error
    return server


async def _watch(stop_requested: Callable[[], bool], stopping: asyncio.Event) -> None:
    while not stop_requested():
        await asyncio.sleep(TURN_INTERVAL_S)
    stopping.set()


def run_beside(inherited: Inherited) -> None:
    """The name server beside a broker, from fork to end."""
    settings, segment = inherited.settings, inherited.segment
    folder = Path(settings.store.path) / "namesrv"
    folder.mkdir(parents=True, exist_ok=True)
    deadline = float("inf")
    kept_tls = inherited.kept_tls.settings

    def stop_requested() -> bool:
        """
        Asked once a second. A signal may reach all processes at once; the broker unregisters here
        before it ends.
        """
        nonlocal deadline
        if inherited.beats:                        # only health checks read it
            segment.beat(NAMESRV.slot, time.time_ns() // 1_000_000)
        if not segment.stop_requested(NAMESRV.slot):
            return False
        deadline = min(deadline, time.monotonic() + UNREGISTER_WAIT_S)
        return (segment.state(COORDINATOR.slot) in (WORKER_ABSENT, WORKER_STOPPED)
                or time.monotonic() >= deadline)

    try:
        run(
            NamesrvSettings(listen_host=settings.namesrv.listen_host,
                            listen_port=settings.namesrv.listen_port,
                            tls=served(settings.tls), acl=NamesrvAclSettings(
                                enable=settings.acl.enable and settings.acl.namesrv_enable,
                                folder=settings.acl.folder, routes=settings.acl.namesrv_routes,
                                audit=settings.acl.audit,
                                audit_lines_per_second=settings.acl.audit_lines_per_second),
                            kv_config_path=str(folder / "kvConfig.json"),
                            runtime_config_path=str(folder / "runtime.json"),
                            connection_memory_bytes=settings.processes.connection_memory_bytes),
            inherited.listeners.namesrv, stop_requested=stop_requested,
            ready_callback=lambda: segment.set_state(NAMESRV.slot, WORKER_RUNNING),
            bell=segment.bell(NAMESRV.slot),
            beside=Beside(inherited.namesrv_account, inherited.kept_access,
                          FigureSlots(segment).put, served(kept_tls) if kept_tls else None))
    except (ValueError, OSError) as error:       # a file of its that cannot be used
        complain(str(error))
        raise SystemExit(1) from error
    segment.set_state(NAMESRV.slot, WORKER_STOPPED)
