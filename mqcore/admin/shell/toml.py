"""Values as TOML; the standard library only reads it."""
from __future__ import annotations


def value(given: str | int | bool) -> str:
    """A value of a key, or a quoted part of a section's name."""
    if isinstance(given, bool):
        return "true" if given else "false"
    if isinstance(given, int):
        return str(given)
    escaped = "".join(
        f"\\u{ord(c):04x}" if ord(c) < 0x20 or c in '"\\' or ord(c) == 0x7f else c for c in given)
    return f'"{escaped}"'
