# The book of deliveries: what of each delay level is delivered, in shared memory, so that it
# outlives the process that keeps it.
#
#   S1  Below offsets[level] every entry is settled: delivered, or skipped for good. An entry above
#       it is settled only if `ahead` holds it. Nobody else writes these words.
#   S2  Every delivery at or behind settled_position whose result has not been read may be missing
#       in the book; below it none is. It never moves back, and stands still while outcomes are
#       unknown.
#   S3  settled_position moves before the entry is settled, and the result that says so is released
#       after both: whoever dies in between leaves the result to his successor, for whom settling
#       twice changes nothing.
from libc.stdint cimport int32_t, int64_t

from mqcore.layout cimport ScheduleState

cdef enum:
    BOOK_OFFSET_BITS = 48             # of a place of `ahead`: the offset; above it the level


cdef struct Book:
    ScheduleState* state
    int32_t ahead_count               # places of `ahead` that are taken

cdef void book_attach(Book* book, ScheduleState* state) noexcept nogil
# Whether an entry is settled. Levels count from 0 here, as their queue ids do.
cdef bint book_has(const Book* book, int32_t level, int64_t offset) noexcept nogil
cdef void book_settle(Book* book, int32_t level, int64_t offset) noexcept nogil
# A level goes on at `offset`: its queue's range says so.
cdef void book_move(Book* book, int32_t level, int64_t offset) noexcept nogil
cdef void book_move_position(Book* book, int64_t position) noexcept nogil
