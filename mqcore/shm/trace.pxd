# Times of the steps of requests, stamped while a command asks for them (`mqcore debug slow`).
#
# Each process that takes part has a ring of entries: the writer one for each turn that moved the log,
# the dispatcher one for each turn that made records readable, a serving process one for each of its turns
# and one for each request that took `over_us` or longer. The command reserves the pages and then stores
# `until_us`; a process looks at that word once a turn, and stamps only while it lies ahead. So a trace
# that is not renewed ends by itself, and a broker without a trace looks at one word a turn.
#
# The process is the only writer of its ring. A turn adds at most TRACE_TURN_MAX entries, which are
# published together at its end; a reader believes the newest TRACE_ENTRIES - TRACE_TURN_MAX only.
from libc.stdint cimport int32_t, int64_t

from mqcore.atomics cimport load_i64_acquire, store_i64_release
from mqcore.clock cimport steady_us
from mqcore.layout cimport TRACE_ENTRIES, TRACE_STEPS, Trace, TraceEntry, TraceRing
from mqcore.shm.segment cimport Shm

cdef enum:
    TRACE_TURN_MAX = TRACE_ENTRIES // 2
    TRACER_WRITER = 0                  # places of rings; serving processes follow
    TRACER_DISPATCHER = 1
    TRACER_SERVING = 2

cdef struct Tracer:                    # one process's view
    Trace* trace
    TraceRing* ring
    bint on                            # in this turn
    int64_t over_us
    int64_t added                      # entries of this turn
    int64_t at_us[TRACE_STEPS]         # stamps of this turn


cdef inline void tracer_open(Tracer* t, Shm* shm, int place) noexcept nogil:
    t.trace = shm.trace
    t.ring = shm.trace_rings + place
    t.on = False


cdef inline void trace_begin(Tracer* t, int64_t now_us) noexcept nogil:
    """At the beginning of a turn; now_us: steady, 0: the clock is read if it is needed."""
    cdef int64_t until_us = load_i64_acquire(&t.trace.until_us)
    t.on = False
    if until_us == 0:
        return
    if now_us == 0:
        now_us = steady_us()
    if now_us < until_us:
        t.on = True
        t.over_us = t.trace.over_us
        t.added = 0
        t.at_us[0] = now_us
        t.at_us[1] = t.at_us[2] = t.at_us[3] = 0


cdef inline void trace_stamp(Tracer* t, int step) noexcept nogil:
    if t.on:
        t.at_us[step] = steady_us()


cdef inline TraceEntry* trace_add(Tracer* t, int32_t kind, int32_t detail, int64_t start,
                                  int64_t end) noexcept nogil:
    """Another entry of this turn; NULL: it has too many."""
    cdef TraceEntry* entry
    if t.added >= TRACE_TURN_MAX:
        t.ring.dropped += 1
        return NULL
    entry = &t.ring.entries[(t.ring.count + t.added) & (TRACE_ENTRIES - 1)]
    t.added += 1
    entry.kind = kind
    entry.detail = detail
    entry.start = start
    entry.end = end
    entry.queue = -1
    return entry


cdef inline void trace_publish(Tracer* t) noexcept nogil:
    store_i64_release(&t.ring.count, t.ring.count + t.added)


cdef inline void trace_turn(Tracer* t, int32_t kind, int64_t start, int64_t end) noexcept nogil:
    """The turn's own entry, with its stamps; then all are published."""
    cdef TraceEntry* entry = trace_add(t, kind, 0, start, end)
    cdef int i
    if entry != NULL:
        for i in range(TRACE_STEPS):
            entry.at_us[i] = t.at_us[i]
    trace_publish(t)
