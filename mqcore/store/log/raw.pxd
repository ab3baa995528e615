# Raw bytes of a log: records that another writer has given their places. A log that follows another
# one is made of them.
#
#   A7  Raw bytes are taken only where the log ends, all of them or none: they begin there, each record
#       says the position that it gets and has the CRC of its body, and a blank record ends the segment
#       just as it would end ours. They lie in one segment; the blank, its first eight bytes, is last.
#   A8  They are in the file byte for byte as they came, with checksums, published and flushed as others
#       are. The offsets in them move their queues' next offsets, and back if the write fails (A4).
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.shm.segment cimport Shm
from mqcore.store.log.appender cimport Appender

cdef enum:
    RAW_BYTES_MAX = 1 << 20           # of one request, unless it is one record

cdef struct RawBytes:
    int64_t size                      # of the records, without the blank
    int32_t count                     # of records
    int32_t uses                      # of queue offsets
    bint ends_segment                 # with a blank
    int64_t store_time_ms             # the latest of a record

# Looks at `length` bytes that are to lie at `position`; PutStatus.
cdef int raw_check(const uint8_t* bytes, int64_t length, int64_t position, int64_t segment_size,
                   RawBytes* raw) noexcept nogil
# Gives the queues of checked records a place in the queue table and counts the uses, with those in
# queues that they name; PutStatus.
cdef int raw_open_queues(Shm* shm, const uint8_t* bytes, RawBytes* raw) noexcept nogil
# Moves the queues of staged records on behind them.
cdef void raw_use_offsets(Appender* a, const uint8_t* bytes, const RawBytes* raw) noexcept nogil
