"""Answers that are a Status."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport strlen

from mqcore.net.grpc.answers cimport call_end, call_say
from mqcore.net.grpc.methods cimport method_streams
from mqcore.net.grpc.protobuf cimport (
    PB_BYTES,
    pb_begin,
    pb_end,
    pb_inside,
    pb_next,
    pb_put_bytes,
    pb_put_number,
)
from mqcore.net.grpc.streams cimport GRPC_INTERNAL
from mqcore.net.transport.transport cimport wall_of_turn

cdef enum:
    POLL_MAX_MS = 20_000
    POLL_SPARE_MS = 500                # of a call's time, for its answer
    SECONDS_MAX = 1 << 30              # of a duration; longer ones are refused


cdef void put_status(Grpc* g, int32_t number, int32_t code, const uint8_t* text,
                     int64_t length) noexcept nogil:
    cdef int64_t status = pb_begin(&g.out, number)
    pb_put_number(&g.out, 1, code)
    pb_put_bytes(&g.out, 2, text, length)
    pb_end(&g.out, status)


cdef void say_status_bytes(Grpc* g, Call* call, int32_t code, const uint8_t* text,
                           int64_t length) noexcept nogil:
    g.out.length = 0
    put_status(g, 1, code, text, length)                                    # front GF3
    if g.out.lacks_memory:
        call_end(call, GRPC_INTERNAL, "no memory for the answer")
    else:
        call_say(call, g.out.start, g.out.length, not method_streams(call.method))


cdef void say_status(Grpc* g, Call* call, int32_t code, const char* text) noexcept nogil:
    say_status_bytes(g, call, code, <const uint8_t*>text,
                     <int64_t>strlen(text) if text != NULL else 0)


cdef int64_t wait_most(const Call* call) noexcept nogil:
    if call.timeout_ms < 0:
        return POLL_MAX_MS
    return min(<int64_t>POLL_MAX_MS, max(call.timeout_ms - POLL_SPARE_MS, <int64_t>0))


cdef PopClock pop_clock(Grpc* g) noexcept nogil:
    cdef PopClock clock
    clock.steady_ms = g.door.transport.steady_ms
    clock.wall_ms = wall_of_turn(g.door.transport)
    return clock


cdef bint read_name(const PbReader* r, const uint8_t** name, int32_t* length) noexcept nogil:
    """Of a Resource, the field at hand."""
    cdef PbReader inner = pb_inside(r)
    name[0] = r.bytes
    length[0] = 0
    while pb_next(&inner):
        if inner.number == 2 and inner.kind == PB_BYTES:
            name[0] = inner.bytes
            length[0] = inner.length
    return not inner.broken


cdef int64_t read_seconds(const PbReader* r, int64_t* nanos) noexcept nogil:
    cdef PbReader inner = pb_inside(r)
    cdef int64_t seconds = 0
    nanos[0] = 0
    while pb_next(&inner):
        if inner.number == 1:
            seconds = <int64_t>inner.value
        elif inner.number == 2:
            nanos[0] = <int32_t>inner.value
    return seconds


cdef int64_t read_duration(const PbReader* r) noexcept nogil:
    cdef int64_t nanos
    cdef int64_t seconds = read_seconds(r, &nanos)
    if not 0 <= seconds <= SECONDS_MAX:
        return -2
    return seconds * 1000 + nanos // 1_000_000


cdef void read_message_queue(const PbReader* r, const uint8_t** topic, int32_t* length,
                             int32_t* queue_id) noexcept nogil:
    cdef PbReader inner = pb_inside(r)
    queue_id[0] = 0
    while pb_next(&inner):
        if inner.number == 1:
            read_name(&inner, topic, length)
        elif inner.number == 2:
            queue_id[0] = <int32_t>inner.value


cdef void read_filter(const PbReader* r, int32_t* type, const uint8_t** text,
                      int32_t* length) noexcept nogil:
    cdef PbReader inner = pb_inside(r)
    while pb_next(&inner):
        if inner.number == 1:
            type[0] = <int32_t>inner.value
        elif inner.number == 2 and inner.kind == PB_BYTES:
            text[0], length[0] = inner.bytes, inner.length
