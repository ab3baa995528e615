"""What brokers and name servers answer, as the client's native code reads it; and a store's audit."""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t

from tests.fuzz.targets.input cimport Input, input_of, take_byte

from types import SimpleNamespace

from mqcore.client.native.answers import FrameReader, Waiter
from mqcore.client.native.columns import Want, columns, scan
from mqcore.client.native.records import StoredRecord, cut, fill
from mqcore.spark.store.audit_rows import audit_rows
from mqcore.wire.command import FrameError
from mqcore.wire.records import RecordError

QUEUE = SimpleNamespace(topic="T")
DELAYS_MS = [1000 * level for level in range(1, 19)]
ALL_WANTS = sum(Want)
LOOKED_AT = ("store_size", "stored_queue_id", "flag", "sys_flag", "commit_log_offset",
             "prepared_transaction_offset", "born_timestamp_ms", "store_timestamp_ms", "born_host",
             "store_host", "stored_topic", "stored_body", "properties", "record")


class Anybody(Waiter):
    """Who waits for any answer."""

    def stored(self, *what: object) -> None:
        pass

    def answered(self, command: object) -> None:
        pass


cdef bytes made_of(const uint8_t* data, size_t size):
    return PyBytes_FromStringAndSize(<const char*>data, size)


def nothing(command: object) -> None:
    """For requests, and answers that nobody waits for."""


cdef int answers(const uint8_t* data, size_t size) noexcept with gil:
    """| what comes on a connection | what is taken at a time, a byte |"""
    cdef Input left = input_of(data, size)
    cdef Py_ssize_t step = 1 + take_byte(&left) * 8, at = 0, length
    waiter = Anybody()
    waiter.wants_place = True
    reader = FrameReader({opaque: waiter for opaque in range(4)}, nothing, nothing, 1 << 16)
    while at < left.left:
        length = min(step, left.left - at)
        reader.room()[:length] = made_of(data + at, length)
        at += length
        try:
            reader.received(length)
        except FrameError:
            break
        reader.is_whole
        reader.has_bytes
    return 0


cdef int pulled(const uint8_t* data, size_t size) noexcept with gil:
    """The records of a pull: as messages, as rows, as columns."""
    body = made_of(data, size)
    try:
        messages = cut(body, StoredRecord, QUEUE, frozenset(), 0, 9)
    except RecordError:
        messages = None
    if messages is not None:
        for message in messages:
            for name in LOOKED_AT:
                getattr(message, name)
            fill(StoredRecord(), message.record, QUEUE)
        made = columns([body], len(messages), ALL_WANTS & ~Want.WANT_BODY, 1000, 1 << 16, True)
        assert made.row_count == len(messages)
    for whole, tags in ((True, None), (False, [b"A", b"B"])):
        try:
            scan(body, 0, 1 << 40, whole, tags)
        except RecordError:
            pass
    return 0


cdef int audited(const uint8_t* data, size_t size) noexcept with gil:
    try:
        rows = audit_rows(made_of(data, size), 1, DELAYS_MS)
    except RecordError:
        return 0
    assert len(rows.position) == 8 * rows.count and len(rows.topic_ends) == 4 * rows.count + 4
    return 0


TARGETS = {"answers": <size_t>&answers, "pulled": <size_t>&pulled, "audited": <size_t>&audited}
