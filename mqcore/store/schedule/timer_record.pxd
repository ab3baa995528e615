# Records of the timer topic rmq_sys_wheel_timer, and the records that are made from them (timer.md 1).
#
# A message that asks for a time of delivery is stored there with REAL_TOPIC, REAL_QID, TIMER_DELIVER_MS
# and TIMER_OUT_MS, the begin of its second. It is delivered without the places and TIMER_OUT_MS, with
# TIMER_ENQUEUE_MS and TIMER_DEQUEUE_MS besides. A message that is due later than the wheel reaches is
# stored again, with TIMER_ROLL_TIMES one higher. The record of a recall has TIMER_DEL_UNIQKEY.
# The prepared position of what is made from a record is that record's log position: so the log says
# what was delivered.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.store.record cimport PropertyItem, RecordView
from mqcore.store.schedule.record cimport RealPlace

cdef enum:
    TIMER_PROPERTIES_MAX = 160         # what a made record's properties may be longer by
    TIMER_SECOND_MS = 1000

cdef struct TimedMessage:
    RealPlace place
    int64_t due_ms                     # store clock; -1: the record does not say when
    int64_t rolled                     # times
    PropertyItem recalled              # TIMER_DEL_UNIQKEY; value_length 0: it is a message
    PropertyItem unique                # UNIQ_KEY

# Reads a record of the timer topic: 0, or a NoteKind.
cdef int timed_message(const RecordView* record, TimedMessage* message) noexcept nogil
# Whether a record has the words of one that was made from a timed one; if so, whether it was made
# from this one.
cdef bint timed_is_made(const RecordView* made) noexcept nogil
cdef bint timed_is_made_from(const RecordView* made, const RecordView* record,
                             const TimedMessage* message) noexcept nogil
# Whether two records are of one message with one time.
cdef bint timed_is_twin(const RecordView* one, const TimedMessage* message,
                        const RecordView* other, const TimedMessage* found) noexcept nogil
# The record that delivers it, or, `rolls`, that keeps it waiting, into `into`: at most record.size +
# TOPIC_LENGTH_MAX + TIMER_PROPERTIES_MAX bytes. Returns its size; topic_start as in an AppendHead.
cdef int32_t timed_write(const uint8_t* at, const RecordView* record, const TimedMessage* message,
                         bint rolls, int64_t indexed_ms, int64_t now_ms, uint8_t* into,
                         int32_t* topic_start) noexcept nogil
