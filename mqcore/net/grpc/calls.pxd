# The gRPC front's state, and answers that are a Status.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from mqcore.layout cimport TOPIC_LENGTH_MAX
from mqcore.net.grpc.pairs cimport Pairs
from mqcore.net.grpc.protobuf cimport PbReader, PbWriter
from mqcore.net.grpc.remote cimport Remote
from mqcore.net.grpc.streams cimport Call, Door
from mqcore.net.requests cimport GROUP_BYTES_MAX, Front
from mqcore.net.serving.handler cimport RequestHandler
from mqcore.net.serving.offset_commits cimport OffsetCommits
from mqcore.net.serving.scan cimport StoreReader
from mqcore.net.serving.wanted cimport Wants
from mqcore.shm.access cimport AccessAccount
from mqcore.shm.segment cimport Shm
from mqcore.store.pop.handles cimport HANDLE_BROKER_MAX
from mqcore.store.pop.state cimport PopClock, PopState

cdef enum:
    DEAD_MAX = 256                     # messages on their way to dead letters
    LEAVING_MAX = 4096
    ACK_NOTES_MAX = 1024
    BOOT_MAX = 64
    REMARK_MAX = 1024                  # of what the coordinator says

cdef struct Asked:                     # a ReceiveMessageRequest
    const uint8_t* group
    int32_t group_length
    const uint8_t* topic
    int32_t topic_length
    int32_t queue_id
    int32_t filter_type
    const uint8_t* filter
    int32_t filter_length
    int32_t batch
    int64_t invisible_ms               # -1: not said
    bint renew
    int64_t poll_ms                    # -1: not said
    const uint8_t* attempt_id
    int32_t attempt_length
    # over remoting
    bint filter_escaped                # holds JSON's escapes
    bint one_queue                     # queue_id, though the group is not FIFO
    bint order                         # one batch of a queue after another, as in a FIFO group
    bint from_min                      # a group without an offset begins at the first message

cdef struct DeadLetter:                # dead_letters GD1
    uint64_t connection                # that it was sent for
    int32_t call                       # which is answered; 0: none
    uint8_t[GROUP_BYTES_MAX] group
    int32_t group_length
    uint8_t[TOPIC_LENGTH_MAX] topic
    int32_t topic_length
    int32_t queue_id
    int64_t offset                     # -1: the place is free
    int64_t pop_ms
    int32_t invisible_ms

cdef struct AckNote:
    uint64_t connection
    int32_t call

cdef struct Leaving:                   # a client whose connection has ended
    int32_t client                     # of the state of POP
    int64_t until_ms                   # steady: then its messages are visible

cdef struct Grpc:
    Door door
    RequestHandler* handler
    Shm* shm
    PbWriter out                       # of the answer that is being made
    uint8_t* properties                # of the send that is being made
    int32_t body_max
    # access control, of the call at hand
    const AccessAccount* account       # NULL: nothing is to be checked
    const uint8_t* access_key
    int32_t access_key_length
    const char* denied                 # of the last refusal
    int32_t access_seen                # authorization GA2: the sequence of the rules
    # receives
    const Front* front                 # this one
    PopState pops
    Remote remote
    Pairs pairs
    StoreReader* reader
    Wants* wants
    OffsetCommits* commits
    uint8_t* interest                  # held H1
    uint8_t[HANDLE_BROKER_MAX + 1] broker_name
    int32_t broker_name_length
    char[BOOT_MAX] boot                      # of the machine
    int32_t forget_hand                # the queue of POP that was looked at last (turns)
    AckNote[ACK_NOTES_MAX] acked       # acks GR2: of this turn
    int32_t acked_count
    int journal_failed                 # an error since it was asked last (front)
    int journal_error                  # of the last write of config/popState; 0: none
    DeadLetter[DEAD_MAX] dead
    Leaving[LEAVING_MAX] leaving
    int32_t leaving_count
    int64_t leave_ms                   # steady: when the next one is given up
    bint waits_for_births
    int32_t births_seen
    int64_t commit_ms                  # steady
    int64_t due_ms                     # steady: when something is to be done next

# A Status as field `number` of the answer that is being made.
cdef void put_status(Grpc* g, int32_t number, int32_t code, const uint8_t* text,
                     int64_t length) noexcept nogil
# An answer that is a Status and nothing more; text: NULL is none.
cdef void say_status(Grpc* g, Call* call, int32_t code, const char* text) noexcept nogil
cdef void say_status_bytes(Grpc* g, Call* call, int32_t code, const uint8_t* text,
                           int64_t length) noexcept nogil
# How long it may wait for messages at most, from its begin on (ms): not beyond its deadline.
cdef int64_t wait_most(const Call* call) noexcept nogil
cdef PopClock pop_clock(Grpc* g) noexcept nogil
# The field at hand: the name of a Resource (False: it is broken), the milliseconds of a Duration (-2: out of
# bounds).
cdef bint read_name(const PbReader* r, const uint8_t** name, int32_t* length) noexcept nogil
cdef int64_t read_duration(const PbReader* r) noexcept nogil
# Likewise the topic and number of a MessageQueue, the type and text of a FilterExpression.
cdef void read_message_queue(const PbReader* r, const uint8_t** topic, int32_t* length,
                             int32_t* queue_id) noexcept nogil
cdef void read_filter(const PbReader* r, int32_t* type, const uint8_t** text,
                      int32_t* length) noexcept nogil
# Of a Timestamp or Duration: its seconds, as they are, and its nanoseconds.
cdef int64_t read_seconds(const PbReader* r, int64_t* nanos) noexcept nogil
