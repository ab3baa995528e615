"""Identifiers: offset message ids, unique keys and client ids (remoting.md 6.6, client.md 2.13)."""
from __future__ import annotations

import itertools
import os
import re
import secrets
import socket
import struct
import threading
import time
from dataclasses import dataclass
from datetime import datetime
from ipaddress import ip_address

_DELTA_MS_MAX = 0x7FFF_FFFF
_CLOCK_STEP_BACK_MS = 1_000_000     # a small step of the clock back over the month's start
_HEX = re.compile(r"[0-9A-Fa-f]*")


def offset_message_id(host: str, port: int, physical_offset: int) -> str:
    """The id that a broker gives: upper-case hex of address, port and commit log offset.

    Raises ValueError when `host` is not a numeric IPv4 or IPv6 address.
    """
    tail = struct.pack(">iq", port, physical_offset)
    return (ip_address(host).packed + tail).hex().upper()


def parse_offset_message_id(message_id: str) -> tuple[str, int, int]:
    """Host, port and commit log offset of an offset message id.

    Raises ValueError, naming the id, unless it is 32 or 56 hex digits with a real port.
    """
    if len(message_id) not in (32, 56) or _HEX.fullmatch(message_id) is None:
        raise ValueError(f"message id {message_id[:64]!r}: expected 32 or 56 hex digits")
    raw = bytes.fromhex(message_id)
    port, physical_offset = struct.unpack(">iq", raw[-12:])
    if not 0 <= port <= 65_535 or physical_offset < 0:
        raise ValueError(f"message id {message_id!r}: holds no port and offset")
    return str(ip_address(raw[:-12])), port, physical_offset


def local_address() -> str:
    """The address this machine would use to reach others; 127.0.0.1 when it has no route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))         # sends nothing: only asks for the route
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def client_id(host: str | None = None, instance: str | None = None, unit: str = "") -> str:
    """A client id, `host@instance[@unit]`; by default an instance that nobody else has."""
    parts = [host or local_address(), instance or f"{os.getpid()}#{time.monotonic_ns()}"]
    return "@".join([*parts, unit] if unit else parts)


def month_start_ms(now_ms: int) -> int:
    """The first instant of the local month that `now_ms` (epoch ms) lies in, as epoch ms."""
    now = datetime.fromtimestamp(now_ms / 1000)
    start = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return int(start.timestamp() * 1000)


class UniqueKeys:
    """Makes the UNIQ_KEY of each message: address, process, 4 random bytes, time, counter.

    The random bytes stand where Java has the hash of a class loader: containers often run as
    process 1 behind equal addresses. A fork gets a prefix of its own.
    """

    def __init__(self, address: str | None = None) -> None:
        self._address = ip_address(address or local_address())
        self._lock = threading.Lock()
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._counter = itertools.count()
        process = struct.pack(">H", self._pid & 0xFFFF)
        self._prefix = self._address.packed + process + secrets.token_bytes(4)
        self._month_ms = 0
        self._month_end_ms = 0

    def next(self, now_ms: int) -> str:
        """A fresh key, 32 (IPv4) or 56 (IPv6) upper-case hex digits; `now_ms` is epoch ms."""
        with self._lock:
            if os.getpid() != self._pid:
                self._start()
            if now_ms >= self._month_end_ms:
                self._month_ms = month_start_ms(now_ms)
                self._month_end_ms = month_start_ms(self._month_ms + 32 * 86_400_000)
            delta_ms = now_ms - self._month_ms
            if -_CLOCK_STEP_BACK_MS < delta_ms < 0:
                delta_ms = 0
            tail = struct.pack(">IH", delta_ms & _DELTA_MS_MAX, next(self._counter) & 0xFFFF)
            return (self._prefix + tail).hex().upper()


@dataclass(slots=True, frozen=True)
class UniqueKeyParts:
    """What a UNIQ_KEY says about its origin."""

    host: str
    pid: int
    created_ms: int


def parse_unique_key(key: str, now_ms: int) -> UniqueKeyParts:
    """Read a UNIQ_KEY back; its time is right if it is less than about a month old.

    Raises ValueError, naming the key, unless it is 32 or 56 hex digits.
    """
    if len(key) not in (32, 56) or _HEX.fullmatch(key) is None:
        raise ValueError(f"unique key {key[:64]!r}: expected 32 or 56 hex digits")
    raw = bytes.fromhex(key)
    host, tail = raw[:-12], raw[-12:]
    pid, _, delta_ms, _ = struct.unpack(">H4siH", tail)
    month_ms = month_start_ms(now_ms)
    if month_ms + delta_ms >= now_ms:
        month_ms = month_start_ms(month_ms - 1)
    return UniqueKeyParts(str(ip_address(host)), pid, month_ms + delta_ms)
