# The third gate of acknowledgements: beside written and flushed, who waits may wait until others have
# the record too. How far they have it, and whether they are there, stands in shared memory
# (ReplicaGate in layout.pxd); who replicates moves it and rings the writer (shm/replica_gate.pyx).
#
#   G5  With a gate, the result of a request with WAIT is published when its record is where the flush mode
#       wants it and `replicated` has passed it. When that is so, and nobody is present or `replicated` is
#       fallbehind_bytes behind, it is PUT_SLAVE_NOT_AVAILABLE at once; later, when timeout_ms have gone by,
#       PUT_SLAVE_TIMEOUT, whoever went meanwhile (ha.md 3); at once, where this broker leads no more. The record
#       is stored all the same.
#   G6  Results leave a ring in its order: one that waits keeps those behind it.
#   G7  A request stays in its ring until its result is published: if the writer dies before, its successor
#       answers it (appender_drop_requests).
#   G8  While a sync is the watcher's (group_commit G2), so are the marks: what waits here from
#       before that sync has waited for longer, and is answered first. What others could not have
#       either says that, not that the disk is late: of two failures the others' counts.
#   G11  While others are there, who sends it to them is rung before what somebody waits for is written, where
#        no flush lies between: it wakes meanwhile (master HM13). It is rung again when that is
#        published, if it sleeps.
from libc.stdint cimport int64_t

from mqcore.layout cimport PRODUCER_COUNT, Latency, ReplicaGate
from mqcore.shm.ring cimport Ring
from mqcore.shm.segment cimport Shm

cdef enum:
    GATE_MARKS = 1024                 # of one producer; more turns than that share the last one

cdef struct GateMark:
    int64_t results                   # up to here in the ring of results ...
    int64_t requests                  # ... and here in the ring of requests ...
    int64_t position                  # ... others have to have the log up to here
    int64_t began_us                  # steady clock, of the first turn that shares it
    int64_t deadline_ms               # steady clock, of the last one
    bint unusable                     # there was nobody to wait for

cdef struct GateQueue:                # of one producer
    GateMark marks[GATE_MARKS]
    int64_t first                     # both count on; the place is the rest by GATE_MARKS
    int64_t end

cdef struct Gate:                     # the writer's own; NULL: results wait for nobody
    Shm* shm
    ReplicaGate* words
    int64_t timeout_ms
    int64_t fallbehind_bytes
    bint rings_ahead                  # G11
    int64_t missed                    # answers that said that others do not have it
    Latency* waits                    # of the writer, LATENCY_SLAVE_WAIT
    GateQueue queues[PRODUCER_COUNT]  # as the appender numbers them

cdef void gate_open(Gate* gate, Shm* shm, int64_t timeout_ms,
                    int64_t fallbehind_bytes) noexcept nogil
# Whether there is anybody to wait for who could have the log up to `position` soon.
cdef bint gate_usable(Gate* gate, int64_t position) noexcept nogil
# What producer number p got in this turn waits until others have the log up to `position`, then what
# waits no longer is published, and its requests leave their ring.
cdef void gate_turn(Gate* gate, int p, int producer, Ring* results, Ring* requests,
                    int64_t position) noexcept nogil
# Before `waiting` requests that wait are written (G11). NULL: there is no gate.
cdef void gate_ring(Gate* gate, int64_t waiting) noexcept nogil
# Where the results begin that do not wait here: those of this turn.
cdef int64_t gate_end(Gate* gate, int p, const Ring* results) noexcept nogil
# Nothing waits any longer: marked as it is now. The ring is published by the caller.
cdef void gate_give_up(Gate* gate, int p, Ring* results) noexcept nogil
# Milliseconds until something may be published by time alone; `most` if nothing waits for less.
cdef int64_t gate_wait_ms(Gate* gate, int producers, int64_t most) noexcept nogil
cdef void gate_configure(Gate* gate, int64_t timeout_ms,
                         int64_t fallbehind_bytes) noexcept nogil
