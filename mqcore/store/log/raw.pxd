# Raw bytes of a log: records that another writer has given their places. A log that follows another
# one is made of them.
#
#   A7  Raw bytes are taken only where the log ends, all of them or none: they begin there, each record
#       says the position that it gets and has the CRC of its body, and a blank record ends the segment
#       just as it would end ours. They lie in one segment; the blank, its first eight bytes, is last. Each
#       has an offset that its queue can have: of one that has records no further on than a file of it is
#       long (dispatch_queues.pxd, OFFSET_NONSENSE).
#   A8  They are in the file byte for byte as they came, with checksums, published and flushed as others
#       are. The offsets in them move their queues' next offsets, and back if the write fails
#       (append A4).
#   A9  An empty log begins where its first raw bytes lie, if that is the start of a segment: `first` is
#       there before anything is published. Not with the transient pool, whose thread counts from 0.
#   A10  A log that only follows (`follows_only`) takes nothing but raw bytes. Where brokers are elected the
#        word of who leads says which log that is, record by record ...
#   A11  ... and who leads takes no raw bytes: an epoch has those of its own master alone.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.store.log.appender cimport Appender, RawRecord

cdef enum:
    RAW_BYTES_MAX = 1 << 20           # of one request, unless it is one record
    RAW_RECORDS_MAX = 12 << 10        # no more of the smallest fit
    QUEUE_OFFSET_BITS = 50            # no queue gets as far

cdef struct RawBytes:
    int64_t size                      # of the records, without the blank
    int32_t count                     # of records
    RawRecord* records                # those that take an offset of their queue; RAW_RECORDS_MAX places
    int32_t counted                   # of them
    int32_t uses                      # of queue offsets
    bint ends_segment                 # with a blank
    bint ends_lives                   # of queues (queue/lives.pxd)
    int64_t store_time_ms             # the latest of a record

# Whether the log is empty, and may as well begin there (A9).
cdef bint may_begin(const Appender* a, int64_t position) noexcept nogil
# Looks at `length` bytes that are to lie at `position`, and notes the records that take an offset; PutStatus (A7).
cdef int raw_check(const uint8_t* bytes, int64_t length, int64_t position, int64_t segment_size,
                   RawRecord* records, RawBytes* raw) noexcept nogil
# The same; if they may lie there, the queues of their records get a
# place in the queue table, their offsets are looked at, and the uses are counted, with those in queues
# that they name; PutStatus.
cdef int raw_look(Appender* a, const uint8_t* bytes, int64_t length, int64_t position,
                  RawBytes* raw) noexcept nogil
# Moves the queues of staged records on behind them. Of records that end lives: once they are in the
# file.
cdef void raw_use_offsets(Appender* a, const uint8_t* bytes, const RawBytes* raw) noexcept nogil
