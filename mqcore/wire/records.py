"""Stored records and batch bodies, as pulls and sends carry them (remoting.md 6.2 to 6.4)."""
from __future__ import annotations

import importlib
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from socket import inet_ntoa
from typing import Any

from mqcore.layout import (
    MAGIC_MESSAGE,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_COMMIT,
    SYS_FLAG_COMPRESSED,
    SYS_FLAG_MULTI_TAGS,
    SYS_FLAG_PREPARED,
    SYS_FLAG_ROLLBACK,
    SYS_FLAG_STORE_HOST_V6,
    SYS_FLAG_TRANSACTION_MASK,
)
from mqcore.wire.ids import offset_message_id
from mqcore.wire.properties import LENGTH_MAX as PROPERTIES_LENGTH_MAX
from mqcore.wire.properties import UNIQ_KEY, decode_properties, encode_properties
from mqcore.wire.tags import tag_code

RECORD_SIZE_MAX = 64 * 1024 * 1024
BODY_SIZE_MAX = 64 * 1024 * 1024        # after decompression: a small record must not fill memory
PIECE_BYTES = 1024                      # of a ZSTD body: becomes 32 MiB at most

FLAG_COMPRESSED = SYS_FLAG_COMPRESSED        # remoting.md 6.3
FLAG_MULTI_TAGS = SYS_FLAG_MULTI_TAGS
FLAG_TRANSACTION_MASK = SYS_FLAG_TRANSACTION_MASK
TRANSACTION_PREPARED = SYS_FLAG_PREPARED
TRANSACTION_COMMIT = SYS_FLAG_COMMIT
TRANSACTION_ROLLBACK = SYS_FLAG_ROLLBACK
FLAG_BORN_HOST_IPV6 = SYS_FLAG_BORN_HOST_V6
FLAG_STORE_HOST_IPV6 = SYS_FLAG_STORE_HOST_V6
COMPRESSION_MASK = 0x700
COMPRESSION_LZ4 = 0x100
COMPRESSION_ZSTD = 0x200
COMPRESSION_ZLIB = 0x300

_HEAD = struct.Struct(">iiiiiqqiq")     # size, magic, CRC, queue, flag, queue offset, position, ...
_TIME = struct.Struct(">q")
_TAIL = struct.Struct(">iqi")           # reconsume times, prepared offset, body length
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_BATCH_HEAD = struct.Struct(">iiiii")   # size, magic, CRC, flag, body length


class RecordError(ValueError):
    """The bytes are no message record, or its body cannot be decompressed."""


class BrokenBody(RecordError):
    """A body that nobody can decompress: it is broken, cut off, or too long when it is plain."""


@dataclass(slots=True)
class Record:
    """One stored message; `body` is as stored, `plain_body()` is what the sender meant."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    flag: int
    sys_flag: int
    body_crc: int
    born_timestamp_ms: int
    born_host: tuple[str, int]
    store_timestamp_ms: int
    store_host: tuple[str, int]
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    properties: dict[str, str]
    size: int

    @property
    def offset_message_id(self) -> str:
        return offset_message_id(*self.store_host, self.physical_offset)

    @property
    def message_id(self) -> str:
        """What clients call the message id: UNIQ_KEY, else the offset message id."""
        return self.properties.get(UNIQ_KEY) or self.offset_message_id

    @property
    def tags(self) -> str | None:
        return self.properties.get("TAGS")

    @property
    def keys(self) -> list[str]:
        return self.properties.get("KEYS", "").split()

    @property
    def tag_code(self) -> int:
        return tag_code(self.tags)

    def crc_matches(self) -> bool:
        """Whether the stored body is the one that the CRC was computed for."""
        return body_crc(self.body) == self.body_crc

    def plain_body(self) -> bytes:
        """The body, decompressed when it is flagged so; raises RecordError when that fails."""
        return decompress(self.body, self.sys_flag)


def body_crc(body: bytes | memoryview) -> int:
    """CRC-32 with the sign bit cleared, as records carry it."""
    return zlib.crc32(body) & 0x7FFF_FFFF


# -- compression ----------------------------------------------------------------------------------


def decompress(body: bytes, sys_flag: int, size_max: int = BODY_SIZE_MAX) -> bytes:
    """The plain form of a stored body, by the compression bits of `sys_flag`.

    LZ4 and ZSTD need the packages lz4 and zstandard; without them raises RecordError. For data that
    is broken, cut off or longer than `size_max` bytes when it is plain, BrokenBody.
    """
    if not sys_flag & FLAG_COMPRESSED:
        return body
    kind = sys_flag & COMPRESSION_MASK
    if kind in (0, COMPRESSION_ZLIB):
        return _inflate(body, size_max)
    if kind == COMPRESSION_LZ4:
        stream = _optional("lz4.frame", "LZ4", "lz4").LZ4FrameDecompressor()
        return _plain("LZ4", stream, lambda: stream.decompress(body, size_max + 1), size_max,
                      RuntimeError)
    if kind == COMPRESSION_ZSTD:
        zstd = _optional("zstandard", "ZSTD", "zstandard")
        stream = zstd.ZstdDecompressor().decompressobj()
        return _plain("ZSTD", stream, lambda: _in_pieces(stream, body, size_max), size_max,
                      zstd.ZstdError)
    raise BrokenBody(f"sysFlag {sys_flag:#x}: unknown compression {kind:#x}")


def _inflate(body: bytes, size_max: int) -> bytes:
    stream = zlib.decompressobj()
    return _plain("zlib", stream, lambda: stream.decompress(body, size_max + 1), size_max,
                  zlib.error)


def _in_pieces(stream: Any, body: bytes, size_max: int) -> bytes:
    """What a stream without a limit of its own makes of a body, until it is more than size_max."""
    plain = bytearray()
    for at in range(0, len(body), PIECE_BYTES):
        plain += stream.decompress(body[at:at + PIECE_BYTES])
        if stream.eof or len(plain) > size_max:
            break
    return bytes(plain)


def _optional(module: str, kind: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise RecordError(f"{kind} body: needs the Python package {package}") from error


def _plain(
    kind: str, stream: Any, decompressed: Callable[[], bytes], size_max: int,
    failure: type[Exception],
) -> bytes:
    """All that the stream makes of a body, and no part of it."""
    try:
        plain = decompressed()
    except failure as error:
        raise BrokenBody(f"{kind} body: {error}") from error
    if len(plain) > size_max:
        raise BrokenBody(f"{kind} body: more than {size_max} bytes")
    if not stream.eof:
        raise BrokenBody(f"{kind} body: cut off")
    return plain


def compress(body: bytes, level: int = 5) -> tuple[bytes, int]:
    """A body compressed with zlib, and the sysFlag bit to set (0x1, which every client reads)."""
    return zlib.compress(body, level), FLAG_COMPRESSED


# -- records --------------------------------------------------------------------------------------


def decode_record(buffer: bytes | memoryview, position: int = 0) -> Record:
    """Decode the record that starts at `position`; its `size` leads to the next one.

    Raises RecordError when magic, a size or a length does not fit. The CRC is not checked here.
    """
    view = memoryview(buffer)[position:]
    if len(view) < _HEAD.size:
        raise RecordError(f"record of {len(view)} bytes is cut off")
    size, magic, crc, queue_id, flag, queue_offset, physical, sys_flag, born_ms = (
        _HEAD.unpack_from(view)
    )
    if magic != MAGIC_MESSAGE:
        raise RecordError(f"record magic {magic & 0xFFFF_FFFF:#010x}: expected 0xdaa320a7")
    if not _HEAD.size < size <= min(len(view), RECORD_SIZE_MAX):
        raise RecordError(f"record size {size}: {len(view)} bytes are there")
    view = view[:size]
    try:
        born_host, at = _host(view, _HEAD.size, bool(sys_flag & FLAG_BORN_HOST_IPV6))
        (store_ms,) = _TIME.unpack_from(view, at)
        store_host, at = _host(
            view, at + _TIME.size, bool(sys_flag & FLAG_STORE_HOST_IPV6)
        )
        reconsume_times, prepared_offset, body_length = _TAIL.unpack_from(view, at)
        body, at = _slice(view, at + _TAIL.size, body_length)
        topic, at = _slice(view, at + 1, view[at])
        properties, at = _slice(view, at + _SHORT.size, *_SHORT.unpack_from(view, at))
    except (struct.error, IndexError) as error:
        raise RecordError("record is cut off inside a field") from error
    if at != size:
        raise RecordError(f"record size {size}: its fields end at {at}")
    return Record(
        topic=str(topic, "utf-8", "replace"), queue_id=queue_id, queue_offset=queue_offset,
        physical_offset=physical, flag=flag, sys_flag=sys_flag, body_crc=crc,
        born_timestamp_ms=born_ms, born_host=born_host, store_timestamp_ms=store_ms,
        store_host=store_host, reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_offset, body=bytes(body),
        properties=decode_properties(properties), size=size,
    )


def decode_records(buffer: bytes | memoryview) -> list[Record]:
    """Decode records that follow each other without gap, as in a pull response."""
    records = []
    position = 0
    while position < len(buffer):
        record = decode_record(buffer, position)
        position += record.size
        records.append(record)
    return records


def _host(view: memoryview, at: int, ipv6: bool) -> tuple[tuple[str, int], int]:
    end = at + (16 if ipv6 else 4)
    (port,) = _INT.unpack_from(view, end)
    host = str(ip_address(bytes(view[at:end]))) if ipv6 else inet_ntoa(view[at:end])
    return (host, port), end + _INT.size


def _slice(view: memoryview, start: int, length: int) -> tuple[memoryview, int]:
    if not 0 <= length <= len(view) - start:
        raise RecordError(f"record field length {length}: {len(view) - start} bytes are left")
    return view[start:start + length], start + length


def encode_record(record: Record) -> bytes:
    """Write a record; size, CRC and address bits of sysFlag are made from its contents."""
    born, born_ipv6 = _host_bytes(record.born_host)
    store, store_ipv6 = _host_bytes(record.store_host)
    sys_flag = record.sys_flag & ~(FLAG_BORN_HOST_IPV6 | FLAG_STORE_HOST_IPV6)
    sys_flag |= FLAG_BORN_HOST_IPV6 * born_ipv6 | FLAG_STORE_HOST_IPV6 * store_ipv6
    topic = record.topic.encode()
    if not 0 < len(topic) <= 127:
        raise RecordError(f"topic of {len(topic)} bytes: expected 1 to 127")
    properties = _properties_bytes(record.properties)
    after_head = b"".join((
        born, _TIME.pack(record.store_timestamp_ms), store,
        _TAIL.pack(record.reconsume_times, record.prepared_transaction_offset, len(record.body)),
        record.body, bytes((len(topic),)), topic, _SHORT.pack(len(properties)), properties,
    ))
    return _HEAD.pack(
        _HEAD.size + len(after_head), MAGIC_MESSAGE, body_crc(record.body), record.queue_id,
        record.flag, record.queue_offset, record.physical_offset, sys_flag,
        record.born_timestamp_ms,
    ) + after_head


def _host_bytes(host: tuple[str, int]) -> tuple[bytes, bool]:
    packed = ip_address(host[0]).packed
    return packed + _INT.pack(host[1]), len(packed) == 16


def _properties_bytes(properties: Mapping[str, str | None]) -> bytes:
    encoded = encode_properties(properties).encode()
    if len(encoded) > PROPERTIES_LENGTH_MAX:
        raise RecordError(
            f"properties of {len(encoded)} bytes: expected at most {PROPERTIES_LENGTH_MAX}"
        )
    return encoded


# -- batch bodies ---------------------------------------------------------------------------------


@dataclass(slots=True)
class BatchItem:
    """One message of a batch body (remoting.md 6.4)."""

    body: bytes
    properties: dict[str, str]
    flag: int = 0


def encode_batch(items: Iterable[BatchItem]) -> bytes:
    """The body of a batch send; raises RecordError when properties are too long."""
    parts: list[bytes] = []
    for item in items:
        properties = _properties_bytes(item.properties)
        size = _BATCH_HEAD.size + len(item.body) + _SHORT.size + len(properties)
        parts += (
            _BATCH_HEAD.pack(size, 0, 0, item.flag, len(item.body)), item.body,
            _SHORT.pack(len(properties)), properties,
        )
    return b"".join(parts)


def decode_batch(body: bytes | memoryview) -> list[BatchItem]:
    """The messages of a batch body; raises RecordError when a size does not fit."""
    view = memoryview(body)
    items: list[BatchItem] = []
    while len(view):
        if len(view) < _BATCH_HEAD.size:
            raise RecordError(f"batch item of {len(view)} bytes is cut off")
        size, _, _, flag, length = _BATCH_HEAD.unpack_from(view)
        if not _BATCH_HEAD.size + _SHORT.size <= size <= len(view):
            raise RecordError(f"batch item size {size}: {len(view)} bytes are left")
        item, view = view[:size], view[size:]
        content, at = _slice(item, _BATCH_HEAD.size, length)
        if at + _SHORT.size > size:
            raise RecordError("batch item is cut off before its properties")
        properties, at = _slice(item, at + _SHORT.size, *_SHORT.unpack_from(item, at))
        if at != size:
            raise RecordError(f"batch item size {size}: its fields end at {at}")
        items.append(BatchItem(bytes(content), decode_properties(properties), flag))
    return items
