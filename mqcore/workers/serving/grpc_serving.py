"""Work of the serving process of RocketMQ 5's clients: pull-serving behind another front."""
from __future__ import annotations

import os
import socket
from pathlib import Path

from mqcore.broker.settings.model import Settings
from mqcore.net.grpc.front import GrpcLoop
from mqcore.workers.serving.pull_serving import PullServing

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class GrpcServing(PullServing):
    """A serving process whose port is grpc.listen_port."""

    loop = GrpcLoop
    _loop: GrpcLoop

    def start(self) -> None:
        super().start()
        settings = self._settings
        self._loop.listen(
            [one for one, _ in self._listeners], settings.store.message_size_max_bytes,
            broker_name=settings.broker.name, boot=BOOT_ID.read_text(encoding="ascii").strip(),
            journal=os.fsencode(settings.config_dir / "popState"))

    def _own_listeners(self) -> list[tuple[socket.socket, bool]]:
        return []

    def reconfigure(self, settings: Settings) -> None:
        super().reconfigure(settings)
        self._loop.take_body_max(settings.store.message_size_max_bytes)

    def stop(self) -> None:
        self._loop.goodbye()
        super().stop()
        self._loop.close()
