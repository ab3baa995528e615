"""
What the records of a log ask of the rest of a store: their entries in queues, their keys in the
index, and which of their own fields cannot be. Columns, without a Python object for each record.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

from mqcore.layout cimport (
    DELAY_LEVEL_MAX,
    SYS_FLAG_COMMIT,
    SYS_FLAG_ROLLBACK,
    SYS_FLAG_TRANSACTION_MASK,
)
from mqcore.store.index.file cimport index_hash
from mqcore.store.record cimport PARSE_RECORD, RecordView, record_parse, tag_code
from mqcore.store.topic_names cimport is_light_name
from mqcore.store.verify.fields cimport Properties, check_fields, delivery_ms, properties_of
from mqcore.store.verify.findings cimport (
    FIELD_MULTI_DISPATCH,
    FINDINGS_MAX,
    FOUND_FIELD,
    Findings,
    find,
    findings_open,
)
from mqcore.text cimport is_digit

from mqcore.wire.records import RecordError

cpdef enum Side:                       # which queue an entry is for
    SIDE_NONE = 0                      # the record's own
    SIDE_NAMED = 1                     # one that its multi-dispatch list names
    SIDE_LIGHT = 2                     # a light one: of number 0 where there is such a queue
    SIDE_UNQUEUED = 3                  # none: prepared and rolled back records

cdef int64_t OFFSET_MAX = <int64_t>1 << 58

cdef struct Vector:
    uint8_t* bytes
    int64_t length
    int64_t capacity
    bint failed


cdef inline void put(Vector* v, const void* source, int64_t size) noexcept nogil:
    cdef int64_t wanted
    cdef uint8_t* larger
    if size == 0:
        return                         # of a name that is not there: from nowhere
    if v.length + size > v.capacity:
        wanted = max(2 * v.capacity, v.length + size + 4096)
        larger = <uint8_t*>realloc(v.bytes, wanted)
        if larger == NULL:
            v.failed = True
            return
        v.bytes = larger
        v.capacity = wanted
    memcpy(v.bytes + v.length, source, size)
    v.length += size


cdef inline void put_i32(Vector* v, int32_t value) noexcept nogil:
    put(v, &value, 4)


cdef inline void put_i64(Vector* v, int64_t value) noexcept nogil:
    put(v, &value, 8)


cdef enum:
    V_POSITION = 0
    V_SIZE = 1
    V_QUEUE_ID = 2
    V_QUEUE_OFFSET = 3
    V_TAGS_CODE = 4
    V_DELIVERY = 5
    V_STORE_TIME = 6
    V_SIDE = 7
    V_TOPIC = 8
    V_TOPIC_ENDS = 9
    V_KEY_POSITION = 10
    V_KEY_HASH = 11
    V_KEY_TIME = 12
    V_BODY = 13
    VECTORS = 14

cdef struct Rows:
    Vector vectors[VECTORS]
    Findings findings
    int64_t delay_ms[DELAY_LEVEL_MAX]
    int32_t levels


cdef void put_entry(Rows* r, const RecordView* record, const uint8_t* topic, int32_t length,
                    int64_t queue_offset, int64_t tags, int64_t delivery, int32_t side) noexcept nogil:
    put_i64(&r.vectors[V_POSITION], record.log_position)
    put_i32(&r.vectors[V_SIZE], record.size)
    put_i32(&r.vectors[V_QUEUE_ID], record.queue_id)
    put_i64(&r.vectors[V_QUEUE_OFFSET], queue_offset)
    put_i64(&r.vectors[V_TAGS_CODE], tags)
    put_i64(&r.vectors[V_DELIVERY], delivery)
    put_i64(&r.vectors[V_STORE_TIME], record.store_time_ms)
    put_i32(&r.vectors[V_SIDE], side)
    put_i32(&r.vectors[V_BODY], record.body_length)
    put(&r.vectors[V_TOPIC], topic, length)
    put_i32(&r.vectors[V_TOPIC_ENDS], <int32_t>r.vectors[V_TOPIC].length)


cdef void put_sides(Rows* r, const RecordView* record, const Properties* p, int64_t tags,
                    int64_t delivery) noexcept nogil:
    """The queues that a multi-dispatch list names, with the offsets beside it (store.md 2.11)."""
    cdef const uint8_t* name = p.names.value
    cdef const uint8_t* names_end = name + p.names.value_length
    cdef const uint8_t* digit = p.offsets.value
    cdef const uint8_t* digits_end = digit + p.offsets.value_length
    cdef const uint8_t* stop
    cdef const uint8_t* first
    cdef int64_t offset
    while name < names_end:
        stop = name
        while stop < names_end and stop[0] != c',':
            stop += 1
        first = digit
        offset = 0
        while digit < digits_end and is_digit(digit[0]) and offset < OFFSET_MAX:
            offset = offset * 10 + digit[0] - c'0'
            digit += 1
        if digit == first or (digit < digits_end and digit[0] != c','):
            find(&r.findings, FOUND_FIELD, 0, record.log_position, FIELD_MULTI_DISPATCH, 0, 0)
            return
        put_entry(r, record, name, <int32_t>(stop - name), offset, tags, delivery,
                  SIDE_LIGHT if is_light_name(name, <int32_t>(stop - name)) else SIDE_NAMED)
        name = stop + 1
        digit += 1


cdef void put_key(Rows* r, const RecordView* record, const uint8_t* key, int32_t length) noexcept nogil:
    put_i64(&r.vectors[V_KEY_POSITION], record.log_position)
    put_i32(&r.vectors[V_KEY_HASH], index_hash(record.topic, record.topic_length, key, length))
    put_i64(&r.vectors[V_KEY_TIME], record.store_time_ms)


cdef void take(Rows* r, const uint8_t* at, const RecordView* record) noexcept nogil:
    cdef int32_t kind = record.sys_flag & SYS_FLAG_TRANSACTION_MASK
    cdef int32_t start = 0, i
    cdef int64_t tags, delivery
    cdef Properties p
    check_fields(&r.findings, at, record)
    properties_of(record, &p)
    tags = tag_code(p.tags.value, p.tags.value_length)
    delivery = delivery_ms(r.delay_ms, r.levels, record, &p.delay)
    if kind == 0 or kind == SYS_FLAG_COMMIT:
        put_entry(r, record, record.topic, record.topic_length, record.queue_offset, tags, delivery,
                  SIDE_NONE)
        if p.names.value_length and p.offsets.value_length:
            put_sides(r, record, &p, tags, delivery)
    else:
        put_entry(r, record, record.topic, record.topic_length, record.queue_offset, tags, delivery,
                  SIDE_UNQUEUED)
    if kind == SYS_FLAG_ROLLBACK:
        return
    if p.unique.value_length:
        put_key(r, record, p.unique.value, p.unique.value_length)
    for i in range(p.keys.value_length + 1 if p.keys.value_length else 0):
        if i < p.keys.value_length and p.keys.value[i] != c' ':
            continue
        if i > start:
            put_key(r, record, p.keys.value + start, i - start)
        start = i + 1


cdef bint take_all(Rows* r, const uint8_t* data, int64_t length) noexcept nogil:
    cdef int64_t place = 0
    cdef RecordView record
    while place < length:
        if record_parse(data + place, length - place, &record) != PARSE_RECORD:
            return False
        take(r, data + place, &record)
        place += record.size
    return True


cdef class Vectors:
    """Columns by name: one row an entry, a key, a fault. Times are milliseconds."""

    cdef readonly int64_t count, key_count, fault_count
    cdef readonly bytes position, size, queue_id, queue_offset, tags_code, delivery, store_time
    cdef readonly bytes side, body_length, topic, topic_ends
    cdef readonly bytes key_position, key_hash, key_time
    cdef readonly bytes fault_position, fault_field, fault_value


cdef bytes vector_bytes(Rows* r, int number):
    return PyBytes_FromStringAndSize(<const char*>r.vectors[number].bytes, r.vectors[number].length)


cdef Vectors made_of(Rows* r):
    cdef Vectors made = Vectors.__new__(Vectors)
    cdef Vector positions, fields, values
    cdef int32_t i
    made.count = r.vectors[V_POSITION].length // 8
    made.key_count = r.vectors[V_KEY_POSITION].length // 8
    made.fault_count = r.findings.kept
    made.position, made.size = vector_bytes(r, V_POSITION), vector_bytes(r, V_SIZE)
    made.queue_id, made.queue_offset = vector_bytes(r, V_QUEUE_ID), vector_bytes(r, V_QUEUE_OFFSET)
    made.tags_code, made.delivery = vector_bytes(r, V_TAGS_CODE), vector_bytes(r, V_DELIVERY)
    made.store_time, made.side = vector_bytes(r, V_STORE_TIME), vector_bytes(r, V_SIDE)
    made.body_length = vector_bytes(r, V_BODY)
    made.topic, made.topic_ends = vector_bytes(r, V_TOPIC), vector_bytes(r, V_TOPIC_ENDS)
    made.key_position, made.key_hash = vector_bytes(r, V_KEY_POSITION), vector_bytes(r, V_KEY_HASH)
    made.key_time = vector_bytes(r, V_KEY_TIME)
    memset(&positions, 0, sizeof(Vector))
    memset(&fields, 0, sizeof(Vector))
    memset(&values, 0, sizeof(Vector))
    for i in range(r.findings.kept):
        put_i64(&positions, r.findings.items[i].position)
        put_i32(&fields, <int32_t>r.findings.items[i].detail)
        put_i64(&values, r.findings.items[i].found)
    made.fault_position = PyBytes_FromStringAndSize(<char*>positions.bytes, positions.length)
    made.fault_field = PyBytes_FromStringAndSize(<char*>fields.bytes, fields.length)
    made.fault_value = PyBytes_FromStringAndSize(<char*>values.bytes, values.length)
    free(positions.bytes)
    free(fields.bytes)
    free(values.bytes)
    return made


def audit_rows(bytes records not None, int64_t count, list delay_ms not None):
    """
    Of `count` records end to end; delay_ms: the broker's delivery times, from level 1. Raises
    RecordError for bytes that are no records.
    """
    cdef Rows* r = <Rows*>malloc(sizeof(Rows))
    cdef const uint8_t* data = records
    cdef int64_t length = len(records)
    cdef bint whole, failed = False
    cdef int i
    if r == NULL:
        raise MemoryError
    try:
        memset(&r.vectors, 0, sizeof(r.vectors))
        findings_open(&r.findings)
        r.findings.of_a_kind_max = FINDINGS_MAX
        if len(delay_ms) >= DELAY_LEVEL_MAX:
            raise ValueError(f"delay levels: {len(delay_ms)}: expected fewer than {DELAY_LEVEL_MAX}")
        r.levels = <int32_t>len(delay_ms)
        for i, delay in enumerate(delay_ms):
            r.delay_ms[i + 1] = delay
        put_i32(&r.vectors[V_TOPIC_ENDS], 0)
        with nogil:
            whole = take_all(r, data, length)
        for i in range(<int>VECTORS):
            failed = failed or r.vectors[i].failed
        if failed:
            raise MemoryError
        if not whole:
            raise RecordError(f"{length} bytes: expected {count} records")
        return made_of(r)
    finally:
        for i in range(<int>VECTORS):
            free(r.vectors[i].bytes)
        free(r)
