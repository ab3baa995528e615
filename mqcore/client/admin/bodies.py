"""Reading answers: members of JSON bodies by name and kind, times, settings (remoting.md 5)."""
from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from mqcore.client.errors import ClientError
from mqcore.client.message import MessageQueue
from mqcore.wire import fastjson
from mqcore.wire.command import Command
from mqcore.wire.numbers import whole_number


def when(timestamp_ms: int) -> datetime | None:
    """The time of epoch milliseconds; None for what means "none": 0 and less, or no date at all."""
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC) if timestamp_ms > 0 else None
    except (OverflowError, ValueError, OSError):
        return None


class Fields:
    """The members of one JSON object; ClientError says where a value is not what it should be."""

    def __init__(self, value: Any, where: str) -> None:
        if not isinstance(value, dict | fastjson.ObjectKey):
            raise ClientError(f"{where}: expected an object")
        self.members: dict[Any, Any] = dict(value)
        self.where = where

    def text(self, name: str, missing: str = "") -> str:
        value = self.members.get(name)
        return missing if value is None else str(value)

    def number(self, name: str, missing: int = 0) -> int:
        return self._number(self.members.get(name), name, missing)

    def decimal(self, name: str) -> float:
        value = self.members.get(name)
        try:
            return 0.0 if value is None else float(value)
        except (TypeError, ValueError) as error:
            raise ClientError(f"{self.where}.{name}: expected a number") from error

    def flag(self, name: str, missing: bool = False) -> bool:
        value = self.members.get(name)
        return missing if value is None else str(value).lower() == "true"

    def time(self, name: str) -> datetime | None:
        return when(self.number(name))

    def object(self, name: str) -> Fields:
        value = self.members.get(name)
        return Fields({} if value is None else value, f"{self.where}.{name}")

    def items(self, name: str) -> list[Any]:
        value = self.members.get(name)
        if value is not None and not isinstance(value, list):
            raise ClientError(f"{self.where}.{name}: expected an array")
        return value or []

    def objects(self, name: str) -> Iterator[Fields]:
        for value in self.items(name):
            yield Fields(value, f"{self.where}.{name}")

    def texts(self, name: str) -> tuple[str, ...]:
        return tuple(str(value) for value in self.items(name))

    def numbers(self, name: str) -> tuple[int, ...]:
        return tuple(self._number(value, name) for value in self.items(name))

    def table(self, name: str) -> dict[str, str]:
        return {str(key): str(value) for key, value in self.object(name).members.items()}

    def by_queue(self, name: str) -> Iterator[tuple[MessageQueue, Any]]:
        """The entries of a map whose keys are message queues, in their order."""
        found = []
        for key, value in self.object(name).members.items():
            found.append((_queue(Fields(key, f"{self.where}.{name}")), value))
        yield from sorted(found, key=lambda entry: entry[0])

    def offsets(self, name: str) -> tuple[tuple[MessageQueue, int], ...]:
        """The entries of a map from message queues to offsets, in the order of the queues."""
        return tuple((queue, self._number(value, name)) for queue, value in self.by_queue(name))

    def by_number(self, name: str) -> dict[int, int]:
        """The entries of a map from numbers to numbers."""
        return {self._number(key, name): self._number(value, name)
                for key, value in self.object(name).members.items()}

    def queue(self, name: str) -> MessageQueue:
        return _queue(self.object(name))

    def _number(self, value: Any, name: str, missing: int = 0) -> int:
        if value is None:
            return missing
        if isinstance(value, str):
            value = whole_number(value)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int):
            raise ClientError(f"{self.where}.{name}: expected a number")
        return value


def _queue(fields: Fields) -> MessageQueue:
    return MessageQueue(fields.text("topic"), fields.text("brokerName"), fields.number("queueId"))


def document(answer: Command, address: str) -> Fields:
    """The JSON body of an answer; ClientError when it is none."""
    try:
        return Fields(fastjson.loads(answer.body) if answer.body else {}, f"answer of {address}")
    except fastjson.JsonError as error:
        raise ClientError(f"answer of {address}: {error}", broker=address) from error


def header_number(answer: Command, name: str, address: str) -> int:
    """A number in the header of an answer."""
    text = (answer.ext or {}).get(name)
    number = whole_number(text or "")
    if number is None:
        raise ClientError(f"{address} answered {name}={text!r}: expected a number", broker=address)
    return number


def settings_of(body: bytes) -> MappingProxyType[str, str]:
    """Lines of `key=value`, in the order of their names."""
    lines = (line.partition("=") for line in body.decode("utf-8", "replace").splitlines())
    return MappingProxyType(dict(sorted(
        (name.strip(), value) for name, found, value in lines if found and name.strip())))


def properties_text(pairs: dict[str, str]) -> bytes:
    """Java's properties text of some settings (remoting.md 4.4, code 25)."""
    return "".join(f"{_escaped(name, ' :=')}={_escaped(value)}\n"
                   for name, value in pairs.items()).encode()


def _escaped(text: str, more: str = "") -> str:
    """One name or value of a properties text: what would end or change it gets a backslash."""
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    for character in more:
        escaped = escaped.replace(character, "\\" + character)
    return "\\" + escaped if escaped[:1] in (" ", "\t", "#", "!") else escaped
