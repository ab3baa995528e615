# The timer wheel: which messages are due in which second, on disk in stock 5's own files, so that a
# stock 5 broker continues with what is pending, and this one with a stock broker's (timer.md 1).
#
#   timerwheel     WHEEL_SLOTS slots of 32 bytes; slot s is at s % WHEEL_SLOTS:
#                    | second i64 | first unit i64 | last unit i64 | units i32 | magic i32 |
#   timerlog/*     files of TIMER_FILE_SIZE bytes, units of 52 bytes one after the other:
#                    | size i32 | previous unit of the slot i64 | magic i32 | write time ms i64 |
#                    | delay ms i32 | log position i64 | record size i32 | topic hash i32 | state i64 |
#   config/timercheck   | next second in ms i64 | end of the timer log i64 | queue offset i64 | the same i64 |
#                       and at 2048 | next second i64 | queue offset i64 |, which tell whose words they are
#
# All big-endian. A slot holds the messages that are due in (1000 s, 1000 s + 1000] ms. Stock writes 0
# into a unit's last field and does not read it; it is the unit's state here.
#
#   TW1  A unit is whole before its slot points at it: a process that dies between the two leaves one
#        unit without a slot, the last one, and the next process links it.
#   TW2  Units stand in the order of their records: a record at or before that of the last unit is in
#        the wheel. The queue offset of `timercheck` may be behind that, never ahead.
#   TW3  Files are allocated before they are mapped: a full disk is an error code, never a signal.
#   TW4  A slot takes no second while it holds an unsettled one: what is WHEEL_SLOTS seconds ahead waits.
from libc.stdint cimport int32_t, int64_t, uint8_t

cdef enum:
    WHEEL_SLOTS = 2 * 7 * 86_400
    WHEEL_SLOT_SIZE = 32
    TIMER_UNIT_SIZE = 52
    TIMER_FILE_SIZE = 100 << 20
    TIMER_FILES_MAX = 128              # mapped: 258 million units
    TIMER_PATH_MAX = 4096

cdef enum TimerMagic:
    TIMER_DEFAULT = 1
    TIMER_ROLL = 2                     # stored again when its second comes: it is due later
    TIMER_DELETE = 4                   # takes a message back (TIMER_DEL_UNIQKEY)

cdef enum UnitState:
    UNIT_SETTLED = 1
    UNIT_LATE = 2                      # its second had begun already: it stands in a later slot

cdef struct TimerUnit:
    int64_t position                   # in the timer log
    int64_t previous                   # unit of the same slot, -1: none
    int32_t magic
    int64_t due_ms                     # store clock
    int64_t log_position
    int32_t size
    int32_t topic_hash                 # Java's, of the topic that it goes to
    int64_t second                     # of its slot
    int64_t state

cdef struct TimerWheel:
    uint8_t* slots                     # mapped; NULL: not open
    uint8_t* check                     # the mapped `timercheck`
    uint8_t* files[TIMER_FILES_MAX]
    int64_t first_file                 # number of files[0]
    int32_t file_count
    int64_t end                        # where the next unit stands
    int64_t last_log_position          # of the last unit's record, -1: there is none (TW2)
    int32_t last_size                  # of that record
    int64_t last_second                # the latest slot that has units, -1: none
    char root[TIMER_PATH_MAX]          # the store's folder

# 0 or errno. fresh: nothing of what is there counts.
cdef int wheel_open(TimerWheel* wheel, const char* root, bint fresh) noexcept nogil
cdef void wheel_close(TimerWheel* wheel) noexcept nogil
# A unit into the slot of its second; its position, or -errno.
cdef int64_t wheel_add(TimerWheel* wheel, const TimerUnit* unit, int64_t now_ms) noexcept nogil
# The last unit of a second's slot, -1: it is empty.
cdef int64_t wheel_last(const TimerWheel* wheel, int64_t second) noexcept nogil
cdef int32_t wheel_units(const TimerWheel* wheel, int64_t second) noexcept nogil
# The position behind a unit, or what may be one.
cdef int64_t wheel_behind(const TimerWheel* wheel, int64_t position) noexcept nogil
# Whether there is a unit at a position; without its bytes' sense being checked.
cdef bint wheel_unit(const TimerWheel* wheel, int64_t position, TimerUnit* unit) noexcept nogil
cdef void wheel_mark(TimerWheel* wheel, int64_t position, int64_t state) noexcept nogil
# The first second from `second` on whose slot has units, INT64_MAX: none.
cdef int64_t wheel_next(const TimerWheel* wheel, int64_t second) noexcept nogil
# The slot's units are forgotten: the next one begins it anew.
cdef void wheel_clear(TimerWheel* wheel, int64_t second) noexcept nogil
# The slot keeps only what is not settled: a stock broker knows no settled units. It takes the queue offset
# of the timer log's last unit as that of the last message, so none is written for it.
cdef void wheel_drop_settled(TimerWheel* wheel, int64_t second) noexcept nogil
# What `timercheck` says: the first second that is not settled, and the queue offset of TW2.
cdef void wheel_note(TimerWheel* wheel, int64_t second, int64_t queue_offset) noexcept nogil
cdef int64_t wheel_noted_second(const TimerWheel* wheel) noexcept nogil
cdef int64_t wheel_noted_offset(const TimerWheel* wheel) noexcept nogil
# Files all of whose units are of seconds before `second` go.
cdef void wheel_trim(TimerWheel* wheel, int64_t second) noexcept nogil
cdef int wheel_sync(TimerWheel* wheel) noexcept nogil
