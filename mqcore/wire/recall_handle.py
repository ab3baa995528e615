"""Recall handles of 5.x: what takes a message back before its time of delivery (timer.md 3)."""
from __future__ import annotations

from binascii import Error, a2b_base64, b2a_base64
from dataclasses import dataclass
from enum import StrEnum

from mqcore.wire.numbers import whole_number

HANDLE_LENGTH_MAX = 1024
VERSION = "v1"
TIME_MAX_MS = 1 << 53
SECOND_MS = 1000
OUTCOME = "outcome"                  # ours: a field of the answer to a recall


class RecallOutcome(StrEnum):
    """
    The outcome of a recall.

    RECALLED: it was in time, this one or an earlier one; DELIVERED: the message is delivered;
    DELIVERING: its time has come, and the outcome is not known yet: ask again; UNKNOWN: the
    broker knows of no such message, or does not say (stock).
    """

    RECALLED = "recalled"
    DELIVERED = "delivered"
    DELIVERING = "delivering"
    UNKNOWN = "unknown"


class HandleError(ValueError):
    """A text is no recall handle."""


@dataclass(frozen=True, slots=True)
class RecallHandle:
    """second_ms: the begin of the second in which the message is due."""

    topic: str
    broker_name: str
    second_ms: int
    message_id: str

    @property
    def text(self) -> str:
        """As a send's answer has it."""
        said = f"{VERSION} {self.topic} {self.broker_name} {self.second_ms + 1} {self.message_id}"
        plain = b2a_base64(said.encode(), newline=False)
        return plain.replace(b"+", b"-").replace(b"/", b"_").decode()

    @classmethod
    def read(cls, text: str) -> RecallHandle:
        """Raises HandleError."""
        try:
            if len(text) > HANDLE_LENGTH_MAX:
                raise HandleError("it is too long")
            plain = text.encode("ascii").replace(b"-", b"+").replace(b"_", b"/")
            said = a2b_base64(plain, strict_mode=True).decode()
        except (UnicodeError, Error) as error:
            raise HandleError("it is no base64 text") from error
        parts = said.split(" ")
        time_ms = whole_number(parts[3], 1, TIME_MAX_MS) if len(parts) == 5 else None
        if len(parts) != 5 or parts[0] != VERSION or time_ms is None or not all(parts):
            raise HandleError(f"expected {VERSION}, a topic, a broker, a time and a message id")
        return cls(parts[1], parts[2], (time_ms - 1) // SECOND_MS * SECOND_MS, parts[4])
