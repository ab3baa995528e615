"""Where a group's offsets are kept: at the brokers, or in a file (client.md 4.17)."""
from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

from mqcore.client.consume import pulling
from mqcore.client.core.offsets import format_offsets, parse_offsets
from mqcore.client.errors import ClientError, ConfigError, RocketMQError
from mqcore.client.message import MessageQueue
from mqcore.client.roles.instance import ClientInstance
from mqcore.wire import home
from mqcore.wire.home import NoHomeError

FOLDER = "~/.rocketmq_offsets"


class OffsetStore(ABC):
    """Offsets of one group, by queues as brokers know them."""

    @abstractmethod
    async def load(self) -> None:
        """Before the first read; raises ClientError for what cannot be read."""

    @abstractmethod
    async def read(self, queue: MessageQueue) -> int | None:
        """None: nothing is stored. Raises RocketMQError when no broker can say."""

    @abstractmethod
    async def write(self, offsets: Mapping[MessageQueue, int], *, wait: bool = False) -> None:
        """Keep these, also where they are lower than before; `wait` until they are kept. Raises
        RocketMQError."""


class BrokerOffsets(OffsetStore):
    """A clustering group's: each queue's broker has them."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group

    async def load(self) -> None:
        return None

    async def read(self, queue: MessageQueue) -> int | None:
        return await pulling.committed_offset(self._instance, self._group, queue)

    async def write(self, offsets: Mapping[MessageQueue, int], *, wait: bool = False) -> None:
        failure: RocketMQError | None = None
        for queue, offset in offsets.items():
            try:
                await pulling.commit_offset(self._instance, self._group, queue, offset, wait=wait)
            except RocketMQError as error:
                failure = error         # those of other brokers may be kept
        if failure is not None:
            raise failure


class LocalOffsets(OffsetStore):
    """A broadcasting member's: `<folder>/<client id>/<group>/offsets.json`, as Java's."""

    def __init__(self, instance: ClientInstance, group: str, folder: str | Path | None) -> None:
        self._instance = instance
        self._group = group
        try:
            self._folder = (
                Path(folder) if folder is not None else Path(home.expanded(FOLDER)))
        except NoHomeError as error:
            raise ConfigError(f"offsets_folder: {error}") from error
        self._offsets: dict[MessageQueue, int] = {}

    @property
    def path(self) -> Path:
        return self._folder / self._instance.client_id / self._group / "offsets.json"

    async def load(self) -> None:
        self._offsets = await asyncio.to_thread(_read, self.path)

    async def read(self, queue: MessageQueue) -> int | None:
        return self._offsets.get(queue)

    async def write(self, offsets: Mapping[MessageQueue, int], *, wait: bool = False) -> None:
        self._offsets.update(offsets)
        await asyncio.to_thread(_write, self.path, format_offsets(self._offsets))


def _read(path: Path) -> dict[MessageQueue, int]:
    """The file's, else that of the copy before it. Raises ClientError where what is there cannot be
    read: a member without places would begin at the end of its queues."""
    trouble = ""
    for each in (path, path.with_name(path.name + ".bak")):
        try:
            return parse_offsets(each.read_bytes())
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            trouble = f"offsets of {each}: {error}"
    if trouble:
        raise ClientError(trouble)
    return {}


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(path.name + ".tmp")
        with new.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())             # a power cut would leave an empty file
        if path.exists():
            os.replace(path, path.with_name(path.name + ".bak"))
        os.replace(new, path)
    except OSError as error:
        raise ClientError(f"offsets of {path}: {error}") from error
