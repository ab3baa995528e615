# cython: freethreading_compatible=True
"""
Cuts the body of a pull into messages that decode themselves when they are looked at.

Cutting looks at what the engine needs of every message: its place in the queue, the size of its
body, its tags when the subscription names some. All else is read when it is asked for.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memchr, memcmp

from mqcore.endian cimport load_i32, load_i64
from mqcore.layout cimport (
    HOST_V4_SIZE,
    HOST_V6_SIZE,
    PROPERTY_SEPARATOR,
    RECORD_BODY_AFTER_HOSTS,
    RECORD_BORN_HOST,
    RECORD_BORN_TIME,
    RECORD_FLAG,
    RECORD_LOG_POSITION,
    RECORD_MAGIC,
    RECORD_PREPARED_POSITION_AFTER_HOSTS,
    RECORD_QUEUE_ID,
    RECORD_SIZE,
    RECORD_STORE_HOST_AFTER_BORN_HOST,
    RECORD_STORE_TIME_AFTER_BORN_HOST,
    RECORD_SYS_FLAG,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_STORE_HOST_V6,
)

from mqcore.client.native.rows cimport (
    ROW_HAS_NO_MAGIC,
    ROW_HAS_WRONG_FIELDS,
    ROW_HAS_WRONG_SIZE,
    ROW_IS_CUT,
    Row,
    RowTrouble,
    cut_row,
)

from ipaddress import ip_address

from mqcore.wire.properties import MAX_OFFSET, MIN_OFFSET, decode_properties
from mqcore.wire.records import RecordError, decompress

cdef const char* TAGS_ITEM = b"TAGS\x01"
cdef enum:
    TAGS_ITEM_LENGTH = 5


@cython.binding(True)
cdef class StoredRecord:
    """One record as it came; fields are read from it when they are asked for."""

    cdef bytes _record
    cdef readonly int64_t queue_offset
    cdef readonly int32_t body_size            # as stored
    cdef int32_t _body_at
    cdef int32_t _properties_at
    cdef int32_t _hosts_end
    cdef object _body
    cdef object _properties
    cdef public object queue                   # as the application knows it
    cdef public object topic
    cdef public int32_t reconsume_times
    cdef int64_t _min_offset                   # of the queue, when it was pulled; -1: not known
    cdef int64_t _max_offset

    cdef inline const uint8_t* at(self, int32_t offset) noexcept:
        return <const uint8_t*>PyBytes_AS_STRING(self._record) + offset

    cdef int32_t store_host_at(self) noexcept:
        cdef int32_t size = HOST_V4_SIZE
        if load_i32(self.at(RECORD_SYS_FLAG)) & SYS_FLAG_BORN_HOST_V6:
            size = HOST_V6_SIZE
        return RECORD_BORN_HOST + size + RECORD_STORE_HOST_AFTER_BORN_HOST

    cdef tuple host(self, int32_t start, bint v6):
        cdef int32_t size = 16 if v6 else 4
        return (str(ip_address(self._record[start:start + size])),
                load_i32(self.at(start + size)))

    @property
    def store_size(self):
        return load_i32(self.at(RECORD_SIZE))

    @property
    def stored_queue_id(self):
        return load_i32(self.at(RECORD_QUEUE_ID))

    @property
    def flag(self):
        return load_i32(self.at(RECORD_FLAG))

    @property
    def sys_flag(self):
        return load_i32(self.at(RECORD_SYS_FLAG))

    @property
    def commit_log_offset(self):
        return load_i64(self.at(RECORD_LOG_POSITION))

    @property
    def prepared_transaction_offset(self):
        return load_i64(self.at(self._hosts_end + RECORD_PREPARED_POSITION_AFTER_HOSTS))

    @property
    def born_timestamp_ms(self):
        return load_i64(self.at(RECORD_BORN_TIME))

    @property
    def store_timestamp_ms(self):
        return load_i64(self.at(self.store_host_at() - RECORD_STORE_HOST_AFTER_BORN_HOST
                                + RECORD_STORE_TIME_AFTER_BORN_HOST))

    @property
    def born_host(self):
        return self.host(RECORD_BORN_HOST, self.sys_flag & SYS_FLAG_BORN_HOST_V6)

    @property
    def store_host(self):
        return self.host(self.store_host_at(), self.sys_flag & SYS_FLAG_STORE_HOST_V6)

    @property
    def stored_topic(self):
        cdef int32_t start = self._body_at + self.body_size + 1
        return self._record[start:self._properties_at - 2].decode("utf-8", "replace")

    @property
    def stored_body(self):
        return self._record[self._body_at:self._body_at + self.body_size]

    @property
    def body(self):
        if self._body is None:
            self._body = decompress(self.stored_body, self.sys_flag)
        return self._body

    @property
    def properties(self):
        if self._properties is None:
            self._properties = self.read_properties()
        return self._properties

    def read_properties(self):
        """The properties as they came, a dict of one's own."""
        found = decode_properties(self._record[self._properties_at:])
        if self._max_offset >= 0:
            found[MIN_OFFSET], found[MAX_OFFSET] = str(self._min_offset), str(self._max_offset)
        return found

    @property
    def record(self):
        return self._record

    @property
    def bounds(self):
        """The smallest and the largest offset of the queue when it was pulled; -1: not known."""
        return self._min_offset, self._max_offset


cdef bint take(StoredRecord made, const uint8_t* record, int64_t left) except False:
    """Fill `made` from the record at hand; raises RecordError for what is none."""
    cdef Row row
    cdef RowTrouble trouble = cut_row(record, left, &row)
    if trouble == ROW_IS_CUT:
        raise RecordError(f"record of {left} bytes is cut off")
    if trouble == ROW_HAS_NO_MAGIC:
        raise RecordError(
            f"record magic {load_i32(record + RECORD_MAGIC) & 0xFFFFFFFF:#010x}: expected a message")
    if trouble == ROW_HAS_WRONG_SIZE:
        raise RecordError(
            f"record size {load_i32(record + RECORD_SIZE)}: {left} bytes are there")
    if trouble == ROW_HAS_WRONG_FIELDS:
        raise RecordError(f"record size {row.size}: its fields do not end there")
    made._record = PyBytes_FromStringAndSize(<const char*>record, row.size)
    made.queue_offset = row.queue_offset
    made.body_size = row.body_length
    made._body_at = <int32_t>(row.body - record)
    made._properties_at = <int32_t>(row.properties - record)
    made._hosts_end = made._body_at - RECORD_BODY_AFTER_HOSTS
    made.reconsume_times = row.reconsume_times
    made._min_offset = made._max_offset = -1
    return True


cdef object tags_of(StoredRecord made):
    """The TAGS property, found without reading the others; None: it has none."""
    cdef const uint8_t* at = made.at(made._properties_at)
    cdef const uint8_t* end = made.at(load_i32(made.at(RECORD_SIZE)))
    cdef const uint8_t* item_end
    cdef object found = None
    while at < end:
        item_end = <const uint8_t*>memchr(at, PROPERTY_SEPARATOR, end - at)
        if item_end == NULL:
            item_end = end
        if item_end - at > TAGS_ITEM_LENGTH and memcmp(at, TAGS_ITEM, TAGS_ITEM_LENGTH) == 0:
            found = (<const char*>at)[TAGS_ITEM_LENGTH:item_end - at].decode("utf-8", "replace")
        at = item_end + 1
    return found


def cut(bytes body not None, kind not None, queue, tags=frozenset(), int64_t min_offset=-1,
        int64_t max_offset=-1):
    """
    The messages of a pull's body, each a new `kind`, a class on top of StoredRecord.

    queue       where they come from, as the application knows it; its topic is theirs
    tags        only messages that have such a tag; empty = all
    min_offset  and max_offset, of the queue, become properties; -1: they do not
    Raises RecordError when the bytes are no records that follow each other.
    """
    cdef const uint8_t* start = <const uint8_t*>PyBytes_AS_STRING(body)
    cdef int64_t position = 0, length = len(body)
    cdef StoredRecord made
    cdef bint filtered = bool(tags)
    cdef list found = []
    cdef object topic = queue.topic
    make = kind.__new__
    while position < length:
        made = <StoredRecord?>make(kind)
        take(made, start + position, length - position)
        position += load_i32(start + position + RECORD_SIZE)
        if filtered and tags_of(made) not in tags:
            continue
        made.queue = queue
        made.topic = topic
        made._min_offset = min_offset
        made._max_offset = max_offset
        found.append(made)
    return found


def fill(StoredRecord made not None, bytes record not None, queue):
    """Make `made` the message of this one record, from `queue`; raises RecordError."""
    take(made, <const uint8_t*>PyBytes_AS_STRING(record), len(record))
    if load_i32(made.at(RECORD_SIZE)) != len(record):
        raise RecordError(f"{len(record)} bytes: expected one record")
    made.queue = queue
    made.topic = made.stored_topic


def set_bounds(StoredRecord made not None, int64_t min_offset, int64_t max_offset):
    """The queue's offsets when `made` was pulled, as its properties; -1: not known."""
    made._min_offset, made._max_offset = min_offset, max_offset
