# Consume queue extension files: units that hold what 20 bytes of an entry have no room for
# (store.md 3.6). The entry's tag code is then the unit's address.
#
#    0           2          10           18           20
#    | i16       | i64      | i64        | i16        | bit map
#    | unit size | tag code | store time | map length | ...
#
#   X1  Address = place in the queue's extension files - 2^63: at most EXTENSION_ADDRESS_LAST, which
#       no tag code and no time is.
#   X2  A unit lies in one file and is in it before the entry that refers to it is
#       (consume_queue C2). The size -1 says that the rest of a file is empty.
#   X3  Units follow the unit of the queue's last entry that has one. What lies behind it is of a
#       batch that did not get into the queue, and is written over.
#   X4  Addresses grow along a queue. A file goes when the queue's first entry refers behind it.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.layout cimport QueueEntry
from mqcore.store.log.view cimport LOG_PATH_MAX
from mqcore.store.queue.open_files cimport OpenFiles

cdef enum:
    EXTENSION_UNIT_SIZE = 0
    EXTENSION_UNIT_TAG_CODE = 2
    EXTENSION_UNIT_STORE_TIME = 10
    EXTENSION_UNIT_MAP_LENGTH = 18
    EXTENSION_UNIT_HEAD = 20
    EXTENSION_UNIT_MAX = 32767
    EXTENSION_FILE_END = -1           # in place of a unit's size
    EXTENSION_END_ROOM = 4            # what a unit leaves free at the end of a file
    EXTENSION_GATHER = 1 << 15
    EXTENSION_WINDOW = 1 << 13

cdef extern from *:
    """
    #include <stdint.h>
    #define MQ_EXTENSION_ADDRESS_BASE INT64_MIN
    #define MQ_EXTENSION_ADDRESS_LAST (-INT64_C(2147483649))
    """
    const int64_t EXTENSION_ADDRESS_BASE "MQ_EXTENSION_ADDRESS_BASE"
    const int64_t EXTENSION_ADDRESS_LAST "MQ_EXTENSION_ADDRESS_LAST"

cdef inline bint is_extension_address(int64_t tag_code) noexcept nogil:
    return tag_code <= EXTENSION_ADDRESS_LAST

cdef struct ExtensionUnit:            # points into what was read: good until the next read
    int64_t tag_code
    int64_t store_time_ms
    const uint8_t* bits
    int32_t bits_length               # bytes

cdef struct ExtensionEnd:             # of one queue's units
    int32_t known                     # `place` is the end of the units that entries refer to
    int32_t life                      # the queue's removal_done when this was known
    int64_t place

cdef struct QueueExtension:
    OpenFiles open
    ExtensionEnd* ends                # by queue number
    char queue_folder[LOG_PATH_MAX]
    int64_t queue_file_entries
    # the units being written, or the window being read
    uint8_t* bytes
    int32_t length
    int64_t start                     # place of the first byte
    int64_t end                       # behind the last unit appended
    int32_t queue                     # whose: -1: nobody's

# 0 or errno. queue_folder, queue_file_entries: the queues, which tell a writer where it stopped.
cdef int extension_open(QueueExtension* e, QueueEntry* queues, int32_t capacity, const char* folder,
                        const char* queue_folder, int64_t queue_file_entries, int64_t file_size,
                        int32_t open_max, bint writes) noexcept nogil
cdef void extension_close(QueueExtension* e) noexcept nogil

# -- the dispatcher: begin, append ..., flush, [entries are written], keep ------------------------
cdef int extension_begin(QueueExtension* e, int32_t queue) noexcept nogil             # 0 or errno
# 0 or errno; *address stays as it is when no file has room for such a unit.
cdef int extension_append(QueueExtension* e, const ExtensionUnit* unit,
                          int64_t* address) noexcept nogil
cdef int extension_flush(QueueExtension* e) noexcept nogil                            # 0 or errno
cdef void extension_keep(QueueExtension* e) noexcept nogil
cdef void extension_forget(QueueExtension* e, int32_t queue) noexcept nogil
# Of the queues below `count`; 0 or errno.
cdef int extension_sync(QueueExtension* e, int32_t count, bint together) noexcept nogil

# -- readers: fresh before each walk over a queue, then the units behind its entries --------------
cdef void extension_fresh(QueueExtension* e) noexcept nogil
# False: there is no such unit (any more), or it cannot be read.
cdef bint extension_read(QueueExtension* e, int32_t queue, int64_t address,
                         ExtensionUnit* unit) noexcept nogil
# Close what is open: files were deleted meanwhile.
cdef void extension_let_go(QueueExtension* e) noexcept nogil
