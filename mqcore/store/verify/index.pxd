# The key index of a store at rest, checked against the keys of the records that a walk meets.
#
#   VI1  Entries lie in log order over all files, the keys of one record side by side: one cursor
#        follows the walk (keys_expect), and nothing is looked up by hash.
#   VI2  Each slot's chain is what writing the entries in turn would have made (index_chains).
#   VI3  A position that is indexed twice (store.md 18.1) is sound: both with the record's keys.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.store.record cimport RecordView
from mqcore.store.verify.findings cimport Findings

cdef enum:
    INDEX_FILES_MAX = 4096
    KEYS_MAX = 16400                  # of one record: its properties have 32,767 bytes

cdef struct IndexCheck:
    const uint8_t* bytes
    int64_t size
    int32_t slots
    int32_t entries                   # capacity, entry 0 counted
    int32_t next_entry                # of its header, brought into [1, entries]

cdef struct KeySet:
    IndexCheck files[INDEX_FILES_MAX]
    int32_t count
    int32_t file                      # the cursor
    int32_t entry
    Findings* findings
    int64_t log_first                 # where the commit log begins
    int64_t keys                      # that the walked records have
    int64_t matched
    int64_t doubled                   # VI3
    int64_t missing
    int64_t missing_first             # position of the first record with a missing key, -1: none
    int64_t expired                   # entries of records that are gone
    int64_t passed                    # entries in stretches of the log that cannot be read
    int32_t hash_count
    int32_t hashes[KEYS_MAX]
    uint8_t used[KEYS_MAX]

cdef void keys_open(KeySet* k, Findings* findings, int64_t log_first) noexcept nogil
cdef void keys_note(KeySet* k, const RecordView* record, const uint8_t* key,
                    int32_t length) noexcept nogil
# With all keys of the record noted: the entries of its position, and the cursor behind them.
cdef void keys_expect(KeySet* k, const RecordView* record) noexcept nogil
# The walk goes on behind a stretch without records.
cdef void keys_pass(KeySet* k, int64_t position) noexcept nogil
cdef void keys_finish(KeySet* k, int64_t log_end) noexcept nogil
cdef void index_chains(KeySet* k, int32_t file) noexcept nogil
