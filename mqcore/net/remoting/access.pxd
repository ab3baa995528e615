# Access control on the serving path: whether a request may be served (remoting.md 7).
#
#   AR3  Every request passes `access_check` before anything is done for it: who sends it is looked at
#        here (of a header that only the coordinator reads, there). What may be done is decided here for
#        sends, pulls and ends of transactions, for all others by the coordinator
#        (mqcore/broker/access.py) before it looks what is asked for: such a request travels without
#        `passed`, and is judged there from its first byte. What the coordinator gives back was decided.
#   AR4  What is signed is what is served: names and values are taken from the same places, and of
#        a name that comes twice both take the last value.
#   AR6  The access key is the first field that is signed. Only the layout may stand before it, in a
#        request that the coordinator decides, which checks it (mqcore/wire/signed.py).
#   AR5  What is signed has a bound: a body that is longer than any message may be is refused unread.
#
# Nothing is made for a request but a digest.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t

from mqcore.hmac_sha1 cimport HMAC_SLACK
from mqcore.layout cimport ADDRESS_V6_SIZE
from mqcore.net.identity cimport Identity
from mqcore.net.remoting.frames cimport AccessShare, Request
from mqcore.net.transport.transport cimport Connection, Transport
from mqcore.shm.access cimport Access, AccessAccount, AccessTable
from mqcore.wire.header cimport SignedFields

cdef enum:
    REFUSALS_MAX = 64                  # that are kept for the log
    REFUSAL_KEY_MAX = 64               # bytes of an access key that are told
    REFUSAL_NAME_MAX = 136             # of a topic or group
    REMARK_MAX = 384
    SIGNED_TEXT_MAX = 2048             # bytes that are signed in one piece

cpdef enum AccessReason:
    ACCESS_NO_KEY = 1
    ACCESS_UNKNOWN_KEY = 2
    ACCESS_SIGNATURE = 3
    ACCESS_TOPIC = 4
    ACCESS_GROUP = 5
    ACCESS_FIELDS = 6                  # AR6

cdef struct AccessRefusal:
    int32_t reason                     # AccessReason
    int32_t code                       # of the request
    uint8_t address[ADDRESS_V6_SIZE]
    uint8_t address_is_v6
    uint16_t port
    int32_t key_length
    uint8_t key[REFUSAL_KEY_MAX]
    int32_t name_length
    uint8_t name[REFUSAL_NAME_MAX]

cdef struct AccessGuard:
    Access access
    Transport* transport
    const Identity* identity
    AccessRefusal[REFUSALS_MAX] refusals
    int32_t refusal_count
    int64_t refusals_lost
    uint8_t[REMARK_MAX] remark
    SignedFields fields                # of the request that is looked at
    uint8_t[SIGNED_TEXT_MAX + HMAC_SLACK] text     # some of what it is signed for

# Handled: HANDLE_FORWARD goes on, with `passed` and `account` set; the others as they are.
cdef int access_check(AccessGuard* g, Connection* c, Request* request) noexcept nogil
# The answer of a refusal, unless it is one-way; HANDLED.
cdef int access_refuse(AccessGuard* g, Connection* c, const Request* request, int32_t reason,
                       const uint8_t* name, int32_t length) noexcept nogil
# For other fronts, below. Whether an address needs no account, by the global list; looked up once for a
# connection, which keeps `own`, and a state of the rules.
cdef bint access_white(AccessGuard* g, const Connection* c, AccessShare* own) noexcept nogil
# Whether an account has one of the bits `needed`. retry_of: the name is a group's, and its retry topic is
# meant.
cdef bint access_may(const AccessTable* table, const AccessAccount* account, bint retry_of,
                     const uint8_t* name, int32_t length, int needed) noexcept nogil
# A refusal is counted, and kept for the log. key: the access key, as given; name: a topic's or group's.
cdef void access_note_refusal(AccessGuard* g, const Connection* c, int32_t code, int32_t reason,
                              const uint8_t* key, int32_t key_length, const uint8_t* name,
                              int32_t length) noexcept nogil
# Whether an account may publish to a topic: what is known only when a request is served.
cdef bint access_may_publish(const AccessGuard* g, const AccessAccount* account, const uint8_t* topic,
                             int32_t length) noexcept nogil
