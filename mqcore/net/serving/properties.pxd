# The stored form of a send's properties (store.md 2.5, 2.12, 2.13), written in place in its record.
#
# Most sends are stored where they ask to be. Three take a detour: a delayed message waits in
# SCHEDULE_TOPIC_XXXX, one with a time of delivery in rmq_sys_wheel_timer, a half message in
# RMQ_SYS_TRANS_HALF_TOPIC; its properties then name the place where it was sent to. A detour is
# known when the properties have been read, so those of such a record are written twice; its body and
# CRC stay.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.net.identity cimport Identity
from mqcore.store.record cimport PropertyItem
from mqcore.wire.header cimport Text

cdef enum Detour:
    DETOUR_NONE = 0
    DETOUR_DELAY = 1
    DETOUR_HALF = 2
    DETOUR_TIMER = 3

cdef enum:
    PROPERTIES_BAD = -1                # too long, or no valid text
    PROPERTIES_ASK = -2                # the coordinator knows what to say of them
    REAL_PLACE_MAX = 192               # bytes of REAL_TOPIC and REAL_QID with their separators
    TIMER_WORDS_MAX = 80               # of TIMER_DELIVER_MS and TIMER_OUT_MS with theirs

cdef struct AskedTime:                 # of delivery, in the order in which stock looks at them
    int64_t delay_s                    # TIMER_DELAY_SEC, -1: none
    int64_t delay_ms                   # TIMER_DELAY_MS
    int64_t deliver_ms                 # TIMER_DELIVER_MS
    bint wrong                         # one is no number

cdef struct PropertyNotes:
    bint waits                         # WAIT is not false
    bint half                          # TRAN_MSG is true
    int32_t delay_level                # DELAY, 0 or less: none
    bint timed                         # asks for a time of delivery of its own, as 5.x has it
    AskedTime time
    PropertyItem unique                # UNIQ_KEY, in the record being written; value_length 0: none

# Returns the length, or PROPERTIES_. Without a detour WAIT and properties that do not count are left
# out, and CLUSTER is added. With a detour WAIT stays, a level above the highest is lowered to the
# highest, a half message has no delay and was never checked before, the timer's own properties are
# left out, and the caller adds the real place.
cdef int32_t write_properties(const Identity* identity, int32_t delay_level_count,
                              const Text* properties, uint8_t* into, int32_t capacity, int detour,
                              PropertyNotes* notes) noexcept nogil
# Whether some property of a text asks for a time of delivery.
cdef bint asks_for_time(const uint8_t* properties, int32_t length) noexcept nogil
cdef void time_begin(AskedTime* time) noexcept nogil
# Whether a property asks for a time of delivery; what it says is noted.
cdef bint time_asked(AskedTime* time, const PropertyItem* item) noexcept nogil
# When a message that is stored at store_ms is to be delivered, in ms since 1970; 0: at once; -1: it
# asks for no valid time.
cdef int64_t time_due(const AskedTime* time, int64_t store_ms) noexcept nogil
# TIMER_DELIVER_MS and TIMER_OUT_MS behind `length` bytes of properties; returns the new length.
cdef int32_t add_time(uint8_t* properties, int32_t length, int64_t due_ms) noexcept nogil
# REAL_TOPIC and REAL_QID behind `length` bytes of properties; returns the new length.
cdef int32_t add_real_place(uint8_t* properties, int32_t length, const uint8_t* topic,
                            int32_t topic_length, int32_t queue_id) noexcept nogil
