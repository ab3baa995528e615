# What a pull selects by: the subscription that it brings, or that of its group's heartbeats.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.net.server cimport Match, Server
from mqcore.shm.tables cimport SubscriptionView
from mqcore.wire.header cimport Header

cdef struct Wanted:
    Match match
    SubscriptionView view             # whose codes match.codes are; number -1: the pull brought it

# All fill `wanted`, whose match.filter has to be given back; False: the coordinator has to look at it.
cdef bint wanted_given(Server* s, const Header* header, const uint8_t* topic, int32_t topic_length,
                       Wanted* wanted) noexcept nogil
cdef bint wanted_known(Server* s, const uint8_t* group, int32_t group_length, const uint8_t* topic,
                       int32_t topic_length, int64_t version, Wanted* wanted) noexcept nogil
# What subscription `number` says now.
cdef bint wanted_again(Server* s, int32_t number, Wanted* wanted) noexcept nogil
