"""Protobuf without its schema: the numbers and types of fields, as the wire has them."""
from __future__ import annotations

import struct
from collections.abc import Iterator

FIELDS_MAX = 5_000
DEPTH_MAX = 8
VARINT_BYTES_MAX = 10
FIELD_NUMBER_MAX = (1 << 29) - 1
BYTES_SHOWN = 64


class NotProtobufError(ValueError):
    """The bytes are no message of protobuf."""


def lines(body: bytes) -> str:
    """A line for each field, nested ones below. Raises NotProtobufError."""
    if not body:
        raise NotProtobufError("expected at least one field")
    budget = [FIELDS_MAX]
    return "\n".join(_message(body, 0, budget))


def _message(body: bytes, depth: int, budget: list[int]) -> list[str]:
    found = []
    at = 0
    while at < len(body):
        budget[0] -= 1
        if budget[0] < 0:
            raise NotProtobufError(f"more than {FIELDS_MAX} fields")
        key, at = _varint(body, at)
        number, kind = key >> 3, key & 7
        if not 0 < number <= FIELD_NUMBER_MAX:
            raise NotProtobufError(f"field number {number}")
        shown, at = _field(body, at, kind, depth, budget)
        head = f"{'  ' * depth}{number}: "
        first, *rest = shown
        found += [head + first, *rest]
    return found


def _field(
    body: bytes, at: int, kind: int, depth: int, budget: list[int],
) -> tuple[list[str], int]:
    if kind == 0:
        value, at = _varint(body, at)
        return [f"{value} (varint)"], at
    if kind in (1, 5):
        size = 8 if kind == 1 else 4
        piece = _taken(body, at, size)
        whole, real = struct.unpack("<q" if size == 8 else "<i", piece)[0], struct.unpack(
            "<d" if size == 8 else "<f", piece)[0]
        return [f"{whole} or {real!r} ({size * 8} bits)"], at + size
    if kind == 2:
        size, at = _varint(body, at)
        piece = _taken(body, at, size)
        return _bytes(piece, depth, budget), at + size
    raise NotProtobufError(f"wire type {kind}")


def _bytes(piece: bytes, depth: int, budget: list[int]) -> list[str]:
    """Text, else a message, else bytes."""
    try:
        text = piece.decode()
        if text.isprintable():
            return [f'"{text}"']
    except UnicodeDecodeError:
        pass
    if depth < DEPTH_MAX and piece:
        before = budget[0]
        try:
            return ["{", *_message(piece, depth + 1, budget), f"{'  ' * depth}}}"]
        except NotProtobufError:
            if before and budget[0] < 0:
                raise
    more = "..." if len(piece) > BYTES_SHOWN else ""
    return [f"<{len(piece)} bytes: {piece[:BYTES_SHOWN].hex()}{more}>"]


def _taken(body: bytes, at: int, size: int) -> bytes:
    piece = body[at:at + size]
    if len(piece) < size:
        raise NotProtobufError(f"a field of {size} bytes does not fit")
    return piece


def _varint(body: bytes, at: int) -> tuple[int, int]:
    value = 0
    for count, byte in enumerate(_limited(body, at)):
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value, at + count + 1
    raise NotProtobufError("a number without an end")


def _limited(body: bytes, at: int) -> Iterator[int]:
    yield from body[at:at + VARINT_BYTES_MAX]
