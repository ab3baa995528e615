# The structs of POP consumption (pop.pxd has the rules and the calls).
#
# A message is *unsettled* from its first delivery on until it is acknowledged. Only unsettled messages take
# memory, about 80 bytes each: whatever else lies below a queue's `next` is settled. An unsettled
# message is *invisible* (in the heap of due times) or *ready again* (in its queue's ready list).
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t

cdef enum:
    POP_MESSAGES_MAX = 1 << 20         # unsettled, of all queues
    POP_QUEUES_MAX = 1 << 17           # (group, topic, queue id)
    POP_CLIENTS_MAX = 1 << 16
    POP_QUEUE_MESSAGES_MAX = 10_000    # unsettled, of one queue (stock's popInflightMessageThreshold)
    POP_SHARE = 64                     # pop PO9
    POP_INVISIBLE_MAX_MS = 12 * 3_600_000
    POP_HELD_MAX_MS = 3 * 3_600_000    # of one delivery, renewed for a live client (pop PO7)
    POP_DROP_MS = 1000                 # until the messages of a client that went are visible
    POP_ATTEMPTS_MAX = 32_767
    POP_ATTEMPT_ID_MAX = 64
    POP_PATH_MAX = 4096
    POP_BOOT_LENGTH = 36               # characters of the machine's boot id
    MESSAGES_OF_CHUNK_BITS = 12
    MESSAGES_OF_CHUNK = 1 << MESSAGES_OF_CHUNK_BITS
    POP_CHUNKS_MAX = POP_MESSAGES_MAX // MESSAGES_OF_CHUNK

cdef extern from *:                    # no enum: these need 64 bits and a sign
    int64_t POP_TIME_MAX_MS "((int64_t)1 << 53)"
    int64_t POP_OFFSET_MAX "((int64_t)1 << 62)"

cdef enum:
    NO_MESSAGE = -1
    NO_CLIENT = -1
    NO_QUEUE = -1
    UNKNOWN_POSITION = -1
    READY_AGAIN = -1                   # PopMessage.place

cdef enum:                             # lists of queues that the owner has to look at
    POP_WOKEN = 0                      # pop_next_woken
    POP_COMMITS = 1                    # pop_next_commit
    POP_LISTS = 2

cdef struct PopClock:                  # asked once a turn
    int64_t steady_ms                  # due times
    int64_t wall_ms                    # pop times: they leave the process

cdef struct PopMessage:
    int64_t offset
    int64_t pop_ms                     # with the offset, the name of the delivery
    int32_t invisible_ms               # of the latest delivery or change
    int32_t queue
    int16_t attempts                   # deliveries
    int16_t renewals                   # left
    int32_t previous                   # of the queue, by offset
    int32_t next                       # also of the free list
    int32_t left                       # of the ready list, or of the client's list
    int32_t right
    int32_t client
    int32_t place                      # in the heap, READY_AGAIN

cdef struct PopDue:
    int64_t due_ms                     # steady
    int32_t message
    uint32_t order                     # among equal due times: the offset's low bits

cdef struct PopQueue:
    int32_t number                     # in PopState.queues
    int32_t queue_id
    int64_t life                       # the caller's number for the lives of group and topic; -1: read
                                       # from the file, not opened in this run
    int64_t next                       # the first offset that was never delivered
    int64_t proof_offset               # the highest offset below `next` whose record is known, -1: none
    int64_t proof_position             # where that is in the log (pop PO11)
    int64_t told                       # committed offset that the caller took last, -1: none
    int32_t first                      # unsettled, by offset
    int32_t last
    int32_t ready_first
    int32_t ready_last
    int32_t count                      # unsettled
    int32_t invisible                  # part of `count`
    int32_t room                       # of `places`, a power of two; 0: none
    int32_t* places                    # messages by their offset's hash
    bint fifo
    bint listed[POP_LISTS]             # by list
    int32_t next_listed[POP_LISTS]
    int64_t snapshot                   # the file that has it (journal.pxd)
    int64_t batch_end                  # FIFO: the latest batch is below it
    int32_t attempt_length
    uint8_t attempt_id[POP_ATTEMPT_ID_MAX]
    int32_t group_length
    int32_t topic_length
    uint8_t* names                     # the group, then the topic

cdef struct PopFile:
    int fd                             # -1: none
    int64_t size
    uint8_t* pending                   # records that are not written
    int32_t pending_length

cdef struct PopJournal:
    PopFile now
    PopFile new                        # that takes its place when it has all queues
    int64_t snapshot                   # number of the latest of the two
    int32_t cursor                     # the next queue of `new`
    bint behind                        # the file lacks something: only a new one has all
    bint loading
    int64_t retry_ms                   # steady: no new file before it
    int64_t torn_at                    # where the file that was read ended to be legible, -1: nowhere
    int64_t last_steady_ms             # of its last batch
    int64_t last_wall_ms
    char path[POP_PATH_MAX]
    char boot[POP_BOOT_LENGTH]

cdef struct PopState:
    PopMessage* chunks[POP_CHUNKS_MAX]
    int32_t messages_max
    int32_t made                       # messages that have memory
    int32_t used                       # part of `made`: were ever used
    int32_t free
    int32_t count                      # unsettled
    PopDue* heap
    int32_t heap_count
    PopQueue** queues
    int32_t queue_room
    int32_t queue_count
    int32_t queue_hand                 # where the next search for an idle queue begins
    int32_t number_hand
    int32_t* index                     # queues by the hash of their names
    int32_t index_room
    int32_t* clients                   # first message of each, NO_MESSAGE; CLIENT_FREE
    int32_t client_room
    int32_t client_count
    int32_t client_hand
    int64_t stamp_ms                   # the latest pop time
    int64_t freed_ms                   # the latest pop time of what became ready again
    int32_t first_listed[POP_LISTS]
    int32_t last_listed[POP_LISTS]
    PopJournal journal
