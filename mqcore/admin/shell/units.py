"""Numbers and times as people read them. JSON has the raw ones."""
from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from mqcore.client.admin.arguments import moment_ms, seconds

UNKNOWN = "unknown"
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_AGES = ((86_400, "d"), (3_600, "h"), (60, "m"))


def count(value: Any) -> str:
    """12,345; "unknown" for None."""
    return UNKNOWN if value is None else f"{value:,}"


def size(value: Any) -> str:
    """Bytes with a binary unit: 1.5 KiB."""
    if value is None:
        return UNKNOWN
    amount = float(value)
    for unit in _SIZES:
        if abs(amount) < 1024 or unit == _SIZES[-1]:
            return f"{value} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    raise AssertionError("the loop ends at the last unit")


def rate(value: Any) -> str:
    """A number a second."""
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}/s" if value >= 100 else f"{value:.1f}/s"


def age(seconds: Any) -> str:
    """A length of time: 3.2 d, 45 s, 0.3 s."""
    if seconds is None:
        return UNKNOWN
    for length, unit in _AGES:
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def moment(seconds: Any) -> str:
    """A time of the calendar, in the local zone, which it names."""
    if seconds is None:
        return "-"
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def iso(at: datetime | None) -> str | None:
    """A time for JSON: UTC, milliseconds; None stays None."""
    if at is None:
        return None
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def iso_of(seconds: float) -> str:
    """A time of the epoch for JSON: UTC, milliseconds."""
    return iso(datetime.fromtimestamp(seconds, UTC)) or ""


def moment_of(text: str) -> datetime:
    """A time as commands take it: `1h ago`, an ISO time. Raises ConfigError."""
    return datetime.fromtimestamp(moment_ms(text, "time", datetime.now(UTC)) / 1000, UTC)


def seconds_of(text: str) -> float:
    """A duration as commands take it: `90s`, `1.5h`. Raises ConfigError."""
    return seconds(text, "duration")


def seconds_since(at: datetime | None) -> float | None:
    """Seconds since `at`, not below 0; None stays None."""
    return None if at is None else max(0.0, round(time.time() - at.timestamp(), 3))


def yes(value: Any) -> str:
    """A flag."""
    return "yes" if value else "no"
