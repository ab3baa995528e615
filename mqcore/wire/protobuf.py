"""
Protocol buffers (proto3) by tables: a message is a dict, its shape a `Shape`.

It is for the calls that are made now and then; sends and receives have native code
(mqcore/net/grpc/protobuf.pxd).
"""
from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

VARINT, FIXED_64, BYTES, FIXED_32 = 0, 1, 2, 5
VARINT_BITS_MAX = 70
DEPTH_MAX = 32                          # of messages inside others
NUMBERS = frozenset(("i32", "i64", "bool", "enum"))
MASK_64 = (1 << 64) - 1
FIELD = re.compile(r"(\d+) (\w+)([?*]?) ([\w<>]+)")
FLOAT = struct.Struct("<f")


class ProtobufError(ValueError):
    """Bytes are no message of the shape that was expected; the text says why."""


@dataclass(frozen=True)
class Field:
    """
    number, name  as the service declares them
    kind          i32, i64, bool, enum, float, str, bytes, map (of texts), or a message's name
    mark          "?": it may be absent, which is not the same as zero or empty; "*": a list
    """

    number: int
    name: str
    kind: str
    mark: str


class Shapes:
    """
    Declarations of messages: `Name: 1 field kind, 2 other? kind, ...`; an indented line continues
    the one before it.
    """

    def __init__(self, text: str) -> None:
        self._by_number: dict[str, dict[int, Field]] = {}
        self._by_name: dict[str, dict[str, Field]] = {}
        for line in re.sub(r"\n +", " ", text.strip()).splitlines():
            name, _, rest = line.partition(":")
            fields = [Field(int(number), word, kind, mark)
                      for number, word, mark, kind in FIELD.findall(rest)]
            self._by_number[name.strip()] = {field.number: field for field in fields}
            self._by_name[name.strip()] = {field.name: field for field in fields}

    @property
    def names(self) -> frozenset[str]:
        """Of the messages that are declared."""
        return frozenset(self._by_name)

    def decode(self, name: str, data: bytes, depth: int = 0) -> dict[str, Any]:
        """
        The message; fields that are absent are absent, unknown ones are passed over. Raises
        ProtobufError.
        """
        if depth > DEPTH_MAX:
            raise ProtobufError(f"{name}: more than {DEPTH_MAX} messages inside each other")
        result: dict[str, Any] = {}
        fields = self._by_number[name]
        for number, kind, value in _fields(data):
            field = fields.get(number)
            if field is None:
                continue
            if field.kind == "map":
                key, text = self._entry(value, kind, field)
                result.setdefault(field.name, {})[key] = text
            elif field.mark == "*":
                if kind == BYTES and field.kind in NUMBERS:              # packed
                    assert isinstance(value, bytes)
                    result.setdefault(field.name, []).extend(
                        _number(field, one) for one in _packed(value))
                else:
                    result.setdefault(field.name, []).append(
                        self._value(field, kind, value, depth))
            else:
                result[field.name] = self._value(field, kind, value, depth)
        return result

    def _value(self, field: Field, kind: int, value: int | bytes, depth: int) -> Any:
        if field.kind in NUMBERS:
            if kind != VARINT:
                raise ProtobufError(f"{field.name}: expected a number")
            return _number(field, value)
        if field.kind == "float":
            if kind != FIXED_32 or not isinstance(value, bytes):
                raise ProtobufError(f"{field.name}: expected a float")
            return FLOAT.unpack(value)[0]
        if kind != BYTES or not isinstance(value, bytes):
            raise ProtobufError(f"{field.name}: expected bytes")
        if field.kind == "bytes":
            return value
        if field.kind == "str":
            return _text(field, value)
        return self.decode(field.kind, value, depth + 1)

    def _entry(self, value: int | bytes, kind: int, field: Field) -> tuple[str, str]:
        if kind != BYTES or not isinstance(value, bytes):
            raise ProtobufError(f"{field.name}: expected an entry of a map")
        pair = {1: b"", 2: b""}
        for number, _, part in _fields(value):
            if number in pair and isinstance(part, bytes):
                pair[number] = part
        return _text(field, pair[1]), _text(field, pair[2])

    def encode(self, name: str, message: Mapping[str, Any]) -> bytes:
        """The bytes of a message, without members that are None. Raises KeyError, TypeError."""
        parts: list[bytes] = []
        fields = self._by_name[name]
        for word, value in message.items():
            field = fields[word]
            if value is None:
                continue
            if field.kind == "map":
                for key, text in value.items():
                    parts.append(_bytes(field.number, _bytes(1, key.encode())
                                        + _bytes(2, text.encode())))
            elif field.mark == "*":
                parts += [self._encoded(field, one) for one in value]
            else:
                parts.append(self._encoded(field, value))
        return b"".join(parts)

    def _encoded(self, field: Field, value: Any) -> bytes:
        if field.kind in NUMBERS:
            return _varint(field.number << 3 | VARINT) + _varint(int(value) & MASK_64)
        if field.kind == "float":
            return _varint(field.number << 3 | FIXED_32) + FLOAT.pack(value)
        if field.kind == "bytes":
            return _bytes(field.number, value)
        if field.kind == "str":
            return _bytes(field.number, value.encode())
        return _bytes(field.number, self.encode(field.kind, value))


def _number(field: Field, value: int | bytes) -> int | bool:
    assert isinstance(value, int)
    if field.kind == "bool":
        return bool(value)
    bits = 64 if field.kind == "i64" else 32
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _text(field: Field, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise ProtobufError(f"{field.name}: expected UTF-8") from error


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    result = shift = 0
    while shift < VARINT_BITS_MAX:
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & MASK_64, at
        shift += 7
    raise ProtobufError("a number is not whole, or too long")


def _packed(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = _read_varint(data, at)
        yield value


def _fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """(number, wire type, value) of each field."""
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        number, kind = key >> 3, key & 7
        if not number:
            raise ProtobufError("a field has no number")
        if kind == VARINT:
            value, at = _read_varint(data, at)
            yield number, kind, value
            continue
        if kind == BYTES:
            size, at = _read_varint(data, at)
        elif kind in (FIXED_64, FIXED_32):
            size = 8 if kind == FIXED_64 else 4
        else:
            raise ProtobufError(f"field {number} has the unknown wire type {kind}")
        if size > len(data) - at:
            raise ProtobufError(f"field {number} is not whole")
        yield number, kind, data[at:at + size]
        at += size


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _bytes(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | BYTES) + _varint(len(value)) + value
