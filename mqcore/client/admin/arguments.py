"""Arguments of administration, looked at before anything is sent: ConfigError names the bad one."""
from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from mqcore.client.core.options import check_topic, split_address, whole
from mqcore.client.errors import ConfigError
from mqcore.client.message import MessageQueue

I32_MAX: Final = (1 << 31) - 1
I64_MAX: Final = (1 << 63) - 1

_AGO = re.compile(r"\s*(\d{1,9}(?:\.\d{1,6})?)\s*(ms|s|m|h|d|w)\s+ago\s*", re.ASCII)
_AGO_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}

Moment = datetime | str
"""A time: an aware datetime, "now", "90s ago", "1h ago" (ms s m h d w), or ISO 8601 with zone."""


def _refused(parameter: str, value: object, expected: str) -> ConfigError:
    return ConfigError(f"{parameter} {value!r:.120}: expected {expected}")


def text(value: str, parameter: str) -> str:
    """Any text that is not blank."""
    if not isinstance(value, str) or not value.strip():
        raise _refused(parameter, value, "a text that is not blank")
    return value


def address(value: str, parameter: str = "broker") -> str:
    """`host:port`."""
    try:
        split_address(text(value, parameter))
    except ValueError as error:
        raise _refused(parameter, value, "host:port") from error
    return value


def is_address(value: str) -> bool:
    """Whether it is `host:port`, not a broker's name."""
    try:
        split_address(value)
    except ValueError:
        return False
    return True


def number(value: int, parameter: str, low: int = 0, high: int = I64_MAX) -> int:
    """A whole number from `low` to `high`."""
    return whole(value, parameter, low, high)


def flag(value: bool, parameter: str) -> bool:
    """True or False, and nothing else."""
    if not isinstance(value, bool):
        raise _refused(parameter, value, "True or False")
    return value


def one_of(value: str, parameter: str, choices: Sequence[str]) -> str:
    """One of some words."""
    if not isinstance(value, str) or value not in choices:
        raise _refused(parameter, value, " or ".join(map(repr, choices)))
    return value


def names(values: Sequence[str], parameter: str) -> tuple[str, ...]:
    """A sequence of texts; a single text is none."""
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise _refused(parameter, values, "a list of texts")
    return tuple(text(value, parameter) for value in values)


def pairs(values: Mapping[str, object], parameter: str) -> dict[str, str]:
    """Names and values of settings, as texts: True is `true`."""
    if not isinstance(values, Mapping) or not values:
        raise _refused(parameter, values, "a mapping of names to values")
    found = {}
    for name, value in values.items():
        if not isinstance(value, str | int | float):
            raise _refused(f"{parameter}[{name!r}]", value, "a text, a number, True or False")
        shown = str(value).lower() if isinstance(value, bool) else str(value)
        found[text(name, parameter)] = shown
    return found


def message_queue(queue: MessageQueue, parameter: str = "queue") -> MessageQueue:
    """A queue with a legal topic, a broker's name and a number."""
    if not isinstance(queue, MessageQueue):
        raise _refused(parameter, queue, "a MessageQueue")
    check_topic(queue.topic, f"{parameter}.topic")
    text(queue.broker_name, f"{parameter}.broker_name")
    number(queue.queue_id, f"{parameter}.queue_id", 0, I32_MAX)
    return queue


def moment_ms(value: Moment, parameter: str, now: datetime) -> int:
    """Epoch milliseconds of a Moment; `now` is what "ago" counts from."""
    if isinstance(value, str):
        value = _read_moment(value, parameter, now)
    if not isinstance(value, datetime):
        raise _refused(parameter, value, 'a datetime with its zone, or a text as "1h ago"')
    if value.tzinfo is None:
        raise _refused(parameter, value, "a datetime with its zone (datetime.now(timezone.utc))")
    return max(0, round(value.timestamp() * 1000))


def seconds(value: str, parameter: str) -> float:
    """A duration as text, "90s" or "1.5h", in seconds."""
    found = _AGO.fullmatch(f"{value} ago")
    if found is None:
        raise _refused(parameter, value, "a duration: 90s, 1.5h (ms s m h d w)")
    return float(found[1]) * _AGO_UNITS[found[2]]


def _read_moment(value: str, parameter: str, now: datetime) -> datetime:
    if value.strip() == "now":
        return now
    ago = _AGO.fullmatch(value)
    try:
        if ago is not None:
            return now - timedelta(seconds=float(ago[1]) * _AGO_UNITS[ago[2]])
        return datetime.fromisoformat(value.strip())
    except (ValueError, OverflowError) as error:
        raise _refused(parameter, value, 'a time: "now", "1h ago" (ms s m h d w), ISO 8601 with'
                                         " zone") from error
