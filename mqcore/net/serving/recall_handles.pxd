# Recall handles: what a client shows to take a message back before its time of delivery (timer.md 3).
#
# A send with such a time is noted until its result comes; results come in the order of their appends.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from mqcore.layout cimport TOPIC_LENGTH_MAX
from mqcore.net.identity cimport BROKER_NAME_MAX
from mqcore.wire.digits cimport NUMBER_LENGTH_MAX

cdef enum:
    TIMED_KEY_MAX = 128                # a message with a longer unique key gets no handle
    TIMED_SENDS_MAX = 8192             # without results; those beyond get none
    HANDLE_TEXT_MAX = 8 + TOPIC_LENGTH_MAX + BROKER_NAME_MAX + NUMBER_LENGTH_MAX + TIMED_KEY_MAX
    HANDLE_MAX = (HANDLE_TEXT_MAX + 2) // 3 * 4

cdef struct TimedSend:
    uint64_t connection
    int32_t opaque
    int64_t due_ms
    int32_t topic_length
    int32_t key_length
    uint8_t[TOPIC_LENGTH_MAX] topic
    uint8_t[TIMED_KEY_MAX] key

cdef struct TimedSends:
    TimedSend* at                      # a ring of TIMED_SENDS_MAX; NULL until the first
    int32_t first
    int32_t count

# The place for one, NULL: there is none.
cdef TimedSend* timed_send_add(TimedSends* sends) noexcept nogil
# The one of a request; those before it got no result.
cdef const TimedSend* timed_send_take(TimedSends* sends, uint64_t connection,
                                      int32_t opaque) noexcept nogil
# Its handle, HANDLE_MAX bytes of room; returns the length.
cdef int32_t recall_handle(const TimedSend* send, const uint8_t* broker, int32_t broker_length,
                           uint8_t* into) noexcept nogil
