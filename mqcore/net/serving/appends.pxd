# The way to the writer: records into `appends`, answers when their results come.
from libc.stdint cimport int32_t, int64_t, uint32_t

from mqcore.layout cimport FIGURE_SENDS, AppendHead, Latency
from mqcore.net.identity cimport Identity
from mqcore.net.serving.limits cimport Limits
from mqcore.net.serving.recall_handles cimport TimedSends
from mqcore.net.transport.transport cimport Transport
from mqcore.shm.trace cimport Tracer
from mqcore.store.log.append_end cimport AppendEnd, append_finish

cdef struct Appends:
    AppendEnd to_writer
    Transport* transport
    const Identity* identity
    Limits* limits
    int64_t in_flight                  # without a result yet
    Latency* send_times
    Tracer* tracer
    TimedSends timed
    bint slave                         # nothing is appended for peers: the log is another broker's


cdef inline void append_for(Appends* a, AppendHead* head) noexcept nogil:
    """Commit what a peer has sent: its result is an answer."""
    head.taken_us = <uint32_t>a.transport.steady_us
    append_finish(&a.to_writer, head)
    a.in_flight += 1
    a.transport.slot.figures[FIGURE_SENDS] += head.record_count


# Response code and remark of a PutStatus (broker.md 2.4); counts refusals.
cdef int32_t put_code(Appends* a, int32_t status, const char** remark) noexcept nogil
cdef void take_results(Appends* a) noexcept nogil
