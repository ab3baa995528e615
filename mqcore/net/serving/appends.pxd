# The way to the writer: records into `appends`, answers when their results come.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.layout cimport AppendHead
from mqcore.net.identity cimport Identity
from mqcore.net.transport.transport cimport Transport
from mqcore.shm.ring cimport Ring
from mqcore.shm.segment cimport Shm

cdef struct Appends:
    Transport* transport
    Shm* shm
    const Identity* identity
    Ring ring
    Ring results
    int32_t incarnation                # of this process: whose results count
    int64_t in_flight                  # without a result yet

cdef uint8_t* append_claim(Appends* a, int32_t length) noexcept nogil  # NULL: no room
cdef void append_commit(Appends* a, const AppendHead* head) noexcept nogil
cdef void append_push(Appends* a) noexcept nogil                       # shows it to the writer
# Response code and remark of a PutStatus (broker.md 2.4); counts refusals.
cdef int32_t put_code(Appends* a, int32_t status, const char** remark) noexcept nogil
cdef void take_results(Appends* a) noexcept nogil
