"""Reads the recorded exchanges in tests/golden/wire."""
from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent / "golden" / "wire"
NAMES = sorted(path.name.removesuffix(".jsonl.gz") for path in FOLDER.glob("*.jsonl.gz"))


@dataclass(frozen=True)
class Message:
    """One side of an exchange."""

    header: dict[str, Any]
    frame: bytes                    # with its length word
    body_text: str | None

    @property
    def payload(self) -> bytes:
        """The frame without its length word."""
        return self.frame[4:]


@dataclass(frozen=True)
class Exchange:
    """One line of a file."""

    code: int
    client: str
    codec: str
    oneway: bool
    request: Message
    response: Message | None

    def __str__(self) -> str:
        return f"{self.code} {self.client} {self.codec}"


def _message(line: dict[str, Any] | None) -> Message | None:
    if line is None:
        return None
    return Message(line["header"], bytes.fromhex(line["frame_hex"]), line.get("body_text"))


def exchanges(name: str) -> Iterator[Exchange]:
    """The exchanges of one file, such as "route"."""
    with gzip.open(FOLDER / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for text in lines:
            line = json.loads(text)
            request = _message(line["request"])
            assert request is not None
            yield Exchange(
                line["code"], line["client"], line["codec"], line["oneway"], request,
                _message(line["response"]),
            )


def messages(name: str) -> Iterator[Message]:
    """All requests and responses of one file."""
    for exchange in exchanges(name):
        yield exchange.request
        if exchange.response is not None:
            yield exchange.response
