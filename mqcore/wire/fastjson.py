"""The JSON that RocketMQ really writes: a relaxed reader and a writer for its two map forms.

Java's serializer leaves integer keys bare (`{0:"a"}`) and writes object keys as bare objects
(`{{"queueId":1}:3}`); neither is JSON (remoting.md 5.1). The reader takes these, single quotes,
unquoted names and trailing commas (remoting.md 5.2). Everything is bounded: size, depth and
number of values.
"""
from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Generator, Iterable
from typing import Any, Final

from mqcore.turns import finished
from mqcore.wire import json_strict
from mqcore.wire.json_strict import (
    DEPTH_MAX,
    SCALAR_SIZE_MAX,
    WHOLE_SIZE_MAX,
    JsonError,
    OtherForm,
    dismantled,
)

__all__ = [
    "COUNT_MAX", "DEPTH_MAX", "SCALAR_SIZE_MAX", "SIZE_MAX", "WHOLE_SIZE_MAX", "JsonError",
    "ObjectKey", "Parts",
    "dismantled", "dumps", "dumps_in_turns", "loads", "loads_in_turns", "parts_in_turns", "quote",
    "quote_ascii",
]

SIZE_MAX: Final = 16 * 1024 * 1024      # bytes of text that a peer sends; no frame is larger
COUNT_MAX: Final = 2_000_000            # values in one text: bounds memory, not only time
PART_SIZE: Final = 64 << 10             # bytes of a part of a long text
_PARTS_A_TURN: Final = 2_000            # pieces of text that are written between two pauses ...
_VALUES_A_TURN: Final = 200             # values that are read
_KEYS_A_TURN: Final = 500               # ... and keys that are sorted

_SPACE = re.compile(r"[ \t\r\n\f\b\ufeff]*")
_NUMBER = re.compile(r"-?(?:[0-9]{1,400})(\.[0-9]{1,400})?([eE][+-]?[0-9]{1,4})?")
_NUMBER_STARTS = "-0123456789"
# begins with a letter, _, $ or \u0080 to \uffff; the set of all others compiles in a twentieth of
# the time
_NAME = re.compile(r"[^\x00-#%-@\[-^`{-\x7f\U00010000-\U0010ffff][\w$.\-]*")
_PLAIN = {'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")}
_SHORT = {
    "n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "/": "/", "\\": "\\",
    '"': '"', "'": "'", "0": "\0",
}
_WORDS = {"true": True, "false": False, "null": None, "undefined": None}


class ObjectKey(tuple[tuple[str, Any], ...]):
    """A JSON object in the place of a key, such as a message queue; hashable, fields sorted."""

    __slots__ = ()

    @classmethod
    def of(cls, **fields: Any) -> ObjectKey:
        """Make a key from its fields (strings, numbers, booleans)."""
        return cls(sorted(fields.items()))

    @classmethod
    def from_dict(cls, fields: dict[Any, Any]) -> ObjectKey:
        """Make a key from a decoded object; raises JsonError when a value is not a scalar."""
        for name, value in fields.items():
            if isinstance(value, dict | list):
                raise JsonError(f"object key: field {name!r} is a container, expected a scalar")
        return cls(sorted((str(name), value) for name, value in fields.items()))

    def as_dict(self) -> dict[str, Any]:
        return dict(self)


# -- reading --------------------------------------------------------------------------------------


def loads(
    text: bytes | bytearray | memoryview | str, *, count_max: int = COUNT_MAX,
    size_max: int = SIZE_MAX, relaxed_size_max: int | None = None,
) -> Any:
    """Read one JSON value, strict or in Java's relaxed forms (remoting.md 5.1, 5.2).

    `count_max` bounds the values, `size_max` the bytes; `relaxed_size_max` those of a text in other
    forms than bare integer keys, which takes a hundred times as long. Bare integer keys become int,
    bare object keys ObjectKey. Lone surrogates become `?`, as in Java. Raises JsonError.
    """
    raw = _sized(text, size_max)
    try:
        return _whole(raw, count_max)
    except OtherForm:
        return finished(_relaxed(raw, count_max, relaxed_size_max))


def loads_in_turns(
    text: bytes | bytearray | memoryview | str, *, count_max: int = COUNT_MAX,
    size_max: int = SIZE_MAX, relaxed_size_max: int | None = None,
    scalar_size_max: int = SCALAR_SIZE_MAX,
) -> Generator[None, None, Any]:
    """`loads`, with a pause every millisecond or so.

    Where that takes several, a text may not have longer strings than `scalar_size_max`, nor objects
    of more members than MEMBERS_MAX: no table has such, and they are read in one go.
    What is no longer needed of a large value is given to `dismantled`: to free it takes as long.
    """
    raw = _sized(text, size_max)
    try:
        if len(raw) <= WHOLE_SIZE_MAX:
            return _whole(raw, count_max)
        return (yield from json_strict.read_in_parts(raw, count_max, scalar_size_max))
    except OtherForm:
        return (yield from _relaxed(raw, count_max, relaxed_size_max))


def _sized(text: bytes | bytearray | memoryview | str, size_max: int) -> bytes:
    raw = text.encode("utf-8", "replace") if isinstance(text, str) else bytes(text)
    if len(raw) > size_max:
        raise JsonError(f"text of {len(raw)} bytes, expected at most {size_max}")
    return raw


def _whole(raw: bytes, count_max: int) -> Any:
    """A text that is read in one go. Raises OtherForm."""
    # Separators bound the number of values, and counting them costs nothing beside parsing.
    if len(raw) > count_max and raw.count(b",") + raw.count(b"[") + raw.count(b"{") > count_max:
        raise JsonError(f"more than {count_max} values")
    return json_strict.read(raw, 0)


def _relaxed(
    raw: bytes, count_max: int, size_max: int | None
) -> Generator[None, None, Any]:
    if size_max is not None and len(raw) > size_max:
        raise JsonError(f"{len(raw)} bytes that are not strict JSON: expected at most {size_max}")
    return (yield from _Reader(raw.decode("utf-8", "replace"), count_max).document())


class _Reader:
    """A recursive reader over one text; `position` is the index of the next character."""

    def __init__(self, text: str, count_max: int) -> None:
        self._text = text
        self._position = 0
        self._count_left = count_max

    def document(self) -> Generator[None, None, Any]:
        value = yield from self._value(0)
        self._skip_space()
        if self._position != len(self._text):
            raise self._error("the end of the text")
        return value

    def _error(self, expected: str) -> JsonError:
        found = self._text[self._position:self._position + 12]
        shown = repr(found) if found else "the end"
        return JsonError(f"at character {self._position}: expected {expected}, found {shown}")

    def _skip_space(self) -> None:
        match = _SPACE.match(self._text, self._position)
        if match is not None:
            self._position = match.end()

    def _peek(self) -> str:
        self._skip_space()
        return self._text[self._position:self._position + 1]

    def _value(self, depth: int) -> Generator[None, None, Any]:
        self._count_left -= 1
        if self._count_left % _VALUES_A_TURN == 0:
            yield
        if self._count_left < 0:
            raise JsonError("too many values")
        if depth > DEPTH_MAX:
            raise JsonError(f"containers nested deeper than {DEPTH_MAX}")
        first = self._peek()
        if first == "{":
            return (yield from self._object(depth + 1))
        if first == "[":
            return (yield from self._array(depth + 1))
        if first in ('"', "'") and first:
            return self._string(first)
        if first and first in _NUMBER_STARTS:
            return self._number()
        match = _NAME.match(self._text, self._position)
        if match is not None and match.group() in _WORDS:
            self._position = match.end()
            return _WORDS[match.group()]
        raise self._error("a value")

    def _array(self, depth: int) -> Generator[None, None, list[Any]]:
        self._position += 1
        items: list[Any] = []
        while True:
            first = self._peek()
            if first == "]":
                self._position += 1
                return items
            items.append((yield from self._value(depth)))
            self._separator("]")

    def _object(self, depth: int) -> Generator[None, None, dict[Any, Any]]:
        self._position += 1
        members: dict[Any, Any] = {}
        while True:
            if self._peek() == "}":
                self._position += 1
                return members
            key = yield from self._key(depth)
            if self._peek() != ":":
                raise self._error("':'")
            self._position += 1
            members[key] = yield from self._value(depth)
            self._separator("}")

    def _separator(self, end: str) -> None:
        """Step over the comma after a member; a comma before `end` is tolerated."""
        following = self._peek()
        if following == ",":
            self._position += 1
        elif following != end:
            raise self._error(f"',' or {end!r}")

    def _key(self, depth: int) -> Generator[None, None, Any]:
        first = self._peek()
        if first in ('"', "'") and first:
            return self._string(first)
        if first == "{":
            if depth >= DEPTH_MAX:
                raise JsonError(f"containers nested deeper than {DEPTH_MAX}")
            return ObjectKey.from_dict((yield from self._object(depth + 1)))
        if first and first in _NUMBER_STARTS:
            return self._number()
        match = _NAME.match(self._text, self._position)
        if match is None:
            raise self._error("a key")
        self._position = match.end()
        return match.group()

    def _number(self) -> int | float:
        match = _NUMBER.match(self._text, self._position)
        if match is None:
            raise self._error("a number")
        self._position = match.end()
        if match.group(1) or match.group(2):
            value = float(match.group())
            if value in (float("inf"), float("-inf")):
                raise JsonError(f"number {match.group()[:24]} is out of range")
            return value
        return int(match.group())

    def _string(self, quote: str) -> str:
        self._position += 1
        parts: list[str] = []
        while True:
            match = _PLAIN[quote].match(self._text, self._position)
            if match is None or match.end() >= len(self._text):
                raise JsonError("a string does not end")
            parts.append(match.group())
            self._position = match.end() + 1
            if self._text[match.end()] == quote:
                return _joined(parts)
            parts.append(self._escape())

    def _escape(self) -> str:
        letter = self._text[self._position:self._position + 1]
        self._position += 1
        if letter in ("u", "x"):
            width = 4 if letter == "u" else 2
            digits = self._text[self._position:self._position + width]
            if re.fullmatch(r"[0-9A-Fa-f]+", digits) is None or len(digits) != width:
                raise self._error(f"{width} hex digits")
            self._position += width
            return chr(int(digits, 16))
        if letter not in _SHORT or not letter:
            raise self._error("an escape letter")
        return _SHORT[letter]


def _joined(parts: list[str]) -> str:
    """Join pieces and surrogate pairs; a surrogate without its partner becomes `?`."""
    text = "".join(parts)
    if any("\ud800" <= character <= "\udfff" for character in text):
        text = text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "replace")
        text = text.replace("\ufffd", "?")
    return text


# -- writing --------------------------------------------------------------------------------------

_NAMED_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\b": "\\b",
                  "\f": "\\f"}
_TO_ESCAPE = re.compile(r'[\x00-\x1f"\\\ud800-\udfff]')
_TO_ESCAPE_ASCII = re.compile(r'[^ !#-\[\]-~]')


def _escaped(match: re.Match[str]) -> str:
    character = match.group()
    named = _NAMED_ESCAPES.get(character)
    if named is not None:
        return named
    code = ord(character)
    if 0xD800 <= code <= 0xDFFF:
        return "?"
    if code < 0x10000:
        return f"\\u{code:04X}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04X}\\u{0xDC00 + (code & 0x3FF):04X}"


def quote(text: str) -> str:
    """A JSON string as Java writes it: raw UTF-8, control characters escaped (remoting.md 5.1)."""
    return '"' + _TO_ESCAPE.sub(_escaped, text) + '"'


def quote_ascii(text: str) -> str:
    """A JSON string with everything outside ASCII as upper-case `\\uXXXX` (remoting.md 4.7.2)."""
    return '"' + _TO_ESCAPE_ASCII.sub(_escaped, text) + '"'


def dumps(value: Any, *, strict: bool = False) -> bytes:
    """Write compact JSON with keys in alphabetical order and null members left out.

    Default: Java's style, with bare integer keys and bare object keys (remoting.md 5.1).
    `strict`: quoted integer keys and ASCII only; raises TypeError for an object key.
    """
    parts: list[str] = []
    _write(value, parts.append, quote_ascii if strict else quote, strict, 0)
    return "".join(parts).encode("utf-8")


def _write(
    value: Any, put: Callable[[str], None], quoted: Callable[[str], str], strict: bool, depth: int
) -> None:
    if depth > DEPTH_MAX:
        raise ValueError(f"containers nested deeper than {DEPTH_MAX}")
    if value is None:
        put("null")
    elif value is True or value is False:
        put("true" if value else "false")
    elif isinstance(value, str):
        put(quoted(value))
    elif isinstance(value, int):
        put(str(int(value)))
    elif isinstance(value, float):
        put(repr(value))
    elif isinstance(value, dict | ObjectKey):
        members = value if isinstance(value, dict) else value.as_dict()
        _write_object(members, put, quoted, strict, depth)
    elif isinstance(value, list | tuple | set | frozenset):
        _write_array(value, put, quoted, strict, depth)
    else:
        raise TypeError(f"{type(value).__name__} has no JSON form")


def dumps_in_turns(value: Any, *, strict: bool = False) -> Generator[None, None, bytes]:
    """`dumps`, with a pause every millisecond or so: for values of any size, and live ones.

    A value that has `as_json` is asked for its form when it is written. What a container lost while
    it is written is left out, what it gained may be. Raises JsonError beyond SIZE_MAX.
    """
    return b"".join((yield from parts_in_turns(value, strict=strict)))


def parts_in_turns(
    value: Any, *, strict: bool = False, built: bool = False,
) -> Generator[None, None, list[bytes]]:
    """The same in parts of some PART_SIZE bytes, since to join megabytes takes milliseconds.

    built: value is made for this text alone, of dicts and lists: it is let go in turns, too.
    """
    text = _Text(strict)
    yield from text.write(value, 0)
    if built:
        yield from dismantled(value)
    return text.done()


class Parts:
    """A long text in parts of about PART_SIZE bytes, or whatever was added at once."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._last: list[bytes] = []
        self._last_size = 0
        self._size = 0

    def add(self, text: bytes) -> None:
        """Raises JsonError beyond SIZE_MAX."""
        self._last.append(text)
        self._last_size += len(text)
        self._size += len(text)
        if self._last_size >= PART_SIZE:
            self._join()
        if self._size > SIZE_MAX:
            raise JsonError(f"a text of more than {SIZE_MAX} bytes")

    def done(self) -> list[bytes]:
        """None of them is empty."""
        self._join()
        return self._parts

    def _join(self) -> None:
        if self._last_size:
            self._parts.append(b"".join(self._last))
        self._last.clear()
        self._last_size = 0


class _Text:
    """A text that grows in turns."""

    def __init__(self, strict: bool) -> None:
        self._strict, self._quoted = strict, quote_ascii if strict else quote
        self._parts: list[str] = []
        self._done = Parts()

    def done(self) -> list[bytes]:
        self._gather()
        return self._done.done()

    def write(self, value: Any, depth: int) -> Generator[None, None, None]:
        form = getattr(value, "as_json", None)
        if form is not None:
            value = form()
        if isinstance(value, dict):
            yield from self._object(value, depth)
        elif isinstance(value, list | tuple) and not isinstance(value, ObjectKey):
            yield from self._array(value, depth)
        else:
            _write(value, self._parts.append, self._quoted, self._strict, depth)

    def _array(self, items: list[Any] | tuple[Any, ...],
               depth: int) -> Generator[None, None, None]:
        self._parts.append("[")
        for number, item in enumerate(items):
            if number:
                self._parts.append(",")
            yield from self.write(item, depth + 1)
            if len(self._parts) >= _PARTS_A_TURN:
                self._gather()
                yield
        self._parts.append("]")

    def _object(self, members: dict[Any, Any], depth: int) -> Generator[None, None, None]:
        first = True
        self._parts.append("{")
        for key in (yield from _in_order(list(members))):
            value = members.get(key)
            if value is None:
                continue
            if not first:
                self._parts.append(",")
            first = False
            _write_key(key, self._parts.append, self._quoted, self._strict, depth)
            self._parts.append(":")
            yield from self.write(value, depth + 1)
            if len(self._parts) >= _PARTS_A_TURN:
                self._gather()
                yield
        self._parts.append("}")

    def _gather(self) -> None:
        self._done.add("".join(self._parts).encode("utf-8"))
        self._parts.clear()


def _in_order(keys: list[Any]) -> Generator[None, None, Iterable[Any]]:
    """The keys sorted: in runs, which are merged while they are written."""
    if len(keys) <= _KEYS_A_TURN:
        return sorted(keys, key=_key_order)
    runs = []
    for start in range(0, len(keys), _KEYS_A_TURN):
        runs.append(sorted(keys[start:start + _KEYS_A_TURN], key=_key_order))
        yield
    return heapq.merge(*runs, key=_key_order)


def _write_array(
    items: Iterable[Any], put: Callable[[str], None], quoted: Callable[[str], str], strict: bool,
    depth: int,
) -> None:
    separator = "["
    for item in items:
        put(separator)
        _write(item, put, quoted, strict, depth + 1)
        separator = ","
    put("[]" if separator == "[" else "]")


def _write_object(
    members: dict[Any, Any], put: Callable[[str], None], quoted: Callable[[str], str],
    strict: bool, depth: int,
) -> None:
    separator = "{"
    for key in sorted(members, key=_key_order):
        if members[key] is None:
            continue
        put(separator)
        _write_key(key, put, quoted, strict, depth)
        put(":")
        _write(members[key], put, quoted, strict, depth + 1)
        separator = ","
    put("{}" if separator == "{" else "}")


def _write_key(
    key: Any, put: Callable[[str], None], quoted: Callable[[str], str], strict: bool, depth: int
) -> None:
    if isinstance(key, str):
        put(quoted(key))
    elif isinstance(key, int) and not isinstance(key, bool):
        put(f'"{int(key)}"' if strict else str(int(key)))
    elif isinstance(key, ObjectKey) and not strict:
        _write_object(key.as_dict(), put, quoted, strict, depth + 1)
    else:
        raise TypeError(f"key of type {type(key).__name__} has no JSON form here")


def _key_order(key: Any) -> tuple[str, Any]:
    return (type(key).__name__, tuple(map(str, key)) if isinstance(key, ObjectKey) else key)
