"""Work of the http process: scrapes and probes, answered from shared memory."""
from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Callable
from dataclasses import asdict
from http import HTTPStatus
from typing import Any, Protocol

from mqcore.broker.settings.exposure import is_loopback
from mqcore.broker.settings.model import Settings
from mqcore.http import health, metrics, otlp, text
from mqcore.http.look import Look, Watcher
from mqcore.http.server import PATHS, TEXT, Answer, Asked, HttpServer, PageProtocol
from mqcore.participants import HTTP
from mqcore.shm.segment import Segment
from mqcore.store.reader import StoreReader
from mqcore.workers.process.layout import StoreFiles, memory_bytes
from mqcore.workers.process.listening import ListenError, listen

JSON = "application/json"
FILES_MAX = 64                         # of queues, open for the ages of messages

log = logging.getLogger("mqcore.http")


class Page(Protocol):
    """The page for browsers (mqcore/page), as this process needs it."""

    def connection(self) -> PageProtocol: ...
    def reconfigure(self, settings: Settings) -> None: ...
    def sweep(self) -> None: ...
    async def close(self) -> None: ...


class Http:
    name = "http"
    slot = HTTP.slot

    def __init__(self, settings: Settings, segment: Segment,
                 open_page: Callable[[Settings, Segment, Watcher], Page] | None = None) -> None:
        """open_page: called when a browser asks for the first page."""
        self._open_page = open_page
        self._page: Page | None = None
        self._settings = settings
        self._segment = segment
        self._reader = StoreReader(
            segment, settings.log_folders.text(),
            os.fsencode(StoreFiles(settings.store_root).queues),
            file_entries=settings.store.queue_file_entry_count,
            memory_bytes=memory_bytes(settings.store.memory_ratio_percent),
            open_files_max=FILES_MAX)
        self._watcher = Watcher(settings, segment, self._reader)
        self._host, self._port = settings.http.address
        self._server: HttpServer | None = None
        self._push: otlp.Push | None = None
        self._push_at = 0.0
        self._said = ""
        self._error: BaseException | None = None

    def start(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._rung = asyncio.Event()
        self._loop.set_exception_handler(self._on_trouble)
        self._loop.add_reader(self._segment.bell(self.slot), self._on_bell)
        self._loop.run_until_complete(self._open())
        if self._settings.http.otlp_endpoint:
            self._begin_to_push()
        if not is_loopback(self._host):
            log.warning("other hosts reach http.listen (%s), which asks for no account, and "
                        "shows names of topics and groups", self._settings.http.listen)

    def reconfigure(self, settings: Settings) -> None:
        self._settings = self._watcher.settings = settings
        if self._page is not None:
            self._page.reconfigure(settings)

    def work(self, turn_ms: int) -> None:
        self._reader.forget_deleted()
        if self._page is not None:
            self._page.sweep()
        self._loop.run_until_complete(self._turn(turn_ms / 1000))
        if self._push is not None and time.monotonic() >= self._push_at:
            self._push_at = time.monotonic() + self._settings.http.otlp_interval_ms / 1000
            self._push.send(Look(self._watcher))

    def stop(self) -> None:
        if self._page is not None:
            self._loop.run_until_complete(self._page.close())
        if self._server is not None:
            self._loop.run_until_complete(self._server.stop())
        if self._push is not None:
            self._push.stop()
        self._loop.close()

    def _begin_to_push(self) -> None:
        http = self._settings.http
        try:
            self._push = otlp.Push(http.otlp_url, self._segment.run_id)
        except ModuleNotFoundError as error:
            log.error("metrics are not pushed to http.otlp_endpoint: %s; pip install mqcore[otlp]",
                      error)

    # -- turns -------------------------------------------------------------------------------------

    def _on_bell(self) -> None:
        os.eventfd_read(self._segment.bell(self.slot))
        self._rung.set()

    def _on_trouble(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Too few descriptors pass; an error of ours ends the process."""
        error = context.get("exception")
        if error is None or isinstance(error, OSError):
            log.warning("%s: %s", context["message"], error)
        else:
            self._error = error
            self._rung.set()

    async def _turn(self, seconds: float) -> None:
        if self._server is None:
            await self._open()
        try:
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        except TimeoutError:
            return
        self._rung.clear()
        if self._error is not None:
            raise self._error

    async def _open(self) -> None:
        """A port that another program has is tried again in each turn: the broker is not for it."""
        try:
            listener = listen(self._host, self._port, "http.listen")
        except ListenError as error:
            if str(error) != self._said:
                self._said = str(error)
                log.warning("there are no metrics and no answers to probes: %s", error)
            return
        if self._said:
            log.warning("%s is listened on now", self._settings.http.listen)
        with_page = self._settings.http.page and self._open_page is not None
        self._server = HttpServer(self._answer, own_machine=is_loopback(self._host),
                                  page=self._page_connection if with_page else None)
        await self._server.start(listener)

    async def _page_connection(self) -> PageProtocol:
        if self._page is None:
            assert self._open_page is not None
            self._page = self._open_page(self._settings, self._segment, self._watcher)
        return self._page.connection()

    # -- answers -----------------------------------------------------------------------------------

    def _answer(self, asked: Asked) -> Answer:
        now_ms = time.time_ns() // 1_000_000
        if asked.path == "/healthz":
            return _checks(health.alive(self._segment, now_ms))
        if asked.path == "/readyz":
            return _checks(health.ready(self._segment, self._settings, now_ms))
        if asked.path in ("/metrics", "/metrics/queues"):
            content_type = text.accepted(asked.accept)
            table = metrics.METRICS if asked.path == "/metrics" else metrics.QUEUES
            return Answer(HTTPStatus.OK, content_type,
                          metrics.scrape(Look(self._watcher), table, content_type))
        status = HTTPStatus.OK if asked.path == "/" else HTTPStatus.NOT_FOUND
        return Answer(status, TEXT, [f"{path}\n" for path in PATHS])


def _checks(checks: list[health.HealthCheck]) -> Answer:
    ok = all(check.ok for check in checks)
    body = {"ok": ok, "checks": [asdict(check) for check in checks]}
    return Answer(HTTPStatus.OK if ok else HTTPStatus.SERVICE_UNAVAILABLE, JSON,
                  [json.dumps(body, indent=2) + "\n"])
