# Checksums beside the commit log: a file for each segment, of the same name, in the folder
# `checksums` of the store, wherever its log is. An entry for each record, 8 bytes (layout.pxd): where it ends
# in the segment, and the CRC-32C of all its bytes, filled in as they are in the file. The blank
# record that closes a segment has the last one, over its first eight bytes.
#
# RocketMQ's format has a CRC over bodies alone. A tear, or a flipped bit anywhere else, is known by
# these, and by nothing that a client can put into a message.
#
#   CS1  Entry k is at byte 8 k; the ends ascend, and behind the last entry are zeros. An entry
#        without a CRC covers bytes of which nothing is known: others than we wrote them.
#   CS2  An entry is in its file before its record is in the log. Where only we wrote, a whole
#        record without its entry was acknowledged to nobody.
#   CS3  It is on the disk before its record counts as flushed. Where only we wrote, the log's end
#        is before the first record that has no right entry, whatever the record holds.
#   CS4  In sync mode that costs no second sync: zeros are written ahead and synced with the entries
#        of one group, for the next 32,768 entries; bytes of blocks that are on the disk already are
#        only handed to it (push_data) before the one sync of the log, which empties the disk's
#        cache. On a file system that does not keep this promise, or on another disk than the log's,
#        the file is synced each time. All of it is in checksums_push, which the group commit's
#        watcher watches.
#   CS5  An entry is never believed against a log that somebody else may have written: recovery
#        drops what does not fit before anybody looks (recovery/entries.py).
#   CS6  Of an entry and its record the entry is wrong where one bit of its CRC differs (no bit of a
#        record makes that difference), or where its CRC is right and an end beside it is not. The record
#        is judged as one without a checksum then. One wrong end hides no other record: what the search
#        does not find where it leads is looked for in all entries.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.layout cimport CHECKSUM_ENTRY_SIZE

cdef enum:
    CHECKSUMS_AT_ONCE = 4096          # entries of one write

cdef enum ChecksumVerdict:
    CHECKSUM_NONE = 0                 # the entries do not reach so far
    CHECKSUM_UNKNOWN = 1              # they do, and say that nothing is known
    CHECKSUM_RIGHT = 2
    CHECKSUM_WRONG = 3
    CHECKSUM_ASTRAY = 4               # the entry is damaged itself: it says nothing of the record (CS6)

cdef struct ChecksumFile:             # of the segment that is written; one thread
    int fd                            # -1: none
    int64_t base                      # where its segment starts
    int64_t segment_size
    int64_t count                     # entries
    int64_t end                       # of the last one, in its segment
    int folder_fd                     # sync mode: its folder until the name is on the disk, else -1
    int64_t prepared                  # bytes that the file has; sync mode: zeros ahead are among them
    int64_t on_disk                   # sync mode: bytes whose blocks are on the disk
    int64_t dirty                     # where bytes begin that were not pushed, -1: all were
    bint to_disk                      # sync mode
    bint pushes                       # CS4 holds without a sync
    uint8_t entries[CHECKSUMS_AT_ONCE * CHECKSUM_ENTRY_SIZE]

# The file of the segment at `base`, made if need be, whose records end at log position `end`. What is
# not covered before it gets an entry without a CRC. `c` is written to only if it works. 0 or errno.
cdef int checksums_open(ChecksumFile* c, const char* folders, int64_t base, int64_t segment_size,
                        int64_t end, bint to_disk) noexcept nogil
cdef void checksums_close(ChecksumFile* c) noexcept nogil
# Takes the place of what is open in `c`.
cdef void checksums_replace(ChecksumFile* c, ChecksumFile* other) noexcept nogil
# Entries for the whole records in `size` bytes that are going to lie at `position`. 0 or errno, then
# none of them counts.
cdef int checksums_put(ChecksumFile* c, const uint8_t* records, int64_t size,
                       int64_t position) noexcept nogil
# The last entries never were: the log ends at a position before them.
cdef void checksums_take_back(ChecksumFile* c, int64_t count, int64_t end) noexcept nogil
# Sync mode: on the disk with the next sync of the log (CS4). 0 or errno.
cdef int checksums_push(ChecksumFile* c) noexcept nogil

# Which of `count` places has the entry of the record that begins at `start`, or covers it; `count`:
# none has. *hint: where to look first, then where it is.
cdef int64_t checksum_find(const uint8_t* entries, int64_t count, int64_t start,
                           int64_t* hint) noexcept nogil
# What the entries say of the record at [start, end) of the segment, of which `length` bytes count.
cdef int checksum_judge(const uint8_t* entries, int64_t count, int64_t start, int64_t end,
                        const uint8_t* record, int64_t length, int64_t* hint) noexcept nogil
cdef int64_t checksum_end(const uint8_t* entries, int64_t number) noexcept nogil   # of entry `number`
