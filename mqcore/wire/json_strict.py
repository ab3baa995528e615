"""
Strict JSON, but for bare integer keys (remoting.md 5.1): at once, or a long text part by part.

`mqcore.wire.fastjson` reads what else there is, and is what others use.
"""
from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

import msgspec

from mqcore.wire.bare_keys import quoted
from mqcore.wire.json_cut import CUT_CLOSES, CUT_NOWHERE, CUT_OPENS, cut, past_space

DEPTH_MAX: Final = 64                   # containers in containers
WHOLE_SIZE_MAX: Final = 64 << 10        # bytes of a text that is read in one go
SCALAR_SIZE_MAX: Final = 1 << 20        # bytes of one string or number in a longer one ...
MEMBERS_MAX: Final = 1 << 18            # ... and members of one object: what has no pause
_PART_SIZE: Final = 32 << 10            # bytes that are read between two pauses
_ITEMS_A_TURN: Final = 4_000            # items of containers that are let go between two

_DECODER = msgspec.json.Decoder()
_MARK = 0x7F                            # before the digits of a bare key: strings begin otherwise
_MARKED = "\x7f"


class JsonError(ValueError):
    """The text is not JSON in any form that RocketMQ peers write, or it exceeds a limit."""


class OtherForm(JsonError):
    """A text is not strict JSON, nor such with bare integer keys."""


def read(raw: bytes, depth: int) -> Any:
    """
    A text that is strict but for bare integer keys, `depth` containers deep. Raises OtherForm.
    """
    try:
        return _DECODER.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        _raise_if_cut(raw, error)
    if b"\x7f" in raw or b"\\u007" in raw:
        raise OtherForm("a mark of ours in the text")
    try:
        value = _DECODER.decode(quoted(raw, _MARK))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        _raise_if_cut(raw, error)
        raise OtherForm(str(error)) from error
    return _bare(value, depth)


def read_in_parts(
    raw: bytes, count_max: int, scalar_size_max: int = SCALAR_SIZE_MAX,
) -> Generator[None, None, Any]:
    """A long text, with pauses. Raises OtherForm."""
    yield
    parts = _Parts(raw, count_max, scalar_size_max)
    try:
        return (yield from parts.document())
    except JsonError:
        yield from dismantled(parts.value)
        raise


def dismantled(value: Any) -> Generator[None, None, None]:
    """Empty a value that has been read, and all containers in it, with pauses."""
    left = [value]
    count = 0
    while left:
        top = left[-1]
        if not top or not isinstance(top, dict | list):
            left.pop()
            continue
        item = top.popitem()[1] if isinstance(top, dict) else top.pop()
        if item and isinstance(item, dict | list):
            left.append(item)
        count += 1
        if count % _ITEMS_A_TURN == 0:
            yield


def _raise_if_cut(raw: bytes, error: Exception) -> None:
    """A JSON text without its end is none in a relaxed form either: seconds are saved for MiB."""
    if str(error) == "Input data was truncated" and not _has_end(raw):
        raise JsonError(f"the text ends too early, after {len(raw)} bytes") from error


def _has_end(raw: bytes) -> bool:
    return raw[-WHOLE_SIZE_MAX:].rstrip()[-1:] in (b"}", b"]", b"")


def _bare(value: Any, depth: int) -> Any:
    """The value with its marked keys as int again."""
    if depth > DEPTH_MAX:
        raise JsonError(f"containers nested deeper than {DEPTH_MAX}")
    if isinstance(value, dict):
        return {
            int(key[1:]) if key[:1] == _MARKED else key:
            _bare(item, depth + 1) if isinstance(item, dict | list) else item
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_bare(item, depth + 1) if isinstance(item, dict | list) else item
                for item in value]
    return value


class _Parts:
    """
    Reads a long text, strict but for bare integer keys: members of its containers by the dozen. A
    container that is long itself is opened, the others are read as they are.
    """

    def __init__(self, raw: bytes, count_max: int, scalar_size_max: int) -> None:
        self._scalar_size_max = scalar_size_max
        self._raw = raw
        self._view = memoryview(raw)
        self._count_left = self._count_max = count_max
        self._open: list[dict[Any, Any] | list[Any]] = []      # the innermost is the last
        self.value: Any = None         # as far as it is read

    def document(self) -> Generator[None, None, Any]:
        """The value, with pauses. Raises OtherForm."""
        at = self._past_space(0)
        if self._raw[at:at + 1] not in (b"{", b"["):
            if len(self._raw) > self._scalar_size_max:
                raise JsonError(f"a string or a number of more than {self._scalar_size_max} bytes")
            return read(self._raw, 0)
        self.value = self._enter(at)
        at, first = at + 1, True
        while True:
            place, how, values = cut(
                self._raw, at, _PART_SIZE, self._scalar_size_max)
            self._take_count(values)
            if how == CUT_NOWHERE:
                if place < len(self._raw):
                    raise self._too_long()
                if not _has_end(self._raw):
                    raise JsonError(f"the text ends too early, after {len(self._raw)} bytes")
                raise OtherForm("the text ends in a container")
            if how == CUT_OPENS:
                self._attach(self._view[at:place], place)
            else:
                self._add(self._view[at:place], may_be_none=first and how == CUT_CLOSES)
            at, first = place + 1, how == CUT_OPENS
            yield
            if how == CUT_CLOSES:
                at = self._leave(place)
                if not self._open:
                    return self.value

    def _past_space(self, at: int) -> int:
        place = past_space(self._raw, at, self._scalar_size_max)
        if place - at == self._scalar_size_max:
            raise self._too_long()
        return place

    def _too_long(self) -> JsonError:
        return JsonError(
            f"a string, a number or blanks of more than {self._scalar_size_max} bytes")

    def _enter(self, place: int) -> dict[Any, Any] | list[Any]:
        if len(self._open) > DEPTH_MAX:
            raise JsonError(f"containers nested deeper than {DEPTH_MAX}")
        self._take_count(1)
        self._open.append({} if self._raw[place:place + 1] == b"{" else [])
        return self._open[-1]

    def _attach(self, before: memoryview, place: int) -> None:
        """Open the container that begins at `place`; before: what stands there of its member."""
        outer = self._open[-1]
        if isinstance(outer, dict):
            for key in read(b"".join((b"{", before, b"null}")), len(self._open)):
                outer[key] = self._enter(place)
        elif bytes(before).strip():
            raise OtherForm("something before a bracket")
        else:
            outer.append(self._enter(place))

    def _add(self, members: memoryview, *, may_be_none: bool) -> None:
        outer = self._open[-1]
        pair = b"{}" if isinstance(outer, dict) else b"[]"
        found = read(b"".join((pair[:1], members, pair[1:])), len(self._open) - 1)
        if not found and not may_be_none:
            raise OtherForm("a comma without a member")
        if isinstance(outer, dict):
            outer.update(found)
            if len(outer) > MEMBERS_MAX:
                raise JsonError(f"an object of more than {MEMBERS_MAX} members")
        else:
            outer += found

    def _leave(self, place: int) -> int:
        """End the container whose bracket is there, and those that end with it; the next member."""
        raw = self._raw
        while True:
            bracket = b"}" if isinstance(self._open.pop(), dict) else b"]"
            if raw[place:place + 1] != bracket:
                raise OtherForm("another bracket")
            place = self._past_space(place + 1)
            if not self._open:
                if place != len(raw):
                    raise OtherForm("something behind the end")
                return place
            if raw[place:place + 1] == b",":
                return place + 1

    def _take_count(self, values: int) -> None:
        self._count_left -= values
        if self._count_left < 0:
            raise JsonError(f"more than {self._count_max} values")
