# What one client address, and one account, may use of this broker.
#
#   N17  Requests of an address or an account beyond its limits stay in their connections' buffers
#        (transport N3) until there is room; sends beyond its rate are refused (SYSTEM_BUSY, as
#        stock controls flow); connections beyond its number are closed. Others do not wait for it.
#        An account's limits hold from its first request of a connection, native or forwarded; a
#        request that access control refuses counts for its address.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from mqcore.layout cimport ADDRESS_V6_SIZE, EXEMPT_MAX
from mqcore.net.serving.peer cimport WHOSE_COUNT
from mqcore.net.transport.transport cimport Connection, Transport
from mqcore.shm.segment cimport Shm

cdef struct LimitRules:                # 0: without a limit
    int32_t connections
    int32_t in_flight
    int64_t bytes_a_second             # in and out
    int64_t messages_a_second          # that are sent

cdef struct AddressRange:
    uint8_t[ADDRESS_V6_SIZE] address
    uint8_t is_v6
    int32_t bits                       # of the address that count

cdef struct Limits:
    Transport* transport
    Shm* shm
    int32_t serving
    bint on                            # there is any limit
    LimitRules[WHOSE_COUNT] rules
    AddressRange[EXEMPT_MAX] exempt
    int32_t exempt_count

cdef void limits_opened(Limits* l, Connection* c) noexcept nogil
cdef void limits_closed(Limits* l, Connection* c) noexcept nogil
# Its requests are of this account (a hash, not 0) from now on.
cdef void limits_identified(Limits* l, Connection* c, uint64_t account) noexcept nogil
# Whether its next request waits.
cdef bint limits_hold(Limits* l, Connection* c) noexcept nogil
# A request of `bytes` was taken.
cdef void limits_taken(Limits* l, Connection* c, int64_t bytes) noexcept nogil
# Whose rate of sends is used up; -1: nobody's.
cdef int limits_refuse_send(Limits* l, Connection* c) noexcept nogil
# A send that access control refused counts for its address, as far as the rate lets sends pass: who
# floods does not shut others of his address out for longer than sends of his would.
cdef void limits_refused_send(Limits* l, Connection* c) noexcept nogil
# The writer has a send of so many messages; its answer is here.
cdef void limits_sent(Limits* l, Connection* c, int32_t messages, bint answered) noexcept nogil
cdef void limits_answered(Limits* l, Connection* c) noexcept nogil
# More, or fewer (negative), requests have no answer.
cdef void limits_fly(Limits* l, Connection* c, int32_t requests) noexcept nogil
# The writer is another one: its predecessor's answers will not come.
cdef void limits_forget_sends(Limits* l) noexcept nogil
