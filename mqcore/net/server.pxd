# One serving process: its connections, its rings, its held pulls and parked requests.
#
#   N1  Lengths are checked before memory is taken; a buffer grows with the bytes that came.
#   N2  A connection whose answers are not read is not read either (OUT_HIGH_BYTES); requests of it
#       that are here already wait in its buffer. Past OUT_MAX_BYTES it is closed.
#   N3  When a ring is full the request stays in its connection's buffer, the connection is not read,
#       and it goes on when there is room: no request is dropped, and no other connection waits.
#   N4  A connection is known outside by its id: serving index, generation, slot. An answer for an id
#       that is gone is dropped.
#   N5  At most FORWARDS_MAX frames of one connection wait for the coordinator; its next one waits
#       in the connection's buffer as in N3: a flood delays others by that many frames.
#   N6  What a connection did not ask for (a question about a transaction) is dropped while it has
#       more than OUT_OFFER_BYTES unread. The coordinator is told who does not read (OUT_HIGH_BYTES),
#       and who reads again, so that it asks others.
#   N7  While the coordinator is asked about a send, later sends of its connection to the same topic
#       do not pass it: they are asked about as well, or wait as in N3.
#   N8  What a peer sent one-way before it went is handled, whatever is full and however it went:
#       clients commit their offsets and close at once.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from mqcore.filter.loaded cimport FilterCache, LoadedFilter
from mqcore.layout cimport OffsetCommit, WorkerSlot
from mqcore.net.cold cimport ColdReader
from mqcore.shm.pull_counts cimport PullCounts
from mqcore.shm.ring cimport Ring
from mqcore.shm.segment cimport Shm
from mqcore.store.queue.consume_queue cimport QueueFiles
from mqcore.store.log.view cimport LogView
from mqcore.store.queue.extension cimport QueueExtension

cdef enum:
    READ_BYTES = 1 << 18               # one read of a socket
    OUT_HIGH_BYTES = 1 << 20           # N2
    OUT_OFFER_BYTES = 4 << 20          # N6
    OUT_MAX_BYTES = 32 << 20           # N2: answers that were asked for before; more than any one
    FORWARD_BYTES_MAX = 384 << 10      # a frame that goes to the coordinator whole
    FORWARDS_MAX = 32                  # frames of one connection that wait for the coordinator (N5)
    LONG_PART_BYTES = 64 << 10         # of a frame that goes there in parts ...
    LONG_PART_SHARE = 8                # ... each of which counts as that many frames in N5
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

cdef enum CloseReason:                 # of a connection that we close
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
    bint fast_port
    uint8_t address[16]
    uint8_t address_is_v6
    uint16_t port
    uint8_t host[20]                   # as a record's born host
    int32_t host_size
    bint held_back                     # N2: its input is looked at again when output has gone
    int32_t forwards                   # N5: its frames in `requests`, at most
    int64_t forwards_end               # N5: where the newest of them ends
    bint told_unread                   # N6: the coordinator knows that it does not read
    bint hung_up                       # N8: its peer is gone; what it sent is handled, then it is closed
    bint waits                         # stalled for something of its own, not for room in a ring
    int32_t long_sent                  # bytes of its first frame that are in `requests` already
    int32_t long_place                 # of Server.long_frames, + 1; 0: none
    int32_t asked_count                # N7: its sends that are parked ...
    uint16_t asked[9]                  # ... by bucket of their topic; the last: topic not known

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

cdef struct HeldPull:
    uint64_t connection
    Asker asker
    int32_t queue                      # number in the queue table, -1: the queue is not born yet
    uint64_t queue_hash
    int32_t queue_id
    uint8_t topic_length
    uint8_t topic[127]
    int32_t next                       # of the same list, or of the free list; -1: last
    int32_t count_max
    int64_t offset                     # that was asked for
    int64_t cursor                     # entries below it were looked at and did not match
    int64_t deadline_ms                # steady clock
    int64_t tell_ms                    # steady clock: then it is told how far the cursor is
    int64_t cold_job                   # the read that it waits for, if it is in the list `cold`
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
    int32_t* dirty
    int32_t dirty_count
    bint hung_up                       # N8: one is to be looked at now
    int32_t* stalled
    int32_t stalled_count
    uint8_t* scratch
    int64_t idle_ms_max
    # rings
    Ring appends
    Ring results
    Ring arrivals
    Ring requests
    Ring answers
    int64_t in_flight                  # appends without a result yet
    int32_t writer_incarnation
    int32_t dispatcher_incarnation
    int32_t coordinator_incarnation
    # store
    LogView log
    QueueFiles queues
    QueueExtension extension
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
    int32_t* held_of_queue             # first held pull + 1 by queue number
    int32_t unborn                     # first held pull + 1 of queues without a number
    int32_t queues_known               # queue count when the unborn were looked at last
    int32_t cold                       # first held pull + 1 that waits for the disk
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
    uint64_t random
    # clocks of this turn
    int64_t now_ms                     # wall
    int64_t steady_ms
    int64_t tick_ms                    # steady: when timers were looked at last
    int64_t held_look_ms               # ... and every held pull
    int64_t idle_look_ms               # ... and every connection
    # log lines for Python
    CloseEvent events[64]
    int32_t event_count
    int64_t events_lost
    char illegal[256]                  # the remark of MESSAGE_ILLEGAL, with the limits
    uint64_t answer_connection         # whose frame comes in parts
    bint long_frames[4]                # LONG_FRAMES_MAX places of frames that go in parts: taken
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
cdef void forget_from(int32_t* slots, int32_t* count, int32_t slot) noexcept nogil   # of a slot list
cdef uint32_t next_random(Server* s) noexcept nogil
