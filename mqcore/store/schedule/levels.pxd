# What there is to deliver: each delay level's queue, its entries and their records, and the state
# of the scheduler around them.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.layout cimport CQ_ENTRY_SIZE, DELAY_LEVEL_MAX, AppendHead, StoreClock, WorkerSlot
from mqcore.shm.ring cimport Ring
from mqcore.shm.segment cimport Shm
from mqcore.store.log.append_end cimport AppendEnd
from mqcore.store.queue.consume_queue cimport QueueFiles, QueueItem
from mqcore.store.log.view cimport LogView
from mqcore.store.record cimport RecordView
from mqcore.store.schedule.book cimport Book
from mqcore.store.schedule.record cimport RealPlace
from mqcore.store.schedule.timer_state cimport Timer

cdef enum:
    FLIGHT_MAX = 2048                 # entries that wait for results: twice as many fit their ring
    CACHED_ENTRIES = 256              # read from a queue at a time
    LEVEL_NOTES_MAX = 64
    RECORD_LATER = -1

cpdef enum NoteKind:                   # why an entry was not delivered, for the log
    NOTE_UNREADABLE = 1               # no record where the entry points
    NOTE_NO_PLACE = 2                 # its properties do not say where it belongs
    NOTE_HALF = 3                     # a half message: dropped, as stock does
    NOTE_TOO_LARGE = 4                # no longer fits a segment under its real topic's name
    NOTE_LOG_BROKEN = 5               # the search of the log ended at `position`
    NOTE_RECALL_LOST = 6              # there is no room for that recall

# The name of what is handed over, in an append's `connection`: its own part, then a number that counts up
cdef enum:
    DELIVERY_NAME_BITS = 40
    DELIVERY_NUMBER_MASK = (1 << 23) - 1

cdef struct Note:
    int32_t kind
    int32_t level
    int64_t offset
    int64_t position

cdef struct Level:
    int64_t delay_ms
    int32_t queue                     # number in the queue table, -1: it has none yet
    int32_t life                      # of the queue whose entries are cached
    int64_t next                      # the next entry to be handed over
    int64_t limit                     # after a refusal: nothing from here on before it is reached
    int32_t flying                    # handed over, without result
    bint failed                       # one of them was refused: all results first, then again
    int64_t retry_ms                  # steady clock; 0: results are missing
    int64_t seen_end                  # of the queue, in an earlier turn
    int64_t cached_first
    int32_t cached_count
    uint8_t entries[CACHED_ENTRIES * CQ_ENTRY_SIZE]

cdef enum Phase:
    PHASE_SETTLING = 0                # delivery S5: results of what was handed over earlier
    PHASE_SEARCHING = 1               # delivery S5: the log
    PHASE_DELIVERING = 2
    PHASE_ENDING = 3                  # nothing more is handed over

cdef struct Scheduler:
    Shm* shm
    WorkerSlot* slot
    Book book
    StoreClock clock                  # our copy of the run's
    LogView log
    QueueFiles queues
    AppendEnd appends
    Ring arrivals
    int phase
    bint unknown                      # the writer died: what is in flight, the log says
    int64_t awaited                   # the first result waits for the log to be published to it
    int32_t level_count
    Level levels[DELAY_LEVEL_MAX + 1]  # the last is the timer's queue (timer.pxd)
    Timer timer
    int64_t turn_ms                    # steady, of this turn
    int32_t flying
    int32_t sent                      # number of the last append; they count up, modulo 2^23
    int32_t answered                  # of the last result
    int32_t wanted_bytes              # an append that found no room, 0: none
    int64_t search_position
    int64_t search_end
    Note notes[LEVEL_NOTES_MAX]
    int32_t notes_count
    int32_t notes_lost

cdef void levels_find_queues(Scheduler* s) noexcept nogil
# Delivery of a level begins where the book says; number: from 0.
cdef void level_begin(const Book* book, Level* level, int32_t number) noexcept nogil
# Up to where a level's queue has entries (delivery S7); keeps its offset in the queue's range.
cdef int64_t level_end(Scheduler* s, const Level* level) noexcept nogil
cdef void level_keep_in_range(Scheduler* s, int32_t number) noexcept nogil
# The entry at a queue offset below `most`; False: it cannot be read now.
cdef bint level_entry(Scheduler* s, int32_t number, int64_t offset, int64_t most,
                      QueueItem* item) noexcept nogil
cdef bint entry_at(Scheduler* s, Level* level, int64_t offset, int64_t most,
                   QueueItem* item) noexcept nogil
# The record at a published position, of any topic; NULL: none can be read there. The caller decides
# whether it is another use of the log (view L2).
cdef const uint8_t* record_at(Scheduler* s, int64_t position, RecordView* record) noexcept nogil
# The checked record of `size` bytes at a position: 0, NOTE_UNREADABLE, or RECORD_LATER.
cdef int checked_record(Scheduler* s, int64_t position, int64_t size, const uint8_t** at,
                        RecordView* record) noexcept nogil
# An append that was claimed and has its record goes to the writer; its result names level and `name`.
cdef void hand_in(Scheduler* s, AppendHead* head, int32_t number, int64_t name, int32_t size,
                  int32_t sys_flag) noexcept nogil
# The delayed record of an entry, and where it belongs: 0, a NoteKind, or RECORD_LATER.
cdef int delayed_record(Scheduler* s, const QueueItem* item, const uint8_t** at,
                        RecordView* delayed, RealPlace* place) noexcept nogil
cdef void note_skip(Scheduler* s, int kind, int32_t number, int64_t offset,
                    int64_t position) noexcept nogil
