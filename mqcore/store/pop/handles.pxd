# Receipt handles in stock's text (pop.md 3): what a consumer shows to acknowledge a delivery.
#
#   RH1  Numbers are digits without a sign, below POP_TIME_MAX_MS or POP_OFFSET_MAX; a queue id is
#        one that a topic may have. Fields are parted by one blank each. Anything else is no handle.
#   RH2  Whatever a handle says, only its queue, offset and pop time are believed, and only when they name
#        the latest delivery (pop PO3). The log position serves dead letters: a reader checks the record
#        there against topic, queue and offset.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.wire.digits cimport NUMBER_LENGTH_MAX

cdef enum:
    HANDLE_BROKER_MAX = 255
    RECEIPT_MAX = HANDLE_BROKER_MAX + 8 * (NUMBER_LENGTH_MAX + 1)
    REVIVE_QUEUE_FIFO = 999
    NO_LOG_POSITION = -1               # remoting's handles have none

cdef enum TopicKind:
    TOPIC_ITSELF = 0
    TOPIC_RETRY = 1                    # %RETRY%group_topic
    TOPIC_RETRY_V2 = 2                 # %RETRY%group+topic

cdef struct Receipt:
    int64_t start_offset               # of the batch
    int64_t pop_ms
    int32_t invisible_ms
    int32_t revive_queue
    int32_t topic_kind
    const uint8_t* broker              # in the text
    int32_t broker_length
    int32_t queue_id
    int64_t offset
    int64_t log_position

# Its text, RECEIPT_MAX bytes of room; returns the length. The broker's name has 1 to HANDLE_BROKER_MAX bytes, no
# blank.
cdef int32_t receipt_write(const Receipt* receipt, uint8_t* into) noexcept nogil
cdef bint receipt_parse(const uint8_t* text, int32_t length, Receipt* receipt) noexcept nogil  # RH1
