"""Frames and headers: one `Command` for both encodings, JSON and ROCKETMQ (remoting.md 1).

This is the Python side, for clients, the name server, the coordinator and tools; serving parses
the hot requests without Python objects. Both read the same bytes in the same way.
"""
from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Generator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from mqcore.turns import finished
from mqcore.wire import fastjson
from mqcore.wire.codes import (
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    FRAME_LENGTH_MAX,
    HEADER_WORD_SIZE,
    VERSION_4_9_8,
    LanguageCode,
)
from mqcore.wire.numbers import whole_number

Buffer = bytes | bytearray | memoryview
Ext = dict[str, str | None]

_HEADER_LENGTH_MASK: Final = 0x00FF_FFFF
HEADER_ENTRIES_MAX: Final = 5_000       # of ext
_HEADER_MEMBERS_MAX: Final = 500        # of a JSON header beside it
_HEADER_VALUES_MAX: Final = 6_000       # of all of a long one, lists and objects among them
_SHORT_SIZE: Final = 4 << 10            # bytes of a header that takes no pause in any form
_RELAXED_HEADER_MAX: Final = 64 << 10   # bytes of a header that is not strict JSON
_FIXED = struct.Struct(">hbhiii")       # code, language, version, opaque, flag, remark length
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_WORDS = struct.Struct(">ii")
_I32_MIN, _I32_MAX = -(2**31), 2**31 - 1
_I16_MIN, _I16_MAX = -(2**15), 2**15 - 1
_LANGUAGE_BY_NAME = {language.name: language for language in LanguageCode}
_LANGUAGE_BY_ORDINAL = {int(language): language for language in LanguageCode}
_LANGUAGE_UNKNOWN: Final = -1           # no language has it, so it decodes to None again
_opaques = itertools.count()


class FrameError(ValueError):
    """The bytes are no frame; the connection they came from has to be closed (remoting.md 1.7)."""


class Codec(IntEnum):
    """How the header is encoded: the top byte of the header word."""

    JSON = 0
    ROCKETMQ = 1


@dataclass(slots=True)
class Command:
    """One request or response.

    `language` is None when the peer named one that we do not know. `ext` is None when the frame
    had no extFields at all; a None value in it counts as absent.
    """

    code: int
    language: int | None = LanguageCode.JAVA
    version: int = VERSION_4_9_8
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    ext: Ext | None = None
    body: bytes = b""
    codec: Codec = Codec.JSON

    @property
    def is_response(self) -> bool:
        return bool(self.flag & FLAG_RESPONSE)

    @property
    def is_oneway(self) -> bool:
        return bool(self.flag & FLAG_ONEWAY)


def next_opaque() -> int:
    """A correlation id of this process, 0 to 2**31 - 1 (remoting.md 1.5)."""
    return next(_opaques) & _I32_MAX


def request(
    code: int, ext: Ext | None = None, body: bytes = b"", *, oneway: bool = False,
    codec: Codec = Codec.JSON,
) -> Command:
    """A request of this process with a fresh opaque."""
    return Command(
        code=code, opaque=next_opaque(), flag=FLAG_ONEWAY if oneway else 0, ext=ext, body=body,
        codec=codec,
    )


def response(
    to: Command, code: int, remark: str | None = None, ext: Ext | None = None, body: bytes = b"",
) -> Command:
    """The answer to the request `to`: same opaque, same codec, response flag set."""
    return Command(
        code=code, opaque=to.opaque, flag=FLAG_RESPONSE, remark=remark, ext=ext, body=body,
        codec=to.codec,
    )


# -- decoding -------------------------------------------------------------------------------------


def decode(frame: Buffer) -> Command:
    """Decode one frame given WITHOUT its four-byte length word.

    Raises FrameError for everything that remoting.md 1.7 answers with a closed connection.
    """
    view, kind, header_end = _parts(frame)
    header = bytes(view[HEADER_WORD_SIZE:header_end])
    if kind == Codec.ROCKETMQ:
        command = finished(_decode_binary(header, FRAME_LENGTH_MAX))
    elif len(header) <= fastjson.WHOLE_SIZE_MAX:
        command = _decode_json(header)
    else:
        command = finished(_json_in_turns(header, FRAME_LENGTH_MAX))
    command.body = bytes(view[header_end:])
    return command


def decode_in_turns(
    frame: Buffer, text_size_max: int = fastjson.SCALAR_SIZE_MAX,
) -> Generator[None, None, Command]:
    """
    `decode`, with a pause every millisecond or so in a long header. text_size_max: bytes of one
    value of such a header, as it stands there.
    """
    view, kind, header_end = _parts(frame)
    if header_end <= _SHORT_SIZE:
        return decode(frame)
    header = view[HEADER_WORD_SIZE:header_end]
    if kind == Codec.ROCKETMQ:
        command = yield from _decode_binary(header, text_size_max)
    else:
        command = yield from _json_in_turns(bytes(header), text_size_max)
    command.body = bytes(view[header_end:])
    return command


def _parts(frame: Buffer) -> tuple[memoryview, int, int]:
    """The frame, the kind of its header, and where that ends."""
    view = memoryview(frame)
    if len(view) > FRAME_LENGTH_MAX:
        raise FrameError(f"frame length {len(view)}: expected at most {FRAME_LENGTH_MAX}")
    if len(view) < HEADER_WORD_SIZE:
        raise FrameError(f"frame length {len(view)}: expected at least {HEADER_WORD_SIZE}")
    word = int.from_bytes(view[:HEADER_WORD_SIZE], "big")
    header_end = HEADER_WORD_SIZE + (word & _HEADER_LENGTH_MASK)
    if header_end > len(view):
        raise FrameError(
            f"header length {header_end - HEADER_WORD_SIZE}: the frame has only"
            f" {len(view) - HEADER_WORD_SIZE} bytes after the header word"
        )
    kind = word >> 24
    if kind not in (Codec.JSON, Codec.ROCKETMQ):
        raise FrameError(f"header type {kind}: expected 0 (JSON) or 1 (ROCKETMQ)")
    return view, kind, header_end


def _decode_json(header: bytes) -> Command:
    try:
        fields = fastjson.loads(header, relaxed_size_max=_RELAXED_HEADER_MAX)
    except fastjson.JsonError as error:
        raise FrameError(f"JSON header: {error}") from error
    return _command_of(fields)


def _json_in_turns(header: bytes, text_size_max: int) -> Generator[None, None, Command]:
    long = len(header) > fastjson.WHOLE_SIZE_MAX
    try:
        fields = yield from fastjson.loads_in_turns(
            header, count_max=_HEADER_VALUES_MAX if long else fastjson.COUNT_MAX,
            relaxed_size_max=_RELAXED_HEADER_MAX, scalar_size_max=text_size_max)
    except fastjson.JsonError as error:
        raise FrameError(f"JSON header: {error}") from error
    return _command_of(fields)


def _command_of(fields: Any) -> Command:
    if not isinstance(fields, dict):
        raise FrameError("JSON header: expected an object")
    if len(fields) > _HEADER_MEMBERS_MAX:
        raise FrameError(f"JSON header: more than {_HEADER_MEMBERS_MAX} members")
    if "code" not in fields or "opaque" not in fields or "flag" not in fields:
        fields = {_folded(str(name)): value for name, value in fields.items()}
        ext = fields.get("extfields")
    else:
        ext = fields.get("extFields")
        if ext is None:
            ext = next((v for k, v in fields.items() if _folded(str(k)) == "extfields"), None)
    opaque = fields.get("opaque")
    remark = fields.get("remark")
    return Command(
        code=_integer(fields.get("code"), "code"),
        language=_language(fields.get("language", LanguageCode.JAVA)),
        version=_integer(fields.get("version"), "version"),
        opaque=next_opaque() if opaque is None else _integer(opaque, "opaque"),
        flag=_integer(fields.get("flag"), "flag"),
        remark=None if remark is None else _text(remark),
        ext=_ext_from_json(ext),
        codec=Codec.JSON,
    )


def _folded(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def _integer(value: Any, name: str) -> int:
    """A header number: missing is 0, numeric text is accepted, other things are not."""
    if value is None:
        return 0
    if isinstance(value, str):
        value = whole_number(value)
    elif isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or not _I32_MIN <= value <= _I32_MAX:
        raise FrameError(f"JSON header: {name} is not a 32-bit number")
    return int(value)


def _language(value: Any) -> int | None:
    if isinstance(value, str):
        by_name = _LANGUAGE_BY_NAME.get(value.upper())
        if by_name is not None or re.fullmatch("[0-9]{1,3}", value) is None:
            return by_name
        value = int(value)
    if isinstance(value, int):
        return _LANGUAGE_BY_ORDINAL.get(value)
    return None


def _text(value: Any) -> str:
    """What Java's string map makes of a JSON value (remoting.md 5.2)."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        try:
            return fastjson.dumps(value).decode()
        except (TypeError, ValueError) as error:
            raise FrameError(f"JSON header: a nested value has no JSON text: {error}") from error
    return str(value)


def _ext_from_json(value: Any) -> Ext | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise FrameError("JSON header: extFields is not an object")
    if len(value) > HEADER_ENTRIES_MAX:
        raise FrameError(f"JSON header: more than {HEADER_ENTRIES_MAX} ext entries")
    return {
        _text(name): None if item is None else item if type(item) is str else _text(item)
        for name, item in value.items()
    }


def _decode_binary(header: Buffer, text_size_max: int) -> Generator[None, None, Command]:
    size = len(header)
    if size < _FIXED.size + _INT.size:
        raise FrameError(f"binary header of {size} bytes: expected at least 21")
    code, language, version, opaque, flag, remark_length = _FIXED.unpack_from(header)
    position = _FIXED.size
    if not 0 <= remark_length <= size - position - _INT.size:
        raise FrameError(f"binary header: remark length {remark_length} exceeds the header")
    if remark_length > text_size_max:
        raise FrameError(f"binary header: a remark of more than {text_size_max} bytes")
    remark = _string(header[position:position + remark_length])
    position += remark_length
    (ext_length,) = _INT.unpack_from(header, position)
    position += _INT.size
    if not 0 <= ext_length <= size - position:
        raise FrameError(f"binary header: ext length {ext_length} exceeds the header")
    ext = (yield from _ext_from_binary(header[position:position + ext_length], text_size_max)
           ) if ext_length else None
    return Command(
        code=code, language=_LANGUAGE_BY_ORDINAL.get(language), version=version, opaque=opaque,
        flag=flag, remark=remark, codec=Codec.ROCKETMQ, ext=ext)


def _string(raw: Buffer) -> str | None:
    return str(raw, "utf-8", "replace") if len(raw) else None


def _ext_from_binary(region: Buffer, text_size_max: int) -> Generator[None, None, Ext]:
    ext: Ext = {}
    position, end, pause_at = 0, len(region), fastjson.WHOLE_SIZE_MAX
    for _ in range(HEADER_ENTRIES_MAX):
        if position >= end:
            return ext
        key, position = _sized(region, position, _SHORT, text_size_max)
        value, position = _sized(region, position, _INT, text_size_max)
        if key is not None:
            ext[key] = value
        if position >= pause_at:
            pause_at = position + fastjson.WHOLE_SIZE_MAX
            yield
    if position < end:
        raise FrameError(f"binary header: more than {HEADER_ENTRIES_MAX} ext entries")
    return ext


def _sized(
    region: Buffer, position: int, prefix: struct.Struct, text_size_max: int,
) -> tuple[str | None, int]:
    start = position + prefix.size
    if start > len(region):
        raise FrameError("binary header: an ext entry is cut off")
    (length,) = prefix.unpack_from(region, position)
    if not 0 <= length <= len(region) - start:
        raise FrameError(f"binary header: ext string length {length} exceeds the ext region")
    if length > text_size_max:
        raise FrameError(f"binary header: an ext string of more than {text_size_max} bytes")
    return _string(region[start:start + length]), start + length


# -- encoding -------------------------------------------------------------------------------------


def encode(command: Command) -> bytes:
    """Encode a command as a whole frame WITH its length word, the way Java writes it.

    Null ext values are left out. Raises FrameError, naming the field, when a number does not fit
    its place or the frame would be longer than a peer accepts.
    """
    return b"".join((encode_head(command, len(command.body)), command.body))


def encode_head(command: Command, body_size: int) -> bytes:
    """What `encode` puts before the body, which may be elsewhere; raises FrameError as it does."""
    header = _encode_json(command) if command.codec == Codec.JSON else _encode_binary(command)
    length = HEADER_WORD_SIZE + len(header) + body_size
    if length > FRAME_LENGTH_MAX or len(header) > _HEADER_LENGTH_MASK:
        raise FrameError(f"frame length {length}: expected at most {FRAME_LENGTH_MAX}")
    return _WORDS.pack(length, command.codec << 24 | len(header)) + header


def _encode_json(command: Command) -> bytes:
    quote = fastjson.quote
    parts = [f'{{"code":{_fits(command.code, "code"):d}']
    if command.ext is not None:
        entries = ",".join(
            f"{quote(name)}:{quote(value)}"
            for name, value in command.ext.items() if value is not None
        )
        parts.append(f'"extFields":{{{entries}}}')
    parts.append(f'"flag":{_fits(command.flag, "flag"):d}')
    if command.language is not None:
        parts.append(f'"language":"{LanguageCode(command.language).name}"')
    parts.append(f'"opaque":{_fits(command.opaque, "opaque"):d}')
    if command.remark is not None:
        parts.append(f'"remark":{quote(command.remark)}')
    parts.append(
        f'"serializeTypeCurrentRPC":"JSON","version":{_fits(command.version, "version"):d}}}'
    )
    return ",".join(parts).encode()


def _fits(value: int, name: str, low: int = _I32_MIN, high: int = _I32_MAX) -> int:
    if not low <= value <= high:
        raise FrameError(f"{name} {value}: expected {low} to {high}")
    return value


def _encode_binary(command: Command) -> bytes:
    remark = (command.remark or "").encode("utf-8", "replace")
    entries: list[bytes] = []
    for name, value in (command.ext or {}).items():
        if value is None:
            continue
        key, item = name.encode("utf-8", "replace"), value.encode("utf-8", "replace")
        entries += (
            _SHORT.pack(_fits(len(key), f"ext key length of {name[:32]!r}", 0, _I16_MAX)), key,
            _INT.pack(len(item)), item,
        )
    region = b"".join(entries)
    language = _LANGUAGE_UNKNOWN if command.language is None else int(command.language)
    fixed = _FIXED.pack(
        _fits(command.code, "code", _I16_MIN, _I16_MAX), language,
        _fits(command.version, "version", _I16_MIN, _I16_MAX), _fits(command.opaque, "opaque"),
        _fits(command.flag, "flag"), len(remark),
    )
    return b"".join((fixed, remark, _INT.pack(len(region)), region))
