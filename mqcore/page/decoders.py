"""
Decoders of message bodies, for people.

Each decoder is tried in order until one fits; a reader may choose another one. They look at the
first BYTES_MAX bytes, and run in a process of its own (mqcore/page/decoding.py): a body is made by
others, and some libraries trust the lengths in it. Numbers keep all their digits, since nothing
passes a browser's JSON.
"""
from __future__ import annotations

import binascii
import io
import json
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any

import msgpack

from mqcore.page import wire_view

BYTES_MAX = 1 << 20
TEXT_MAX = 256 << 10                   # characters that a page shows
DEPTH_MAX = 200
HEX_BYTES = 4_096
HEX_WIDTH = 16
NESTED_MAX = 3                         # a compressed body in a compressed body
WINDOW_BYTES_MAX = 8 << 20             # that a zstd body may ask for
AVRO_ROWS_MAX = 1_000
EXTRA = "pip install mqcore[decoders]"

JAVA = b"\xac\xed\x00\x05"
HESSIAN = (b"H\x02\x00", b"c\x02\x00", b"C\x30", b"M\x74\x00")
AVRO = b"Obj\x01"
ZIPS: dict[bytes, tuple[str, int]] = {b"\x1f\x8b": ("gzip", 31), b"\x78\x01": ("zlib", 15),
                                      b"\x78\x5e": ("zlib", 15), b"\x78\x9c": ("zlib", 15),
                                      b"\x78\xda": ("zlib", 15)}
OTHER_ZIPS = {b"\x28\xb5\x2f\xfd": "zstd", b"\x04\x22\x4d\x18": "lz4"}
LIBRARIES = {"zstd": "zstandard", "lz4": "lz4", "avro": "fastavro", "protobuf": "protobuf"}


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


@dataclass(frozen=True)
class Schema:
    """A message type of protobuf: a file of protoc --descriptor_set_out, and its name there."""

    file: str
    name: str


class NotThisError(ValueError):
    """The body is not of this kind; the text says why."""


class NoLibraryError(ValueError):
    """The body may be of this kind, but the library that reads it is not installed."""


def decode(body: bytes, wanted: str = "", schema: Schema | None = None) -> Decoded:
    """
    The body by the decoder `wanted`, or by the first one that fits; a hex dump at last.

    schema   of the topic's bodies, where they are protobuf
    """
    known: dict[str, Callable[[bytes], Decoded]] = {
        **DECODERS, "compressed": partial(_compressed, schema=schema),
        "protobuf": partial(_protobuf, schema=schema)}
    order = ORDER if schema is None else ("empty", "compressed", "protobuf", *ORDER[2:])
    note = "" if len(body) <= BYTES_MAX else f"only the first {BYTES_MAX:,} bytes are looked at"
    looked_at = body[:BYTES_MAX]
    if wanted in known:
        try:
            return _noted(known[wanted](looked_at), note)
        except ERRORS as error:
            return Decoded("hex", hexed(looked_at), f"not {wanted}: {_why(error)}")
    for name in order:
        try:
            return _noted(known[name](looked_at), note)
        except ERRORS:
            continue
    return _noted(Decoded("hex", hexed(looked_at)), note)


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
    return Decoded("json", written(_json_value(body)))


def _json_value(body: bytes) -> Any:
    text = body.decode()
    if text.lstrip()[:1] not in ("{", "["):
        raise NotThisError("expected an object or a list")
    # as texts: neither a number of 60 digits nor 1.10 is changed
    return json.loads(text, parse_int=Number, parse_float=Number)


class Number(str):
    """A number in the digits of its sender."""


def written(value: Any, depth: int = 0) -> str:
    """JSON on several lines; numbers as they came."""
    if depth > DEPTH_MAX:
        raise NotThisError(f"deeper than {DEPTH_MAX}")
    if isinstance(value, Number):
        return str(value)
    inside, end = "  " * (depth + 1), "  " * depth
    if isinstance(value, dict) and value:
        rows = [f"{inside}{json.dumps(key, ensure_ascii=False)}: {written(one, depth + 1)}"
                for key, one in value.items()]
        return "{\n" + ",\n".join(rows) + f"\n{end}}}"
    if isinstance(value, list) and value:
        rows = [inside + written(one, depth + 1) for one in value]
        return "[\n" + ",\n".join(rows) + f"\n{end}]"
    return json.dumps(value, ensure_ascii=False)


def _text(body: bytes) -> Decoded:
    return Decoded("text", _text_value(body))


def _text_value(body: bytes) -> str:
    text = body.decode()
    odd = sum(not sign.isprintable() and sign not in "\n\r\t" for sign in text)
    if odd > len(text) // 20:
        raise NotThisError("most bytes are no text")
    return text


def _compressed(body: bytes, nested: int = 0, schema: Schema | None = None) -> Decoded:
    name, window = ZIPS.get(body[:2], ("", 0))
    name = name or OTHER_ZIPS.get(body[:4], "")
    if not name or nested > NESTED_MAX:
        raise NotThisError("no known compression")
    try:
        unpacked = _unzipped(body, name, window)
    except NoLibraryError as error:
        return Decoded(name, hexed(body), f"{name}, {len(body):,} bytes: {error}")
    inner = _inside(unpacked, nested, schema)
    note = f"{name}: {len(body):,} bytes became {len(unpacked):,}"
    return Decoded(f"{name}, {inner.name}", inner.text, "; ".join(filter(None, (note, inner.note))))


def _inside(body: bytes, nested: int, schema: Schema | None) -> Decoded:
    decoders: list[Callable[[bytes], Decoded]] = [
        partial(_compressed, nested=nested + 1, schema=schema),
        *([partial(_protobuf, schema=schema)] if schema else []),
        *(DECODERS[name] for name in ("empty", "avro", "json", "text", "msgpack"))]
    for one in decoders:
        try:
            return one(body)
        except ERRORS:
            continue
    return Decoded("hex", hexed(body))


def _unzipped(body: bytes, name: str, window: int) -> bytes:
    """The first BYTES_MAX bytes of what is inside."""
    try:
        if name == "zstd":
            zstd = _library("zstd")
            machine = zstd.ZstdDecompressor(max_window_size=WINDOW_BYTES_MAX)
            found = bytes(machine.stream_reader(io.BytesIO(body)).read(BYTES_MAX))
            if not found and zstd.frame_content_size(body) != 0:
                raise NotThisError("it ends too early")
            return found
        if name == "lz4":
            return bytes(_library("lz4", "lz4.frame").LZ4FrameDecompressor().decompress(
                body, max_length=BYTES_MAX))
        return zlib.decompressobj(window).decompress(body, BYTES_MAX)
    except NoLibraryError:
        raise
    except Exception as error:          # each library has its own
        raise NotThisError(f"{name}: {_why(error)}") from error


def _library(kind: str, module: str = "") -> Any:
    """The library for a kind of body. Raises NoLibraryError."""
    try:
        return import_module(module or LIBRARIES[kind])
    except ImportError:
        raise NoLibraryError(f"{LIBRARIES[kind]} is not installed: {EXTRA}") from None


def _msgpack(body: bytes) -> Decoded:
    return Decoded("msgpack", json.dumps(_msgpack_value(body), ensure_ascii=False, indent=2,
                                         default=_told))


def _msgpack_value(body: bytes) -> Any:
    value = msgpack.unpackb(body, raw=False, strict_map_key=False, max_str_len=len(body),
                            max_bin_len=len(body), max_array_len=100_000, max_map_len=100_000)
    if not isinstance(value, dict | list):
        raise NotThisError("expected a map or a list")
    return value


def _told(value: Any) -> str:
    if isinstance(value, bytes):
        return f"<{len(value)} bytes: {value[:64].hex()}>"
    return str(value)


def _java(body: bytes) -> Decoded:
    if not body.startswith(JAVA):
        raise NotThisError("expected the beginning of a Java object")
    return Decoded("java", hexed(body), f"a serialized Java object, {len(body):,} bytes")


def _hessian(body: bytes) -> Decoded:
    if not body.startswith(HESSIAN):
        raise NotThisError("expected the beginning of a Hessian object")
    return Decoded("hessian", hexed(body), f"a Hessian object, {len(body):,} bytes")


def _avro(body: bytes) -> Decoded:
    """The records of an object container, which brings its schema."""
    if not body.startswith(AVRO):
        raise NotThisError("expected the beginning of an Avro container")
    name = f"an Avro object container, {len(body):,} bytes"
    try:
        fastavro = _library("avro")
    except NoLibraryError as error:
        return Decoded("avro", hexed(body), f"{name}: {error}")
    rows: list[str] = []
    size = 0
    try:
        for record in fastavro.reader(io.BytesIO(body)):
            rows.append(json.dumps(record, ensure_ascii=False, indent=2, default=_told))
            size += len(rows[-1])
            if size > TEXT_MAX or len(rows) == AVRO_ROWS_MAX:
                name += f"; the first {len(rows):,} records"
                break
    except Exception as error:          # of any kind where a length or a schema lies
        name += f"; after {len(rows):,} records: {_why(error)}"
    return Decoded("avro", "\n".join(rows) if rows else hexed(body), name)


def _protobuf(body: bytes, schema: Schema | None = None) -> Decoded:
    if schema is None:
        return Decoded("protobuf", wire_view.lines(body),
                       "field numbers and types: the wire has no names")
    try:
        return Decoded("protobuf", _by_schema(body, schema), schema.name)
    except NoLibraryError as error:
        return Decoded("protobuf", wire_view.lines(body), str(error))


def _by_schema(body: bytes, schema: Schema) -> str:
    """JSON of a message of protobuf."""
    descriptor_pb2 = _library("protobuf", "google.protobuf.descriptor_pb2")
    descriptor_pool = _library("protobuf", "google.protobuf.descriptor_pool")
    message_factory = _library("protobuf", "google.protobuf.message_factory")
    json_format = _library("protobuf", "google.protobuf.json_format")
    try:
        with open(schema.file, "rb") as file:
            files = descriptor_pb2.FileDescriptorSet.FromString(file.read())
        pool = descriptor_pool.DescriptorPool()
        for one in files.file:
            pool.Add(one)
        kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(schema.name))
        message = kind.FromString(body)
        if body and not message.ListFields():
            raise NotThisError("it has no field of this type")
        return str(json_format.MessageToJson(message, preserving_proto_field_name=True,
                                             ensure_ascii=False))
    except Exception as error:          # the library's own, and those of the file
        raise NotThisError(f"{schema.name} of {schema.file}: {_why(error)}") from error


def _hex_view(body: bytes) -> Decoded:
    return Decoded("hex", hexed(body))


def hexed(body: bytes) -> str:
    """A dump of the first HEX_BYTES."""
    rows = []
    for at in range(0, min(len(body), HEX_BYTES), HEX_WIDTH):
        part = body[at:at + HEX_WIDTH]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        rows.append(f"{at:08x}  {part.hex(' '):<{HEX_WIDTH * 3 - 1}}  {text}")
    if len(body) > HEX_BYTES:
        rows.append(f"... {len(body) - HEX_BYTES:,} bytes more")
    return "\n".join(rows)


# -- for masking ----------------------------------------------------------------------------------

def structured(body: bytes, schema: Schema | None = None) -> Any:
    """The values of a body that has fields, as JSON has them. Raises one of ERRORS."""
    plain = _unpacked(body)
    if schema is not None:
        with suppress(*ERRORS):
            return _as_json(json.loads(_by_schema(plain, schema)))
    if plain.startswith(AVRO):
        fastavro = _library("avro")
        try:
            return _as_json(list(fastavro.reader(io.BytesIO(plain))))
        except Exception as error:      # of any kind where a length or a schema lies
            raise NotThisError(_why(error)) from error
    try:
        return _json_value(plain)
    except ERRORS:
        return _as_json(_msgpack_value(plain))


def plain_text(body: bytes) -> str:
    """The text of a body that is text, decompressed. Raises one of ERRORS."""
    return _text_value(_unpacked(body))


def _unpacked(body: bytes) -> bytes:
    """The whole contents of a compressed body: a part might be read in another way."""
    for _ in range(NESTED_MAX + 1):
        name, window = ZIPS.get(body[:2], ("", 0))
        name = name or OTHER_ZIPS.get(body[:4], "")
        if not name:
            return body
        body = _unzipped(body, name, window)
        if len(body) >= BYTES_MAX:
            raise NotThisError(f"more than {BYTES_MAX:,} bytes")
    raise NotThisError("compressed too often")


def _as_json(value: Any) -> Any:
    """The same with numbers as texts of their digits; of bytes only how many they are."""
    return json.loads(json.dumps(value, default=lambda other: f"<{len(other)} bytes>" if isinstance(
        other, bytes) else str(other)), parse_int=Number, parse_float=Number)


ORDER = ("empty", "compressed", "java", "hessian", "avro", "json", "text", "msgpack", "protobuf")
DECODERS: dict[str, Callable[[bytes], Decoded]] = {
    "empty": _empty, "compressed": _compressed, "java": _java, "hessian": _hessian, "avro": _avro,
    "json": _json, "text": _text, "msgpack": _msgpack, "protobuf": _protobuf, "hex": _hex_view,
}
CHOICES = ("json", "text", "compressed", "msgpack", "avro", "protobuf", "hex")
ERRORS = (ValueError, RecursionError, OverflowError, binascii.Error, msgpack.UnpackException,
          MemoryError, TypeError)


def work(request: bytes) -> bytes:
    """
    `decode` in a process of its own.

    request   a line of JSON, [wanted, file and name of a schema or nothing], then the body
    answer    JSON of a Decoded
    """
    head, _, body = request.partition(b"\n")
    wanted, *schema = json.loads(head)
    found = decode(body, wanted, Schema(*schema) if schema else None)
    return json.dumps(asdict(found)).encode()
