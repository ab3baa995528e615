"""
An official client of RocketMQ 5 as a process, which carries out orders: a JSON object a line.

producer  topics                       transactions are decided by the body's last word
send      topic, body [, tag, key, property, order, deliver_ms] -> id
transact  topic, body, end: "commit", "rollback", "" -> id
push      group, topic, tag          a body "again ..." fails the first time, "never ..." each time
got       group -> got: [[body, attempt, ms]]        what its push consumer was given
simple    group, topic, tag
receive   group -> messages: [{id, body, tag, keys, property, attempt}], all acknowledged

An answer is a line "> {...}"; {"error": text} where the client raised.
"""
from __future__ import annotations

import json
import os
import subprocess
import threading
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from tests.interop.toolchain import JVM_OPTIONS, SOURCES, require_client
from tests.support.ci import unavailable
from tests.support.stock import (
    StockError,
    die_with_parent,
    end_input,
    java_classes,
    require_stock,
    stock_classpath,
)
from tests.support.waiting import wait_until

ANSWER_TIMEOUT_S = 120
END_TIMEOUT_S = 20
CLIENTS = ("java-5.2.0", "java-5.0.5", "python", "go", "node", "rust")
Got = list[tuple[str, int, int]]


class ClientError(RuntimeError):
    """The client raised; its text."""


def _java(version: str, folder: Path) -> list[str]:
    require_stock()
    try:
        classpath = stock_classpath((f"org.apache.rocketmq:rocketmq-client-java:{version}",))
    except StockError as error:
        unavailable(str(error))
    classes = java_classes(SOURCES / "java_grpc" / "Desk.java", classpath)
    return ["java", *JVM_OPTIONS, f"-Duser.home={folder}", "-cp",
            os.pathsep.join((str(classes), classpath)), "Desk"]


def command_of(client: str, folder: Path) -> list[str]:
    """How a client is started, or the end of the calling test."""
    kind, _, version = client.partition("-")
    if kind == "java":
        return _java(version, folder)
    if kind == "python":
        return [*require_client("grpc"), str(SOURCES / "python_grpc" / "desk.py")]
    return [*require_client(f"{kind}-grpc")]


class ClientDesk:
    """The process."""

    def __init__(self, client: str, folder: Path, address: str, transport: str = "plain") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._errors = folder / "errors.txt"
        self._answers: Queue[dict[str, Any]] = Queue()
        with self._errors.open("wb") as sink:
            self.process = subprocess.Popen(
                [*command_of(client, folder), address, transport], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=sink, cwd=folder, preexec_fn=die_with_parent,
                env={**os.environ, "HOME": str(folder)})
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(b"> "):
                self._answers.put(json.loads(line[2:]))

    def order(self, do: str, **more: object) -> dict[str, Any]:
        """Raises ClientError."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **more}).encode() + b"\n")
        self.process.stdin.flush()
        try:
            said = self._answers.get(timeout=ANSWER_TIMEOUT_S)
        except Empty:
            raise AssertionError(
                f"no answer to {do}: {self._errors.read_text(errors='replace')[-2000:]}") from None
        if "error" in said:
            raise ClientError(said["error"])
        return said

    def send(self, topic: str, body: str, **more: object) -> str:
        return str(self.order("send", topic=topic, body=body, **more)["id"])

    def send_at_last(self, topic: str, body: str) -> None:
        """Its connections may be broken."""
        def sends() -> bool:
            try:
                self.send(topic, body)
            except ClientError:
                return False
            return True
        wait_until(sends, f"a send of {body}")

    def got(self, group: str) -> Got:
        return [(body, attempt, ms) for body, attempt, ms in self.order("got", group=group)["got"]]

    def bodies(self, group: str) -> list[str]:
        return [body for body, _, _ in self.got(group)]

    def receive(self, group: str, count: int) -> list[dict[str, Any]]:
        """At least so many; in the order of their arrival. A receive may fail meanwhile."""
        found: list[dict[str, Any]] = []

        def comes() -> bool:
            try:
                found.extend(self.order("receive", group=group)["messages"])
            except ClientError:
                return False
            return len(found) >= count
        wait_until(comes, f"{count} messages for {group}")
        return found

    def close(self) -> None:
        end_input(self.process, END_TIMEOUT_S)
