"""A broker process with a gRPC port."""
from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.stock import free_broker_port, free_port


@dataclass
class GrpcBroker:
    process: MqcoreProcess
    port: int

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def serving_pid(self) -> int:
        """Of the process that owns the port."""
        for pid in self.process.family():
            name = Path(f"/proc/{pid}/cmdline").read_text().strip("\0")
            if name.startswith("mqcore: pull-serving-1"):
                return pid
        raise AssertionError("no such process")


@contextlib.contextmanager
def grpc_broker(folder: Path, settings: dict[str, object] | None = None) -> Iterator[GrpcBroker]:
    given = {
        "grpc.enable": True, "grpc.listen_port": free_port(), "processes.serving_count": 1,
        "broker.transaction_check_interval_ms": 1000, "broker.transaction_timeout_ms": 500,
        **(settings or {})}
    port = given["grpc.listen_port"]
    assert isinstance(port, int)
    with mqcore_up(folder, given) as process:
        yield GrpcBroker(process, port)


class RestartedBroker:
    """A broker that can be stopped and started again: the same store, the same ports."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._up = folder, contextlib.ExitStack()
        self._settings: dict[str, object] = {
            "broker.listen_port": free_broker_port(), "grpc.listen_port": free_port()}
        self.now = self._up.enter_context(grpc_broker(folder, self._settings))

    def restart(self) -> None:
        self.stop()
        self.now = self._up.enter_context(grpc_broker(self._folder, self._settings))

    def stop(self) -> None:
        self._up.close()
