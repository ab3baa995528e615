"""What clients of a set of brokers were told, and what they read: the material of the checker."""
from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

OK = 0
FLUSH_DISK_TIMEOUT, SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT = 10, 11, 12
REFUSED = 14                          # SERVICE_NOT_AVAILABLE: not stored
BODY_BYTES_MAX = 400


@dataclass(slots=True)
class Send:
    """One attempt to store a message; times in seconds of one steady clock."""

    key: int                          # of the message, the same in each attempt
    attempt: int                      # 1, 2, ...
    queue: int
    link: int                         # the connection; attempts of one are in the order of sending
    sent: float
    answered: float | None = None
    code: int | None = None           # None: no answer, nobody knows
    offset: int | None = None         # in its queue, if the answer has said so

    @property
    def name(self) -> str:
        return f"{self.key}.{self.attempt}"


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message that somebody has read."""

    queue: int
    offset: int
    name: str                         # of the attempt; what no attempt's body is begins with "?"
    broker: str


@dataclass
class History:
    """
    All of a run. final: what each broker had in the end, all of it, by its name.
    lasting: consumers were shown only what slaves have, so that nothing may be taken back.
    """

    seed: int
    lasting: bool = True
    sends: list[Send] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    final: dict[str, list[Delivery]] = field(default_factory=dict)
    notes: list[tuple[float, str]] = field(default_factory=list)     # what was done to the brokers

    def note(self, text: str) -> None:
        self.notes.append((time.monotonic(), text))

    def write(self, path: Path) -> None:
        """One JSON value a line: the head, then sends, deliveries, final readings and notes."""
        with path.open("w", encoding="utf-8") as file:
            for line in self._lines():
                file.write(json.dumps(line) + "\n")

    def _lines(self) -> Iterator[object]:
        yield {"seed": self.seed, "lasting": self.lasting}
        for send in self.sends:
            yield ["send", asdict(send)]
        for delivery in self.deliveries:
            yield ["delivery", asdict(delivery)]
        for broker, found in self.final.items():
            yield ["final", broker]
            for delivery in found:
                yield ["kept", asdict(delivery)]
        for note in self.notes:
            yield ["note", note]

    @classmethod
    def read(cls, path: Path) -> History:
        """What `write` has written."""
        with path.open(encoding="utf-8") as file:
            history = cls(**json.loads(file.readline()))
            kept: list[Delivery] = []
            for line in file:
                kind, value = json.loads(line)
                match kind:
                    case "send":
                        history.sends.append(Send(**value))
                    case "delivery":
                        history.deliveries.append(Delivery(**value))
                    case "final":
                        kept = history.final[value] = []
                    case "kept":
                        kept.append(Delivery(**value))
                    case "note":
                        history.notes.append((value[0], value[1]))
                    case _:
                        raise ValueError(f"{path}: {kind}")
        return history


def body_of(seed: int, name: str) -> bytes:
    """The one body that attempt `name` of a run may have; up to BODY_BYTES_MAX bytes and a name."""
    digest = hashlib.blake2b(f"{seed} {name}".encode()).digest()
    size = BODY_BYTES_MAX * digest[0] // 255
    return name.encode() + b" " + (digest * (size // len(digest) + 1))[:size]


def name_in(seed: int, body: bytes) -> str:
    """The attempt that a body is of; "?" and its beginning if it is none of this run's."""
    name = body.partition(b" ")[0].decode("latin-1")
    return name if body == body_of(seed, name) else f"?{body[:24]!r}"
