"""Asks consumers what tools want to know."""
from libc.stdint cimport int64_t, uint8_t

from mqcore.net.grpc.answers cimport call_say
from mqcore.net.grpc.messages cimport Delivery, put_message
from mqcore.net.grpc.protobuf cimport pb_begin, pb_end, pb_put_bytes
from mqcore.store.record cimport PARSE_RECORD, RecordView, record_parse
from mqcore.wire.digits cimport NUMBER_LENGTH_MAX, put_number


cdef void put_nonce(Grpc* g, const Said* said) noexcept nogil:
    cdef uint8_t digits[NUMBER_LENGTH_MAX]
    pb_put_bytes(&g.out, 1, digits, put_number(digits, said.header.opaque))


cdef void ask_for_stacks(Grpc* g, Call* telemetry, const Said* said) noexcept nogil:
    cdef int64_t begun
    g.out.length = 0
    begun = pb_begin(&g.out, 6)
    put_nonce(g, said)
    pb_end(&g.out, begun)
    call_say(telemetry, g.out.start, g.out.length, False)


cdef void ask_to_consume(Grpc* g, Call* telemetry, const Said* said) noexcept nogil:
    cdef RecordView view
    cdef Delivery delivery
    cdef int64_t begun
    if record_parse(said.body, said.body_length, &view) != PARSE_RECORD:
        return                         # it came from the log: the tool hears of no answer
    delivery.handle = NULL
    delivery.attempt = 1
    g.out.length = 0
    begun = pb_begin(&g.out, 7)
    put_nonce(g, said)
    put_message(&g.out, 2, said.body, &view, &delivery)
    pb_end(&g.out, begun)
    call_say(telemetry, g.out.start, g.out.length, False)
