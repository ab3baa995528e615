# One serving process: its connections, its rings, its held pulls and parked requests.
#
#   N1  Lengths are checked before memory is taken; a buffer grows with the bytes that came.
#   N2  A connection whose answers are not read is not read either (`out_high`); requests of it
#       that are here already wait in its buffer. Past OUT_MAX_BYTES it is closed.
#   N3  When a ring is full the request stays in its connection's buffer, the connection is not read,
#       and it goes on when there is room: no request is dropped, and no other connection waits.
#   N4  A connection is known outside by its id: incarnation and index of the serving process,
#       generation, slot. An answer for an id that is gone is dropped; so the coordinator knows by
#       the incarnation alone whose connections ended with their process.
#   N5  What the coordinator has of one connection and has not done is bounded (FORWARDS_MAX shares,
#       FORWARD_SHARE_BYTES), and so is what it has of all (ALL_FORWARDS_MAX, ALL_FORWARD_BYTES; who
#       has nothing there, and what others' lives depend on, passes): it says what is done
#       (ANSWER_TAKEN). What is beyond waits in its connection's buffer as in N3.
#   N6  What a connection did not ask for (a question about a transaction) is dropped while it has
#       more than OUT_OFFER_BYTES unread. The coordinator is told who does not read (OUT_HIGH_BYTES),
#       and who reads again, so that it asks others.
#   N7  While the coordinator is asked about a send, later sends of its connection to the same topic
#       do not pass it: they are asked about as well, or wait as in N3.
#   N8  What a peer sent one-way before it went is handled, whatever is full and however it went:
#       clients commit their offsets and close at once.
#   N14  The coordinator hears of the end of every connection that it knew, and that one reads again:
#       such a word waits for room (Server.words), and no later frame goes before it.
#   N15  Frames that go to the coordinator in parts have LONG_FRAMES_MAX places a process, given in the
#       order in which connections asked: who has had one stands behind all who wait.
#
# N9 and N10 are in work.pxd, N11 to N13 in memory.pxd.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from mqcore.filter.loaded cimport FilterCache, LoadedFilter
from mqcore.layout cimport OffsetCommit, WorkerSlot
from mqcore.net.cold cimport ColdReader
from mqcore.net.slots cimport SlotList
from mqcore.shm.pull_counts cimport PullCounts
from mqcore.shm.ring cimport Ring
from mqcore.shm.segment cimport Shm
from mqcore.store.queue.consume_queue cimport QueueFiles
from mqcore.store.log.named cimport NamedRecords
from mqcore.store.log.view cimport LogView
from mqcore.store.queue.extension cimport QueueExtension

cdef enum:
    READ_BYTES = 1 << 18               # one read of a socket
    OUT_HIGH_BYTES = 1 << 20           # N2
    OUT_OFFER_BYTES = 4 << 20          # N6
    OUT_MAX_BYTES = 32 << 20           # N2: answers that were asked for before; more than any one
    FORWARD_BYTES_MAX = 384 << 10      # a frame that goes to the coordinator whole
    FORWARDS_MAX = 32                  # N5
    FORWARD_SHARE_BYTES = 1 << 20      # N5: or one frame
    ALL_FORWARDS_MAX = 2048            # N5, of one serving process
    ALL_FORWARD_BYTES = 48 << 20
    URGENT_BYTES = 16 << 20            # N5: more for heartbeats, goodbyes, locks and commits
    SMALL_FRAME_BYTES = 4096           # N5: who has nothing there may send such a one
    LONG_PART_BYTES = 64 << 10         # of a frame that goes there in parts ...
    LONG_HEADER_MAX = 64 << 10         # beside the largest body
    ASKED_BUCKETS = 8                  # topics by hash; one more for sends whose topic is not known
    PARKED_COUNT_MAX = 4096
    PARKED_BYTES_MAX = 64 << 20
    PARKED_LIFE_MS = 10000
    ORPHAN_LIFE_MS = 2000              # of what was parked when the coordinator died, after its next start
    HELD_LIFE_MS_MAX = 600000
    PULL_RANGES_MAX = 1024
    SCAN_ENTRIES_MAX = 1024
    EVENTS_MAX = 64                    # log lines kept between two looks of the process
    COMMITS_MAX = 256
    NAME_MAX = 256
    VICTIMS_MAX = 16                   # who has to go next when memory is short (N12)

cpdef enum CloseReason:                 # of a connection that we close
    CLOSE_PEER = 0                     # the peer did, or the socket failed
    CLOSE_FRAME_LENGTH = 1
    CLOSE_HEADER_LENGTH = 2
    CLOSE_CODEC = 3
    CLOSE_HEADER = 4
    CLOSE_IDLE = 5
    CLOSE_LIMIT = 6                    # too many connections
    CLOSE_MEMORY = 7
    CLOSE_ASKED = 8                    # by the coordinator
    CLOSE_UNREAD = 9                   # too many answers that its peer does not read
    CLOSE_SHORT = 10                   # it held most when the memory for all was spent (N12)
    CLOSE_SLOW = 11                    # a frame comes too slowly

cdef struct Connection:
    int fd
    int32_t slot
    uint64_t id
    uint8_t* input                     # bytes that came and are not a whole request yet
    int32_t input_length
    int32_t input_capacity
    uint8_t* output                    # [output_start, output_end) waits to be sent
    int64_t output_start
    int64_t output_end
    int64_t output_capacity
    int64_t active_ms
    uint32_t interest                  # what epoll watches now
    bint dirty                         # has output of this turn
    bint stalled                       # N3
    bint known                         # the coordinator has heard of it
    uint8_t* heartbeat                 # its last one, for a coordinator that starts anew
    int32_t heartbeat_length
    int32_t heartbeat_capacity
    bint fast_port
    uint8_t address[16]
    uint8_t address_is_v6
    uint16_t port
    uint8_t host[20]                   # as a record's born host
    int32_t host_size
    bint held_back                     # N2: its input is looked at again when output has gone
    int32_t forwards                   # N5: shares of its frames with the coordinator ...
    int64_t forward_bytes              # ... and their bytes
    bint told_unread                   # N6: the coordinator knows that it does not read
    bint hung_up                       # N8: its peer is gone; what it sent is handled, then it is closed
    bint waits                         # stalled for something of its own, not for room in a ring
    int32_t long_sent                  # bytes of its first frame that are in `requests` already
    int32_t long_place                 # of Server.long_frames, + 1; 0: none
    int64_t long_ticket                # N15: its place in the line for one; 0: it wants none
    int32_t asked_count                # N7: its sends that are parked ...
    uint16_t asked[9]                  # ... by bucket of their topic; the last: topic not known
    int32_t parked_count               # all that is parked of it ...
    int64_t parked_bytes
    int64_t turn                       # N9: the turn that `work` was done in
    int64_t work
    int64_t heavy_until_ms             # it was late not long ago
    bint late                          # in Server.late
    bint yielded                       # whole frames may be in its buffer
    int32_t pulls                      # its held pulls, first + 1, the oldest first (H5)
    int32_t due                        # ... those that go on in its next slice
    int32_t pull_count
    int32_t cold_count                 # ... that wait for the disk
    int64_t filter_bytes               # of the filters that they hold
    int64_t memory                     # N11: of its buffers
    int64_t input_since_ms             # steady: when its unfinished frame began to come
    int64_t output_since_ms            # steady: how old its unread answers are
    int doomed                         # why it is closed at the end of the turn, 0: it is not
    int64_t doomed_detail

cdef struct Word:                      # N14
    uint64_t connection
    int32_t kind                       # FORWARD_

cdef struct CloseEvent:
    int32_t reason
    uint8_t address[16]
    uint8_t address_is_v6
    uint16_t port
    int64_t detail

cdef struct Asker:                     # how a pull is answered
    int32_t opaque
    bint binary
    int32_t broker_near                # where to read from next ...
    int32_t broker_far                 # ... and when what was read is far behind the log's end
    int32_t group                      # number in the group table, -1: it has none
    int64_t since_ms                   # steady clock: when it was taken up, from the beginning or anew

cdef struct Match:                     # which messages a pull wants
    int32_t kind                       # SUBSCRIPTION_
    int32_t code_count
    int32_t* codes                     # SUBSCRIPTION_TAGS
    LoadedFilter* filter               # SUBSCRIPTION_CODES, SUBSCRIPTION_OTHER: taken
    bint by_origin                     # of a retry topic: the filter of the topic they came from, too

cdef struct HeldLink:                  # of a circular list, by number
    int32_t next
    int32_t before

cdef enum:                             # the lists of held pulls
    HELD_PLACE = 0                     # of its queue, of the unborn queues, or of the disk (H1)
    HELD_OWNER = 1                     # of its connection
    HELD_DUE = 2                       # of its connection: in `due`

cdef struct HeldPull:
    uint64_t connection                # 0: the place is free
    HeldLink links[3]                  # by HELD_PLACE, HELD_OWNER, HELD_DUE
    int32_t seen                       # H7: the pass that it was looked at in
    bint is_due
    int64_t looked_ms                  # steady: when it was looked at last
    Asker asker
    int32_t queue                      # number in the queue table, -1: the queue is not born yet
    uint64_t queue_hash
    int32_t queue_id
    uint8_t topic_length
    uint8_t topic[127]
    int32_t count_max
    int64_t offset                     # that was asked for
    int64_t cursor                     # entries below it were looked at and did not match
    int64_t deadline_ms                # steady clock
    int64_t tell_ms                    # steady clock: then it is told how far the cursor is
    int64_t cold_job                   # the read that it waits for, in the list `cold`; 0: none
    int32_t cold_rounds                # how often it has waited for the same
    Match match                        # codes and filter are its own
    int32_t subscription               # entry that it follows, -1: it brought its own
    int32_t sequence                   # of that entry, when `match` was made of it

cdef struct ParkedRequest:
    int32_t id                         # 0: free
    uint64_t connection
    int64_t since_ms
    uint8_t* frame                     # without length word
    int32_t length
    int32_t header_length
    bint binary
    int32_t bucket                     # N7: of Connection.asked; -1: no send

cdef struct Server:
    Shm* shm
    WorkerSlot* slot
    int index                          # of this serving process
    int32_t incarnation
    int epoll
    int listeners[2]
    bint listener_fast[2]
    int listener_count
    bint stopping
    bint trim                          # large buffers were freed: give their pages back at the next look
    # connections
    Connection** connections
    int32_t connection_max
    int32_t connection_count
    int32_t* free_slots
    int32_t free_count
    uint32_t generation
    SlotList dirty
    bint hung_up                       # N8: one is to be looked at now
    SlotList stalled
    SlotList late                      # N9
    SlotList doomed                    # N12
    uint8_t* scratch
    int64_t idle_ms_max
    # work (N9); in units
    int64_t work                       # ever done
    int64_t turn                       # number of this turn
    int64_t turn_began
    int64_t slice                      # of everybody now, 0: as the rules say
    # memory (N11); in bytes
    int64_t memory_used
    int64_t memory_max
    int64_t memory_high
    int64_t memory_share
    int64_t out_high                   # N2: OUT_HIGH_BYTES, or less (N13)
    uint64_t handled                   # the connection whose frame is being handled
    uint64_t victims[16]               # VICTIMS_MAX
    int32_t victim_count
    # rings
    Ring appends
    Ring results
    Ring arrivals
    Ring requests
    Ring answers
    int32_t forwards                   # N5: shares of all connections' frames ...
    int64_t forward_bytes              # ... and their bytes
    Word* words                        # N14: two for each connection at most
    int32_t word_count
    int32_t repeat_at                  # slot whose heartbeat is repeated next; -1: none
    int64_t in_flight                  # appends without a result yet
    int32_t writer_incarnation
    int32_t dispatcher_incarnation
    int32_t coordinator_incarnation
    # store
    LogView log
    QueueFiles queues
    QueueExtension extension
    NamedRecords named                 # what peers name by its log position
    bint light_queues                  # topics %LMQ%... need no entry in the topic table
    uint8_t* entries                   # SCAN_ENTRIES_MAX consume queue entries
    int64_t memory_bytes               # records nearer to the log's end count as in memory
    int32_t memory_count_max
    int32_t memory_bytes_max
    int32_t disk_count_max
    int32_t disk_bytes_max
    # held pulls
    HeldPull* held
    int32_t held_capacity
    int32_t held_count
    int32_t held_free                  # first of the places that were given back, -1: none
    int32_t held_used                  # places that were ever taken
    int32_t* held_of_queue             # first held pull + 1 by queue number; the last: the unborn
    int32_t* passes                    # H7: by queue number, the pass over its pulls
    int32_t* due_queues                # H7: a ring of queues whose pulls are looked at
    uint8_t* queue_is_due
    int32_t due_first
    int32_t due_count
    int32_t held_walk                  # the place that is looked at next; held_used: none
    uint64_t heaviest                  # who holds most (H6) ...
    int64_t heaviest_turn              # ... in that turn
    int32_t queues_known               # queue count when the unborn were looked at last
    int32_t cold                       # first held pull + 1 that waits for the disk
    int32_t cold_count
    bint long_polling
    int64_t short_polling_ms
    # filters
    FilterCache filters
    bint filters_enabled               # enablePropertyFilter
    bint filter_retry                  # filterSupportRetry
    bint slave_read                    # slaveReadEnable
    ColdReader* cold_reader
    PullCounts pull_counts
    # parked requests
    ParkedRequest* parked
    int32_t parked_count
    int64_t parked_bytes
    int32_t parked_next
    uint8_t* answer                    # a frame that comes in parts
    int64_t answer_length
    int64_t answer_capacity
    # offsets that came with pulls
    OffsetCommit* commits
    int32_t commit_count
    # what this broker is
    uint8_t store_host[20]
    int32_t store_host_size
    uint8_t cluster_property[300]      # CLUSTER 0x01 name
    int32_t cluster_property_length
    uint8_t region[256]
    int32_t region_length
    bint trace_on
    int32_t body_max
    int32_t delay_level_count
    bint transactions_refused          # rejectTransactionMessage
    int64_t accept_sends_from_ms       # startAcceptSendRequestTimeStamp
    uint64_t random
    # clocks of this turn
    int64_t now_ms                     # wall
    int64_t steady_ms
    int64_t tick_ms                    # steady: when timers were looked at last
    int64_t held_look_ms               # ... held pulls not looked at since are looked at
    int64_t idle_look_ms               # ... and every connection
    # log lines for Python
    CloseEvent events[64]
    int32_t event_count
    int64_t events_lost
    char illegal[256]                  # the remark of MESSAGE_ILLEGAL, with the limits
    uint64_t answer_connection         # whose frame comes in parts
    bint long_frames[4]                # LONG_FRAMES_MAX places of frames that go in parts: taken
    int64_t long_tickets               # N15: that were given ...
    int64_t long_tickets_done          # ... and of these: that have had their place, or went away
    int64_t coordinator_since_ms       # steady: when the coordinator was last seen to be another one

cdef enum Handled:
    HANDLED = 0                        # answered, on its way, or needs no answer
    HANDLE_STALL = 1                   # N3
    HANDLE_FORWARD = 2                 # the coordinator decides
    HANDLE_CLOSE = 3
    HANDLE_WAIT = 4                    # as HANDLE_STALL, but no ring is full

cdef Connection* connection_find(Server* s, uint64_t id) noexcept nogil
cdef void connection_close(Server* s, Connection* c, int reason, int64_t detail) noexcept nogil
cdef Connection* connection_add(Server* s, int fd, bint fast_port) noexcept nogil
cdef uint8_t* output_room(Server* s, Connection* c, int64_t size) noexcept nogil  # NULL: no memory
cdef void output_used(Server* s, Connection* c, int64_t size) noexcept nogil
cdef void output_flush(Server* s, Connection* c) noexcept nogil
cdef void output_flush_all(Server* s) noexcept nogil
cdef void connection_watch(Server* s, Connection* c) noexcept nogil
cdef void connection_stall(Server* s, Connection* c) noexcept nogil
cdef void connection_hang_up(Server* s, Connection* c) noexcept nogil     # N8
cdef uint32_t next_random(Server* s) noexcept nogil
