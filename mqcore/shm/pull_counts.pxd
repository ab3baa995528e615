# What pulls handed out, by queue and group: one table in shared memory for each serving process.
#
#   Z1  One process writes a table: the serving process of that index. A successor goes on with the
#       counts of its predecessor, so they only grow within a run.
#   Z2  An entry has its queue and group before `count` includes it (release); entries never go or
#       move. One that its writer died over before it was in the index is there twice: counts of
#       entries with the same names are added up.
#   Z3  A full table takes no further pairs: their pulls are counted in `missed` alone.
from libc.stdint cimport int32_t, int64_t

from mqcore.layout cimport PullCount, PullCountsHead
from mqcore.shm.segment cimport Shm


cdef struct PullCounts:
    Shm* shm
    PullCountsHead* head
    int32_t* index
    PullCount* entries
    int32_t capacity


cdef void pull_counts_open(PullCounts* counts, Shm* shm, int serving) noexcept nogil
# The entry of a pair, made if need be; NULL: the table is full (Z3). The serving process alone.
cdef PullCount* pull_count_place(PullCounts* counts, int32_t queue, int32_t group) noexcept nogil


cdef inline void pull_count_add(PullCount* entry, int64_t messages, int64_t size,
                                int64_t took_ms) noexcept nogil:
    entry.pulls += 1
    entry.messages += messages
    entry.bytes += size
    entry.took_ms += took_ms


cdef inline void pull_count_last(PullCount* entry, int64_t behind_bytes, int64_t behind_ms,
                                 int64_t at_ms) noexcept nogil:
    entry.behind_bytes = behind_bytes
    entry.behind_ms = behind_ms
    entry.at_ms = at_ms
