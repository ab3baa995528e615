# The topics of the broker's own that native code stores records in, or treats unlike others.
from libc.stdint cimport int32_t, uint8_t

from mqcore.text cimport is_literal, literal_length, starts_with

cdef extern from *:
    """
    #define MQ_SCHEDULE_TOPIC "SCHEDULE_TOPIC_XXXX"
    #define MQ_HALF_TOPIC "RMQ_SYS_TRANS_HALF_TOPIC"
    #define MQ_OP_TOPIC "RMQ_SYS_TRANS_OP_HALF_TOPIC"
    #define MQ_GIVEN_UP_TOPIC "TRANS_CHECK_MAX_TIME_TOPIC"
    #define MQ_LIVES_TOPIC "rmq_sys_queue_lives"
    #define MQ_TIMER_TOPIC "rmq_sys_wheel_timer"
    enum {
      MQ_SCHEDULE_TOPIC_LENGTH = sizeof(MQ_SCHEDULE_TOPIC) - 1,
      MQ_HALF_TOPIC_LENGTH = sizeof(MQ_HALF_TOPIC) - 1,
      MQ_OP_TOPIC_LENGTH = sizeof(MQ_OP_TOPIC) - 1,
      MQ_GIVEN_UP_TOPIC_LENGTH = sizeof(MQ_GIVEN_UP_TOPIC) - 1,
      MQ_TIMER_TOPIC_LENGTH = sizeof(MQ_TIMER_TOPIC) - 1
    };
    """
    const char* SCHEDULE_TOPIC "MQ_SCHEDULE_TOPIC"      # delayed messages, until they are due
    const char* HALF_TOPIC "MQ_HALF_TOPIC"              # half messages, until they are ended
    const char* OP_TOPIC "MQ_OP_TOPIC"                  # which half messages are ended
    const char* GIVEN_UP_TOPIC "MQ_GIVEN_UP_TOPIC"      # half messages that were asked about too often
    const char* LIVES_TOPIC "MQ_LIVES_TOPIC"            # where the lives of queues end (queue/lives.pxd)
    const char* TIMER_TOPIC "MQ_TIMER_TOPIC"            # messages with a time of delivery, until then
    enum:
        SCHEDULE_TOPIC_LENGTH "MQ_SCHEDULE_TOPIC_LENGTH"
        HALF_TOPIC_LENGTH "MQ_HALF_TOPIC_LENGTH"
        OP_TOPIC_LENGTH "MQ_OP_TOPIC_LENGTH"
        GIVEN_UP_TOPIC_LENGTH "MQ_GIVEN_UP_TOPIC_LENGTH"
        TIMER_TOPIC_LENGTH "MQ_TIMER_TOPIC_LENGTH"


cdef inline bint is_schedule_topic(const uint8_t* name, int32_t length) noexcept nogil:
    return is_literal(name, length, SCHEDULE_TOPIC)


cdef inline bint is_half_topic(const uint8_t* name, int32_t length) noexcept nogil:
    return is_literal(name, length, HALF_TOPIC)


cdef inline bint is_timer_topic(const uint8_t* name, int32_t length) noexcept nogil:
    return is_literal(name, length, TIMER_TOPIC)


cdef inline bint holds_others(const uint8_t* name, int32_t length) noexcept nogil:
    """A topic whose messages were sent to other topics."""
    return (is_schedule_topic(name, length) or is_half_topic(name, length)
            or is_timer_topic(name, length) or is_literal(name, length, GIVEN_UP_TOPIC))


cdef inline bint is_retry_topic(const uint8_t* name, int32_t length) noexcept nogil:
    """%RETRY%...: what a group consumes again; no group has an empty name."""
    return length > literal_length("%RETRY%") and starts_with(name, length, "%RETRY%")


cdef inline bint is_light_name(const uint8_t* name, int32_t length) noexcept nogil:
    """%LMQ%...: a light queue, or a group of one (remoting.md 6.8)."""
    return length > literal_length("%LMQ%") and starts_with(name, length, "%LMQ%")
