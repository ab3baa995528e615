"""Work of the serving process of POP and gRPC: pull-serving behind another front."""
from __future__ import annotations

import logging
import os
import socket
from pathlib import Path

from mqcore.broker.settings.model import Settings
from mqcore.net.grpc.front import GrpcLoop
from mqcore.workers.serving.pull_serving import PullServing

log = logging.getLogger("mqcore.pull-serving")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class GrpcServing(PullServing):
    """The serving process with the state of POP, whose port is grpc.listen_port, if it has one."""

    loop = GrpcLoop
    _loop: GrpcLoop
    _journal_error = 0                 # that was told

    def start(self) -> None:
        super().start()
        settings = self._settings
        self._loop.listen(
            [one for one, _ in self._listeners], settings.store.message_size_max_bytes,
            broker_name=settings.broker.name, boot=BOOT_ID.read_text(encoding="ascii").strip(),
            journal=os.fsencode(settings.config_dir / "popState"))

    def _own_listeners(self) -> list[tuple[socket.socket, bool]]:
        return []

    def work(self, turn_ms: int) -> None:
        super().work(turn_ms)
        error = self._loop.journal_error()
        if error and not self._journal_error:
            log.error("config/popState cannot be written: %s. Acks of POP are answered with an "
                      "error", os.strerror(error))
        elif self._journal_error and not error:
            log.warning("config/popState can be written again")
        self._journal_error = error

    def reconfigure(self, settings: Settings) -> None:
        super().reconfigure(settings)
        self._loop.take_body_max(settings.store.message_size_max_bytes)

    def stop(self) -> None:
        self._loop.goodbye()
        super().stop()
        self._loop.close()
