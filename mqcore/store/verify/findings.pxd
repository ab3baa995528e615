# What the native passes of verification find: kind, place, two numbers. report.py has the
# words, and how bad each kind is.
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

cpdef enum:
    FINDINGS_MAX = 65536
    FINDINGS_OF_A_KIND_MAX = 48       # kept with their place, unless asked otherwise; all are counted

cpdef enum FindingKind:                # `number`: the queue's, or the index file's; else unused
    FOUND_BAD_RECORD = 0              # position; expected: where reading goes on; found: result
    FOUND_UNREADABLE = 1              # position; found: errno
    FOUND_BLANK_SIZE = 2              # position
    FOUND_NO_BLANK = 3                # position
    FOUND_FIELD = 4                   # position; detail: Field; found: its value
    FOUND_OFFSET_GAP = 5              # queue; position; expected, found: queue offsets; detail:
                                      # position of the queue's record before
    FOUND_ENTRY_POSITION = 6          # queue; position: of the record; detail: queue offset; found
    FOUND_ENTRY_SIZE = 7
    FOUND_ENTRY_TAG = 8
    FOUND_ENTRY_STRAY = 9             # queue; detail: queue offset; found: position in the entry
    FOUND_ENTRY_BEYOND = 10
    FOUND_ENTRY_ORDER = 11            # expected: more than this position
    FOUND_ENTRY_GARBAGE = 12
    FOUND_ENTRY_HOLE = 13             # detail: first offset without one; found: position behind
    FOUND_EXT_UNIT = 14               # queue; detail: queue offset; found: place in the ext files
    FOUND_QUEUE_UNREADABLE = 15       # queue; detail: queue offset; found: errno
    FOUND_INDEX_HEADER = 16           # index file; detail: IndexField
    FOUND_INDEX_ENTRY = 17            # index file; detail: entry number; position; IndexField
    FOUND_INDEX_CHAIN = 18            # index file; detail: entry number
    FOUND_INDEX_SLOT = 19             # index file; detail: slot
    FOUND_INDEX_STRAY = 20            # index file; detail: entry number; position
    FOUND_INDEX_SECONDS = 21
    FOUND_INDEX_BEYOND = 22
    FOUND_INDEX_OPEN_SLOT = 23        # a slot that names the entry which was to be written next
    FOUND_KINDS = 24

cpdef enum Field:
    FIELD_QUEUE_ID = 0
    FIELD_QUEUE_OFFSET = 1
    FIELD_SYS_FLAG = 2
    FIELD_STORE_TIME = 3
    FIELD_BORN_PORT = 4
    FIELD_STORE_PORT = 5
    FIELD_RECONSUME_TIMES = 6
    FIELD_TOPIC = 7
    FIELD_MULTI_DISPATCH = 8

cpdef enum IndexField:
    INDEX_FIELD_COUNT = 0
    INDEX_FIELD_SLOTS_USED = 1
    INDEX_FIELD_BEGIN_POSITION = 2
    INDEX_FIELD_END_POSITION = 3
    INDEX_FIELD_BEGIN_TIME = 4
    INDEX_FIELD_END_TIME = 5
    INDEX_FIELD_HASH = 6
    INDEX_FIELD_ORDER = 7
    INDEX_FIELD_ENTRY_0 = 8

cdef struct Finding:
    int32_t kind
    int32_t number
    int64_t position
    int64_t detail
    int64_t expected
    int64_t found

cdef struct Findings:
    int64_t counts[FOUND_KINDS]
    int32_t kept
    int32_t of_a_kind_max
    Finding items[FINDINGS_MAX]

cdef inline void findings_open(Findings* f) noexcept nogil:
    memset(f.counts, 0, sizeof(f.counts))
    f.kept = 0
    f.of_a_kind_max = FINDINGS_OF_A_KIND_MAX

cdef inline void find(Findings* f, int32_t kind, int32_t number, int64_t position, int64_t detail,
                      int64_t expected, int64_t found) noexcept nogil:
    f.counts[kind] += 1
    if f.counts[kind] > f.of_a_kind_max or f.kept >= FINDINGS_MAX:
        return
    f.items[f.kept] = Finding(kind=kind, number=number, position=position, detail=detail,
                              expected=expected, found=found)
    f.kept += 1
