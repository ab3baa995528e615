# What a client asks for and what it is told, in no protocol's words: a front (RocketMQ's is
# mqcore/net/remoting) reads its frames into these, and serving's functions serve them.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.shm.access cimport AccessAccount
from mqcore.net.transport.transport cimport Connection
from mqcore.wire.header cimport Text

cdef enum Handled:                     # what became of a request
    HANDLED = 0                        # answered, on its way, or needs no answer
    HANDLE_STALL = 1                   # a ring is full (transport N3)
    HANDLE_FORWARD = 2                 # the coordinator decides
    HANDLE_CLOSE = 3                   # its connection is closed
    HANDLE_WAIT = 4                    # as HANDLE_STALL, but no ring is full
    HANDLE_DENIED = 5                  # its account may not: who asked says so

cdef enum:
    GROUP_BYTES_MAX = 256
    TOPIC_BYTES_MAX = 128

cdef struct Asker:                     # who is answered, and how
    int32_t opaque                     # comes back with the answer
    bint binary                        # of the two forms that a front may have
    bint oneway                        # nothing is answered

cdef struct SendRequest:
    Asker asker
    uint8_t[TOPIC_BYTES_MAX] topic
    int32_t topic_length
    int32_t queue_id                   # negative: any
    int32_t sys_flag
    int32_t flag
    int32_t reconsume_times
    bint batch                         # `body` is a batch (store.md 2.10)
    int64_t born_time_ms
    const uint8_t* born_host           # as a record has it
    int32_t born_host_size
    Text properties                    # as a record has them; escapes are undone where they are stored
    const uint8_t* body
    int32_t body_length

cdef struct SendAnswer:
    Asker asker
    int32_t code                       # RocketMQ's response codes
    const char* remark                 # NULL: none
    bint stored                        # then the rest counts
    int32_t queue_id
    int64_t queue_offset               # of its first message
    int32_t message_count
    const int64_t* log_positions       # one each
    const uint8_t* recall_handle       # of a message with a time of delivery
    int32_t recall_handle_length       # 0: none

cdef struct PullRequest:
    Asker asker
    uint8_t[GROUP_BYTES_MAX] group
    int32_t group_length
    uint8_t[TOPIC_BYTES_MAX] topic
    int32_t topic_length
    int32_t queue_id
    int64_t offset
    int32_t count_max
    bint replays                       # it reads what is there, as much as an answer may bring
    int64_t wait_ms                    # how long it may be held; 0: not at all
    bint commits
    int64_t commit_offset
    bint brings_filter                 # or it selects by what its group subscribed to ...
    int64_t version                    # ... at least that new
    Text filter_type                   # absent: tags
    Text filter

cdef struct EndRequest:                # of a transaction
    Asker asker
    uint8_t[GROUP_BYTES_MAX] group
    int32_t group_length               # -1: longer than a group's name can be
    int64_t decision                   # SYS_FLAG_COMMIT, SYS_FLAG_ROLLBACK; 0: not known yet
    int64_t half_offset
    int64_t log_position               # of the half message
    const AccessAccount* account       # that has to be allowed to publish it; NULL: all may

cdef struct PullAnswer:
    Asker asker
    int32_t code                       # RESPONSE_SUCCESS, _SYSTEM_ERROR or one of _PULL_
    const char* remark
    int32_t broker                     # where to read from next
    int64_t next_offset
    int64_t min_offset
    int64_t max_offset
    int32_t message_count
    int64_t bytes                      # of all records
    const uint8_t* const* records      # as the log has them
    const int32_t* sizes

# How a front says what serving has to say; each connection belongs to one. What has no room is
# dropped with its connection (memory N11). What has to be decided, and what is neither a send nor a
# pull, it asks of the coordinator as a command of RocketMQ's (serving/handler.pxd).
cdef struct Front:
    void* self                         # goes with each call
    int64_t (*bytes_came)(void* self, Connection* c, uint8_t* data, int64_t length) noexcept nogil
    void (*say_sent)(void* self, Connection* c, const SendAnswer* answer) noexcept nogil
    void (*say_pulled)(void* self, Connection* c, const PullAnswer* answer) noexcept nogil
    # A code and a remark alone (NULL: none).
    void (*say)(void* self, Connection* c, const Asker* asker, int32_t code,
                const char* remark) noexcept nogil
    # What the coordinator says, as a frame of RocketMQ's (remoting.md 1.1), whole: the answer to a
    # command, with its opaque and in its form, or a word of its own, in any form.
    void (*say_frame)(void* self, Connection* c, const uint8_t* frame, int64_t length) noexcept nogil
    # NULL where it needs neither: a connection ends; a turn does, before its output is sent.
    void (*closing)(void* self, Connection* c) noexcept nogil
    # Returns when (steady ms) it wants the next one at the latest.
    int64_t (*turn_ends)(void* self) noexcept nogil
    # Whether something came that only this front knows.
    bint (*waits)(void* self) noexcept nogil
