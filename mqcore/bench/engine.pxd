# The load generator's event loop: connections, buffers, counters. What is sent and what an answer
# means is the engine below it: loadgen (produce), load_consume, load_e2e.
#
#   LG1  One thread runs an engine; nothing in it is shared.
#   LG2  At most one send per connection and turn, whatever the number of frames.
#   LG3  An input buffer holds at most one frame of the protocol's greatest length beyond a read; an
#        output buffer at most `output_limit` bytes: an engine asks output_room before it writes.
#   LG4  now_ns is read once per wake-up and once per read; CLOCK_MONOTONIC.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.bench.frames cimport Response, ResponseHint
from mqcore.bench.histogram cimport Histogram

cdef enum:
    ERROR_CODES = 512                    # response codes counted one by one; others as the last
    INPUT_SIZE = 1 << 18
    CONNECTION_COUNT_MAX = 4096

cdef int64_t NEVER
cdef int64_t NS_PER_S

cdef struct LoadConnection:
    int32_t fd
    bint is_open
    bint wants_write                     # EPOLLOUT is registered
    uint8_t* input
    int64_t input_begin
    int64_t input_end
    int64_t input_size
    uint8_t* output
    int64_t output_begin
    int64_t output_end
    int64_t output_size
    int64_t inflight
    ResponseHint hint
    void* tls                            # its TlsSocket, which `sockets` keeps; NULL: a plain one

cdef struct LoadCounters:
    int64_t begun                        # requests written into an output buffer
    int64_t completed                    # items done: messages sent, or messages received
    int64_t errors                       # responses with another code than 0
    int64_t lost                         # in flight on a connection that broke
    int64_t unexpected                   # responses that nobody waits for
    int64_t bad_frames
    int64_t server_requests              # requests of the broker to us; ignored
    int64_t reads
    int64_t writes
    int64_t bytes_in
    int64_t bytes_out

cdef class LoadEngine:
    cdef LoadConnection* connections
    cdef readonly int32_t connection_count
    cdef readonly int32_t open_count
    cdef int64_t inflight
    cdef int64_t output_limit
    cdef LoadCounters counters
    cdef Histogram latency
    cdef int64_t error_codes[ERROR_CODES]
    cdef int32_t epoll_fd
    cdef int32_t timer_fd
    cdef int64_t armed_ns
    cdef list sockets
    cdef bytes first_remark

    cdef int64_t turn(self, int64_t now_ns) noexcept nogil         # returns the next wanted turn
    cdef void on_response(
        self, int32_t index, const Response* response, int64_t now_ns) noexcept nogil
    cdef void on_closed(self, int32_t index) noexcept nogil
    cdef uint8_t* output_room(self, LoadConnection* connection, int64_t size) noexcept nogil
    cdef void flush(self, int32_t index) noexcept nogil
    cdef void close_connection(self, int32_t index) noexcept nogil
    cdef void count_error(self, const Response* response) noexcept nogil
    cdef bint _receive(self, int32_t index) noexcept nogil
    cdef bint _take_frames(self, int32_t index, int64_t now_ns) noexcept nogil
    cdef void _ready(self, int32_t index, int32_t events) noexcept nogil
    cdef void _arm(self, int64_t at_ns) noexcept nogil
    cdef void _loop(self, int64_t completed_target, int64_t deadline_ns, bint until_idle) noexcept nogil

cdef int64_t monotonic_ns() noexcept nogil
cdef int64_t epoch_ms() noexcept nogil
