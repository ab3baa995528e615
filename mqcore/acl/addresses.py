"""
Address patterns of white lists (RocketMQ 4.9.8: RemoteAddressStrategyFactory, AclUtils).

A pattern becomes rows as the table of rules has them (mqcore/shm/access.pxd): bytes that have to be
equal, and the range of the number behind them.
"""
from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import NamedTuple

EVERYTHING = ("*", "*.*.*.*", "*:*:*:*:*:*:*:*")
PATTERN_LENGTH_MAX = 4096
V4_GROUPS, V4_MAX = 4, 255
V6_GROUPS, V6_MAX = 8, 0xFFFF
_V4 = re.compile(r"(0|[1-9][0-9]{0,2})(\.(0|[1-9][0-9]{0,2})){3}")
_BRACES = re.compile(r"([^{}]*)\{([^{}]*)\}")
_HEX = re.compile(r"[0-9A-Fa-f]{1,4}")


class PatternError(ValueError):
    """A pattern that means nothing; the text says what was expected."""


class Address(NamedTuple):
    """family: 4 or 6, 0: every address; width: bytes of the number behind the prefix, or 0."""

    family: int
    prefix: bytes
    width: int
    low: int
    high: int


def parse(pattern: str) -> tuple[Address, ...]:
    """The rows of a pattern, none for a blank one; raises PatternError."""
    if not pattern.strip():
        return ()
    if len(pattern) > PATTERN_LENGTH_MAX:
        raise PatternError(f"an address pattern of {len(pattern)} characters: expected at most "
                           f"{PATTERN_LENGTH_MAX}")
    if pattern in EVERYTHING:
        return (Address(0, b"", 0, 0, 0),)
    if "{" in pattern:
        braces = _BRACES.fullmatch(pattern)
        if braces is None or not braces[1]:
            raise _wrong(pattern)
        return tuple(_exact(braces[1] + part) for part in _parts(braces[2]))
    if "," in pattern:
        return tuple(_exact(part) for part in _parts(pattern))
    if "*" in pattern or "-" in pattern:
        return (_range_v6(pattern) if ":" in pattern else _range_v4(pattern),)
    return (_exact(pattern),)


def contains(rows: tuple[Address, ...], address: bytes) -> bool:
    """Whether a packed address (4 or 16 bytes) is one of them."""
    family = 4 if len(address) == V4_GROUPS else 6
    for row in rows:
        if row.family == 0:
            return True
        if row.family == family and address.startswith(row.prefix):
            at = len(row.prefix)
            if row.width == 0 or (
                    row.low <= int.from_bytes(address[at:at + row.width], "big") <= row.high):
                return True
    return False


@lru_cache(4096)
def packed(host: str) -> bytes:
    """
    The bytes of a peer's address; one that is none has no bytes and is in no list. An IPv4 address
    in the form of IPv6 is one of IPv4.
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return b""
    mapped = address.ipv4_mapped if address.version == 6 else None
    return (mapped or address).packed


def _wrong(pattern: str) -> PatternError:
    return PatternError(
        f"{pattern[:80]!a} is no address pattern: expected an address, a list (a.b.c.d,a.b.c.e "
        "or a.b.c.{1,2}), a range (a.b.c.1-50, a.b.*.*) or *")


def _parts(text: str) -> list[str]:
    """Split at commas as Java does: empty ends do not count."""
    parts = text.split(",")
    while parts and not parts[-1]:
        parts.pop()
    if not parts:
        raise _wrong(text)
    return parts


def _exact(text: str) -> Address:
    if ":" not in text:
        if _V4.fullmatch(text) is None or any(int(part) > V4_MAX for part in text.split(".")):
            raise _wrong(text)
        return Address(4, bytes(int(part) for part in text.split(".")), 0, 0, 0)
    try:
        if "%" in text:
            raise ValueError("a zone is not part of an address")
        return Address(6, ipaddress.IPv6Address(text).packed, 0, 0, 0)
    except ValueError:
        raise _wrong(text) from None


def _bounds(text: str, pattern: str, base: int, number_max: int) -> tuple[int, int]:
    """`*` or `low-high`; what stands behind a second hyphen does not count."""
    if text == "*":
        return 0, number_max
    ends = text.split("-")
    try:
        low, high = int(ends[0], base), int(ends[1], base)
    except (ValueError, IndexError):
        raise _wrong(pattern) from None
    if not 0 <= low <= high <= number_max:
        raise _wrong(pattern)
    return low, high


def _range_v4(pattern: str) -> Address:
    """The first range decides; parts behind it are not looked at."""
    groups = pattern.split(".")
    at = next(i for i, group in enumerate(groups) if "*" in group or "-" in group)
    if len(groups) != V4_GROUPS or at == 0:
        raise _wrong(pattern)
    prefix = []
    for group in groups[:at]:
        if re.fullmatch("0|[1-9][0-9]{0,2}", group) is None or int(group) > V4_MAX:
            raise _wrong(pattern)
        prefix.append(int(group))
    return Address(4, bytes(prefix), 1, *_bounds(groups[at], pattern, 10, V4_MAX))


def _range_v6(pattern: str) -> Address:
    """The same, in one of the last two groups; `::` stands for what is missing."""
    groups = pattern.split(":")
    if pattern.count("::") > 1 or (pattern.startswith(":") and not pattern.startswith("::")):
        raise _wrong(pattern)
    if "::" in pattern:
        before, _, after = pattern.partition("::")
        left = before.split(":") if before else []
        right = after.split(":")
        groups = [*left, *["0"] * (V6_GROUPS - len(left) - len(right)), *right]
    if len(groups) != V6_GROUPS:
        raise _wrong(pattern)
    at = next(i for i, group in enumerate(groups) if "*" in group or "-" in group)
    if at < V6_GROUPS - 2 or any(_HEX.fullmatch(group) is None for group in groups[:at]):
        raise _wrong(pattern)
    prefix = b"".join(int(group, 16).to_bytes(2, "big") for group in groups[:at])
    return Address(6, prefix, 2, *_bounds(groups[at], pattern, 16, V6_MAX))
