# POP over remoting (pop.md 5): requests of 5.x's remoting clients, which serving processes hand on as they
# came (serving/pops.pxd), and their answers.
#
#   RM1  A ring's answers go through a connection without a socket, the *link*: its output is what waits for
#        the ring, and while that is more than a connection may have unread (transport N2), no further frame
#        of that ring is taken. Its id asks the coordinator.
#   RM2  An ack or a change is answered behind the turn's pop_flush: with an error if its record could not be
#        written.
#   RM3  A request that waits is a Call without a session. It is given up when its connection has ended.
#   RM4  Offsets in an answer ascend within each queue: clients find a message's handle by its rank.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from mqcore.layout cimport SERVING_COUNT_MAX
from mqcore.net.grpc.pairs cimport Pair
from mqcore.net.grpc.protobuf cimport PbWriter
from mqcore.net.grpc.streams cimport Call
from mqcore.net.transport.transport cimport Connection
from mqcore.shm.ring cimport Ring
from mqcore.wire.header cimport SignedFields

cdef enum:
    REMOTE_BUCKETS = 1 << 12
    REMOTE_ACKS_MAX = 4096             # of a turn
    REMOTE_BATCH_MAX = 32
    NOTE_CONNECTION = 0                # Call.notes of a request over remoting: its connection ...
    NOTE_LINK = 1                      # ... the serving process ...
    NOTE_CODE = 2                      # ... its RequestCode ...
    NOTE_QUEUE = 3                     # ... and the only queue that it is about, -1: all

cdef struct RemoteAsker:
    uint64_t connection
    int32_t link
    int32_t opaque
    bint oneway

cdef struct RemoteAck:                 # RM2
    RemoteAsker asker
    int32_t code
    const char* remark                 # NULL: none
    bint changes                       # then the delivery's new name:
    int64_t pop_ms
    int64_t invisible_ms
    int32_t revive_queue

cdef struct RemoteMessage:             # of the answer that is being made
    int32_t queue_id
    int32_t attempts                   # before this delivery, in the queue
    int64_t offset

cdef struct Remote:
    int32_t count                      # links: serving processes but this one
    Connection* links[SERVING_COUNT_MAX]
    Ring[SERVING_COUNT_MAX] pops
    Ring[SERVING_COUNT_MAX] answers
    int32_t[SERVING_COUNT_MAX] sent    # bytes of a link's first answer that are in its ring
    Call* held[REMOTE_BUCKETS]         # RM3, by connection
    int32_t held_count
    SignedFields fields                # of the request at hand
    RemoteAck* acks
    int32_t ack_count
    PbWriter body                      # records of the answer that is being made
    RemoteMessage[REMOTE_BATCH_MAX] messages
    int32_t message_count
    int64_t pop_ms
    int64_t rest
    Pair* pair
    int64_t invisible_ms
    bint fifo
