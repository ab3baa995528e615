"""
Decoders of message bodies, for people.

Each decoder is tried in order until one fits; a reader may choose another one. They work on at most
BYTES_MAX bytes, and `decoded` on a thread for at most LIMIT_S: what takes longer is shown as bytes.
Numbers keep all their digits, since nothing passes a browser's JSON.
"""
from __future__ import annotations

import asyncio
import binascii
import json
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import msgpack

from mqcore.page import wire_view

BYTES_MAX = 1 << 20
LIMIT_S = 0.05
THREADS = 2
TEXT_MAX = 256 << 10                   # characters that a page shows
DEPTH_MAX = 200
HEX_BYTES = 4_096
HEX_WIDTH = 16
NESTED_MAX = 3                         # a compressed body in a compressed body

JAVA = b"\xac\xed\x00\x05"
HESSIAN = (b"H\x02\x00", b"c\x02\x00", b"C\x30", b"M\x74\x00")
AVRO = b"Obj\x01"
ZIPS: dict[bytes, tuple[str, int]] = {b"\x1f\x8b": ("gzip", 31), b"\x78\x01": ("zlib", 15),
                                      b"\x78\x5e": ("zlib", 15), b"\x78\x9c": ("zlib", 15),
                                      b"\x78\xda": ("zlib", 15)}
OTHER_ZIPS = {b"\x28\xb5\x2f\xfd": "zstd", b"\x04\x22\x4d\x18": "lz4"}


@dataclass(frozen=True)
class Decoded:
    """
    name    of the decoder
    text    the body in readable form
    note    for the reader: cut, compressed, why another decoder failed
    """

    name: str
    text: str
    note: str = ""


class NotThisError(ValueError):
    """The body is not of this kind; the text says why."""


def decode(body: bytes, wanted: str = "") -> Decoded:
    """The body by the decoder `wanted`, or by the first one that fits; a hex dump at last."""
    note = "" if len(body) <= BYTES_MAX else f"only the first {BYTES_MAX:,} bytes are looked at"
    looked_at = body[:BYTES_MAX]
    if wanted in DECODERS:
        try:
            return _noted(DECODERS[wanted](looked_at), note)
        except ERRORS as error:
            return Decoded("hex", _hex(looked_at), f"not {wanted}: {_why(error)}")
    for name in ORDER:
        try:
            return _noted(DECODERS[name](looked_at), note)
        except ERRORS:
            continue
    return _noted(Decoded("hex", _hex(looked_at)), note)


def _noted(found: Decoded, note: str) -> Decoded:
    if len(found.text) > TEXT_MAX:
        note = "; ".join(filter(None, (note, f"cut after {TEXT_MAX:,} characters")))
    return replace(found, text=found.text[:TEXT_MAX],
                   note="; ".join(filter(None, (found.note, note))))


def _why(error: BaseException) -> str:
    return (str(error) or type(error).__name__)[:200]


# -- decoders -------------------------------------------------------------------------------------

def _empty(body: bytes) -> Decoded:
    if body:
        raise NotThisError("it has bytes")
    return Decoded("empty", "")


def _json(body: bytes) -> Decoded:
    text = body.decode()
    if text.lstrip()[:1] not in ("{", "["):
        raise NotThisError("expected an object or a list")
    # as texts: neither a number of 60 digits nor 1.10 is changed
    value = json.loads(text, parse_int=_Number, parse_float=_Number)
    return Decoded("json", _written(value, 0))


class _Number(str):
    """A number in the digits of its sender."""


def _written(value: Any, depth: int) -> str:
    """JSON on several lines; numbers as they came."""
    if depth > DEPTH_MAX:
        raise NotThisError(f"deeper than {DEPTH_MAX}")
    if isinstance(value, _Number):
        return str(value)
    inside, end = "  " * (depth + 1), "  " * depth
    if isinstance(value, dict) and value:
        rows = [f"{inside}{json.dumps(key, ensure_ascii=False)}: {_written(one, depth + 1)}"
                for key, one in value.items()]
        return "{\n" + ",\n".join(rows) + f"\n{end}}}"
    if isinstance(value, list) and value:
        rows = [inside + _written(one, depth + 1) for one in value]
        return "[\n" + ",\n".join(rows) + f"\n{end}]"
    return json.dumps(value, ensure_ascii=False)


def _text(body: bytes) -> Decoded:
    text = body.decode()
    odd = sum(not sign.isprintable() and sign not in "\n\r\t" for sign in text)
    if odd > len(text) // 20:
        raise NotThisError("most bytes are no text")
    return Decoded("text", text)


def _compressed(body: bytes, nested: int = 0) -> Decoded:
    name, window = ZIPS.get(body[:2], ("", 0))
    if not name:
        other = OTHER_ZIPS.get(body[:4])
        if other is None or nested >= NESTED_MAX:
            raise NotThisError("no known compression")
        return Decoded(other, _hex(body), f"{other}, {len(body):,} bytes, not decompressed here")
    unpacked = _unzipped(body, name, window)
    if nested < NESTED_MAX and (unpacked[:2] in ZIPS or unpacked[:4] in OTHER_ZIPS):
        inner = _compressed(unpacked, nested + 1)
    else:
        inner = next(iter(_fitting(unpacked)))
    note = f"{name}: {len(body):,} bytes became {len(unpacked):,}"
    return Decoded(f"{name}, {inner.name}", inner.text, "; ".join(filter(None, (note, inner.note))))


def _unzipped(body: bytes, name: str, window: int) -> bytes:
    machine = zlib.decompressobj(window)
    try:
        return machine.decompress(body, BYTES_MAX)
    except zlib.error as error:
        raise NotThisError(f"{name}: {error}") from error


def _fitting(body: bytes) -> list[Decoded]:
    for name in ("empty", "json", "text", "msgpack"):
        try:
            return [DECODERS[name](body)]
        except ERRORS:
            continue
    return [Decoded("hex", _hex(body))]


def _msgpack(body: bytes) -> Decoded:
    value = msgpack.unpackb(body, raw=False, strict_map_key=False, max_str_len=len(body),
                            max_bin_len=len(body), max_array_len=100_000, max_map_len=100_000)
    if not isinstance(value, dict | list):
        raise NotThisError("expected a map or a list")
    return Decoded("msgpack", json.dumps(value, ensure_ascii=False, indent=2, default=_told))


def _told(value: Any) -> str:
    if isinstance(value, bytes):
        return f"<{len(value)} bytes: {value[:64].hex()}>"
    return str(value)


def _java(body: bytes) -> Decoded:
    if not body.startswith(JAVA):
        raise NotThisError("expected the beginning of a Java object")
    return Decoded("java", _hex(body), f"a serialized Java object, {len(body):,} bytes")


def _hessian(body: bytes) -> Decoded:
    if not body.startswith(HESSIAN):
        raise NotThisError("expected the beginning of a Hessian object")
    return Decoded("hessian", _hex(body), f"a Hessian object, {len(body):,} bytes")


def _avro(body: bytes) -> Decoded:
    if not body.startswith(AVRO):
        raise NotThisError("expected the beginning of an Avro container")
    return Decoded("avro", _hex(body), f"an Avro object container, {len(body):,} bytes")


def _protobuf(body: bytes) -> Decoded:
    return Decoded("protobuf", wire_view.lines(body), "field numbers and types: the wire has no "
                                                      "names")


def _hex_view(body: bytes) -> Decoded:
    return Decoded("hex", _hex(body))


def _hex(body: bytes) -> str:
    rows = []
    for at in range(0, min(len(body), HEX_BYTES), HEX_WIDTH):
        part = body[at:at + HEX_WIDTH]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        rows.append(f"{at:08x}  {part.hex(' '):<{HEX_WIDTH * 3 - 1}}  {text}")
    if len(body) > HEX_BYTES:
        rows.append(f"... {len(body) - HEX_BYTES:,} bytes more")
    return "\n".join(rows)


ORDER = ("empty", "compressed", "java", "hessian", "avro", "json", "text", "msgpack", "protobuf")
DECODERS: dict[str, Callable[[bytes], Decoded]] = {
    "empty": _empty, "compressed": _compressed, "java": _java, "hessian": _hessian, "avro": _avro,
    "json": _json, "text": _text, "msgpack": _msgpack, "protobuf": _protobuf, "hex": _hex_view,
}
CHOICES = ("json", "text", "compressed", "msgpack", "protobuf", "hex")
ERRORS = (ValueError, RecursionError, OverflowError, binascii.Error, msgpack.UnpackException,
          MemoryError, TypeError)


# -- in a thread ----------------------------------------------------------------------------------

@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, "decoder")


async def decoded(body: bytes, wanted: str = "", limit_s: float = LIMIT_S) -> Decoded:
    """`decode` in a thread; a body that takes too long is shown as bytes."""
    loop = asyncio.get_running_loop()
    work = loop.run_in_executor(_threads(), decode, body, wanted)
    try:
        async with asyncio.timeout(limit_s):
            return await asyncio.shield(work)
    except TimeoutError:
        return Decoded("hex", _hex(body), f"decoding took more than {limit_s * 1000:g} ms")
