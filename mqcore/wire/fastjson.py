"""The JSON that RocketMQ really writes: a relaxed reader and a writer for its two map forms.

Java's serializer leaves integer keys bare (`{0:"a"}`) and writes object keys as bare objects
(`{{"queueId":1}:3}`); neither is JSON (remoting.md 5.1). The reader takes these, single quotes,
unquoted names and trailing commas (5.2). Everything is bounded: size, depth and number of values.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

SIZE_MAX: Final = 16 * 1024 * 1024      # bytes of text; no frame is larger
DEPTH_MAX: Final = 64                   # containers in containers
COUNT_MAX: Final = 2_000_000            # values in one text: bounds memory, not only time

_DECODER = msgspec.json.Decoder()
_SPACE = re.compile(r"[ \t\r\n\f\b\ufeff]*")
_NUMBER = re.compile(r"-?(?:[0-9]{1,400})(\.[0-9]{1,400})?([eE][+-]?[0-9]{1,4})?")
_NUMBER_STARTS = "-0123456789"
_NAME = re.compile(r"[A-Za-z_$\u0080-\uffff][\w$.\-]*")
_PLAIN = {'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")}
_SHORT = {
    "n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "/": "/", "\\": "\\",
    '"': '"', "'": "'", "0": "\0",
}
_WORDS = {"true": True, "false": False, "null": None, "undefined": None}


class JsonError(ValueError):
    """The text is not JSON in any form that RocketMQ peers write, or it exceeds a limit."""


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


def loads(text: bytes | bytearray | memoryview | str, *, count_max: int = COUNT_MAX) -> Any:
    """Read one JSON value, strict or in Java's relaxed forms (remoting.md 5.1, 5.2).

    `count_max` bounds the values. Bare integer keys become int, bare object keys ObjectKey.
    Lone surrogates become `?`, as in Java. Raises JsonError.
    """
    raw = text.encode("utf-8", "replace") if isinstance(text, str) else bytes(text)
    if len(raw) > SIZE_MAX:
        raise JsonError(f"text of {len(raw)} bytes, expected at most {SIZE_MAX}")
    # Separators bound the number of values, and counting them costs nothing beside parsing.
    if len(raw) > count_max and raw.count(b",") + raw.count(b"[") + raw.count(b"{") > count_max:
        raise JsonError(f"more than {count_max} values")
    try:
        return _DECODER.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Reader(raw.decode("utf-8", "replace"), count_max).document()


class _Reader:
    """A recursive reader over one text; `position` is the index of the next character."""

    def __init__(self, text: str, count_max: int) -> None:
        self._text = text
        self._position = 0
        self._count_left = count_max

    def document(self) -> Any:
        value = self._value(0)
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

    def _value(self, depth: int) -> Any:
        self._count_left -= 1
        if self._count_left < 0:
            raise JsonError("too many values")
        if depth > DEPTH_MAX:
            raise JsonError(f"containers nested deeper than {DEPTH_MAX}")
        first = self._peek()
        if first == "{":
            return self._object(depth + 1)
        if first == "[":
            return self._array(depth + 1)
        if first in ('"', "'") and first:
            return self._string(first)
        if first and first in _NUMBER_STARTS:
            return self._number()
        match = _NAME.match(self._text, self._position)
        if match is not None and match.group() in _WORDS:
            self._position = match.end()
            return _WORDS[match.group()]
        raise self._error("a value")

    def _array(self, depth: int) -> list[Any]:
        self._position += 1
        items: list[Any] = []
        while True:
            first = self._peek()
            if first == "]":
                self._position += 1
                return items
            items.append(self._value(depth))
            self._separator("]")

    def _object(self, depth: int) -> dict[Any, Any]:
        self._position += 1
        members: dict[Any, Any] = {}
        while True:
            if self._peek() == "}":
                self._position += 1
                return members
            key = self._key(depth)
            if self._peek() != ":":
                raise self._error("':'")
            self._position += 1
            members[key] = self._value(depth)
            self._separator("}")

    def _separator(self, end: str) -> None:
        """Step over the comma after a member; a comma before `end` is tolerated."""
        following = self._peek()
        if following == ",":
            self._position += 1
        elif following != end:
            raise self._error(f"',' or {end!r}")

    def _key(self, depth: int) -> Any:
        first = self._peek()
        if first in ('"', "'") and first:
            return self._string(first)
        if first == "{":
            if depth >= DEPTH_MAX:
                raise JsonError(f"containers nested deeper than {DEPTH_MAX}")
            return ObjectKey.from_dict(self._object(depth + 1))
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
        if isinstance(key, str):
            put(quoted(key))
        elif isinstance(key, int) and not isinstance(key, bool):
            put(f'"{int(key)}"' if strict else str(int(key)))
        elif isinstance(key, ObjectKey) and not strict:
            _write_object(key.as_dict(), put, quoted, strict, depth + 1)
        else:
            raise TypeError(f"key of type {type(key).__name__} has no JSON form here")
        put(":")
        _write(members[key], put, quoted, strict, depth + 1)
        separator = ","
    put("{}" if separator == "{" else "}")


def _key_order(key: Any) -> tuple[str, Any]:
    return (type(key).__name__, tuple(map(str, key)) if isinstance(key, ObjectKey) else key)
