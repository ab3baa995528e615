# The key index: hash slots and chained entries in fixed-size files (store.md 4).
#
#   I1  Space is allocated before the mapping is written, so that a full disk is an error code.
#   I2  A record at a position below `end_position` of the newest file is indexed already; the one
#       exactly there may be in part, and its keys are looked for before they are added.
#   I3  Slots lie all over the file: a key that is noted is added KEYS_WAITING later, when the processor
#       has brought its slot. All are in the file behind index_add_noted, in their order; when it fails those that
#       wait are forgotten, and who notes their records again has each key once (I2).
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.store.log.view cimport LOG_PATH_MAX

cdef enum:
    KEYS_WAITING = 16                 # a power of two

cdef struct WaitingKey:
    int32_t hash
    int64_t position
    int64_t store_time_ms
    bint maybe_there

cdef struct KeyIndex:
    int32_t slots
    int32_t entries
    uint8_t* bytes                    # of the newest file; NULL: none yet
    int fd
    int64_t allocated                 # bytes of the file that have disk space
    int64_t keys_count
    int failure
    int64_t noted                     # I3: keys, since the file was opened ...
    int64_t added                     # ... and keys that do not wait
    WaitingKey waiting[KEYS_WAITING]
    char path[LOG_PATH_MAX]
    char folder[LOG_PATH_MAX]

cdef int index_open(KeyIndex* index, const char* folder, int32_t slots,
                    int32_t entries) noexcept nogil                       # 0 or errno
cdef void index_close(KeyIndex* index) noexcept nogil
cdef int index_use(KeyIndex* index, const char* path) noexcept nogil      # map an existing file
cdef int64_t index_end(KeyIndex* index) noexcept nogil                    # I2; -1: no file
# One key, to be added soon (I3); hash as store.md 4.2, maybe_there: its record is the one of I2. 0 or errno.
cdef int index_note(KeyIndex* index, int32_t hash, int64_t position, int64_t store_time_ms,
                    bint maybe_there) noexcept nogil
cdef int index_add_noted(KeyIndex* index) noexcept nogil                     # 0 or errno
cdef int32_t index_hash(const uint8_t* topic, int32_t topic_length, const uint8_t* key,
                        int32_t key_length) noexcept nogil
cdef int index_sync(KeyIndex* index) noexcept nogil
