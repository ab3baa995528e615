"""Reads and writes protocol buffers."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove

cdef enum:
    LENGTH_ROOM = 5                    # PB2
    VARINT_MAX = 10
    NUMBER_MAX = (1 << 29) - 1
    FIRST_ROOM = 512


cdef void pb_open(PbReader* r, const uint8_t* bytes, int64_t length) noexcept nogil:
    r.at = bytes
    r.end = bytes + length
    r.broken = False
    r.number = r.kind = r.length = 0
    r.bytes = NULL
    r.value = 0


cdef bint take_varint(PbReader* r, uint64_t* value) noexcept nogil:
    cdef uint64_t result = 0
    cdef int shift = 0
    cdef uint8_t byte
    while r.at < r.end and shift < 7 * VARINT_MAX:
        byte = r.at[0]
        r.at += 1
        result |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            value[0] = result
            return True
        shift += 7
    r.broken = True                                                      # PB1
    return False


cdef bint take_fixed(PbReader* r, int size) noexcept nogil:
    if r.end - r.at < size:
        r.broken = True
        return False
    r.value = 0
    memcpy(&r.value, r.at, size)       # little-endian, as the machine is
    r.at += size
    return True


cdef bint pb_next(PbReader* r) noexcept nogil:
    cdef uint64_t key, length
    if r.broken or r.at >= r.end or not take_varint(r, &key):
        return False
    r.kind = <int>(key & 7)
    if not 0 < key >> 3 <= NUMBER_MAX:
        r.broken = True
        return False
    r.number = <int32_t>(key >> 3)
    r.bytes = NULL
    r.length = 0
    r.value = 0
    if r.kind == PB_VARINT:
        return take_varint(r, &r.value)
    if r.kind == PB_I64:
        return take_fixed(r, 8)
    if r.kind == PB_I32:
        return take_fixed(r, 4)
    if r.kind != PB_BYTES or not take_varint(r, &length) or length > <uint64_t>(r.end - r.at):
        r.broken = True
        return False
    r.bytes = r.at
    r.length = <int32_t>length
    r.at += length
    return True


cdef PbReader pb_inside(const PbReader* r) noexcept nogil:
    cdef PbReader inner
    pb_open(&inner, r.bytes, r.length)
    return inner


# -- writing -----------------------------------------------------------------------------------------

cdef uint8_t* room(PbWriter* w, int64_t size) noexcept nogil:
    cdef int64_t capacity = max(w.capacity, <int64_t>FIRST_ROOM)
    cdef uint8_t* bigger
    if w.lacks_memory:
        return NULL
    while capacity < w.length + size:
        capacity *= 2
    if capacity > w.capacity:
        bigger = <uint8_t*>realloc(w.start, capacity)
        if bigger == NULL:
            w.lacks_memory = True
            return NULL
        w.start = bigger
        w.capacity = capacity
    return w.start + w.length


cdef void pb_close(PbWriter* w) noexcept nogil:
    free(w.start)
    w.start = NULL
    w.length = w.capacity = 0


cdef inline int varint(uint8_t* into, uint64_t value) noexcept nogil:
    cdef int size = 0
    while value >= 0x80:
        into[size] = <uint8_t>(value | 0x80)
        value >>= 7
        size += 1
    into[size] = <uint8_t>value
    return size + 1


cdef void put_key(PbWriter* w, int32_t number, int kind) noexcept nogil:
    cdef uint8_t* at = room(w, VARINT_MAX)
    if at != NULL:
        w.length += varint(at, <uint64_t>number << 3 | <uint64_t>kind)


cdef void pb_put_number(PbWriter* w, int32_t number, int64_t value) noexcept nogil:
    cdef uint8_t* at
    put_key(w, number, PB_VARINT)
    at = room(w, VARINT_MAX)
    if at != NULL:
        w.length += varint(at, <uint64_t>value)


cdef void pb_put_raw(PbWriter* w, const void* bytes, int64_t length) noexcept nogil:
    cdef uint8_t* at = room(w, length)
    if at != NULL and length > 0:
        memcpy(at, bytes, length)
        w.length += length


cdef void pb_put_bytes(PbWriter* w, int32_t number, const void* bytes,
                       int64_t length) noexcept nogil:
    cdef uint8_t* at
    put_key(w, number, PB_BYTES)
    at = room(w, VARINT_MAX)
    if at != NULL:
        w.length += varint(at, <uint64_t>length)
    pb_put_raw(w, bytes, length)


cdef int64_t pb_begin(PbWriter* w, int32_t number) noexcept nogil:
    put_key(w, number, PB_BYTES)
    if room(w, LENGTH_ROOM) != NULL:
        w.length += LENGTH_ROOM
    return w.length


cdef void pb_end(PbWriter* w, int64_t begun) noexcept nogil:
    cdef uint8_t length[VARINT_MAX]
    cdef int64_t size = w.length - begun
    cdef int taken
    if w.lacks_memory:
        return
    taken = varint(length, <uint64_t>size)
    memcpy(w.start + begun - LENGTH_ROOM, length, taken)
    memmove(w.start + begun - LENGTH_ROOM + taken, w.start + begun, size)
    w.length -= LENGTH_ROOM - taken
