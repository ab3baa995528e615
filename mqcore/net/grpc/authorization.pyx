"""Verifies signatures of gRPC calls, and checks permissions."""
from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memchr, memcpy

from mqcore.hmac_sha1 cimport HMAC_SLACK, SHA1_SIZE, Sha1State, hmac_whole, sha1_init
from mqcore.net.grpc.streams cimport CREDENTIALS_MAX, DATE_MAX, Credentials
from mqcore.net.remoting.access cimport (
    ACCESS_GROUP,
    ACCESS_NO_KEY,
    ACCESS_SIGNATURE,
    ACCESS_TOPIC,
    ACCESS_UNKNOWN_KEY,
    AccessGuard,
    access_may,
    access_note_refusal,
    access_white,
)
from mqcore.net.requests cimport HANDLE_DENIED, HANDLE_FORWARD, HANDLE_WAIT
from mqcore.net.serving.limits cimport limits_identified
from mqcore.shm.access cimport (
    ACCESS_PUB,
    ACCESS_SUB,
    AccessAccount,
    access_account,
    access_is_on,
    access_is_white,
    access_look,
)
from mqcore.text cimport starts_with
from mqcore.wire.codes cimport REQUEST_GRPC_CALL

sha1_init()

cdef enum:
    SIGNATURE_DIGITS = 2 * SHA1_SIZE
    VERIFY_WORK = 400

cdef struct Signed:                    # of an authorization
    const uint8_t* key
    int32_t key_length
    const uint8_t* signature
    int32_t signature_length


cdef inline bint is_space(uint8_t one) noexcept nogil:
    return one == c' ' or one == c'\t'


cdef void take_part(Signed* signed, const uint8_t* start, const uint8_t* end) noexcept nogil:
    """One `name=value` of an authorization, with blanks around it."""
    cdef const uint8_t* equals
    cdef const uint8_t* slash
    while start < end and is_space(start[0]):
        start += 1
    while start < end and is_space((end - 1)[0]):
        end -= 1
    equals = <const uint8_t*>memchr(start, c'=', end - start) if start < end else NULL
    if equals == NULL:
        return
    equals += 1
    if starts_with(start, end - start, "Credential="):
        slash = <const uint8_t*>memchr(equals, c'/', end - equals) if equals < end else NULL
        signed.key = equals
        signed.key_length = <int32_t>((end if slash == NULL else slash) - equals)
    elif starts_with(start, end - start, "Signature="):
        signed.signature = equals
        signed.signature_length = <int32_t>(end - equals)


cdef void read_authorization(const Credentials* given, Signed* signed) noexcept nogil:
    """`ALGORITHM Credential=KEY/..., SignedHeaders=x-mq-date-time, Signature=HEX`"""
    cdef const uint8_t* at = &given.authorization[0]
    cdef const uint8_t* end = at + given.length
    cdef const uint8_t* comma
    signed.key_length = signed.signature_length = 0
    if not 0 < given.length <= CREDENTIALS_MAX:
        return
    at = <const uint8_t*>memchr(at, c' ', given.length)
    while at != NULL and at < end:
        comma = <const uint8_t*>memchr(at, c',', end - at)
        take_part(signed, at, end if comma == NULL else comma)
        if comma == NULL:
            return
        at = comma + 1


cdef inline int digit_of(uint8_t one) noexcept nogil:
    if c'0' <= one <= c'9':
        return one - c'0'
    one |= 0x20
    return one - c'a' + 10 if c'a' <= one <= c'f' else -1


cdef bint is_signed(const AccessAccount* account, const Credentials* given,
                    const Signed* signed) noexcept nogil:
    """HMAC-SHA1 of the date, in hex of either case; compared in the same time wherever it differs."""
    cdef uint8_t text[DATE_MAX + HMAC_SLACK]
    cdef uint8_t digest[SHA1_SIZE]
    cdef int i, high, low, differs = 0
    if signed.signature_length != SIGNATURE_DIGITS or not 0 < given.date_length <= DATE_MAX:
        return False
    memcpy(text, given.date, given.date_length)
    hmac_whole(<const Sha1State*>account.inner, <const Sha1State*>account.outer, text,
               given.date_length, digest)
    for i in range(SHA1_SIZE):
        high = digit_of(signed.signature[2 * i])
        low = digit_of(signed.signature[2 * i + 1])
        if high < 0 or low < 0:
            return False
        differs |= (high << 4 | low) ^ digest[i]
    return differs == 0


cdef int deny(Grpc* g, const Connection* c, int32_t reason, const Signed* signed,
              const char* text) noexcept nogil:
    access_note_refusal(g.handler.guard, c, REQUEST_GRPC_CALL, reason, signed.key, signed.key_length,
                        NULL, 0)
    g.denied = text
    return HANDLE_DENIED


cdef int authorize(Grpc* g, Connection* c, Call* call) noexcept nogil:
    cdef AccessGuard* guard = g.handler.guard
    cdef const AccessAccount* account
    cdef Signed signed
    g.account = NULL
    if not access_is_on(&guard.access):
        return HANDLE_FORWARD
    if not access_look(&guard.access):
        return HANDLE_WAIT                 # the coordinator has not shown the rules yet
    if access_white(guard, c, &call.session.access):
        return HANDLE_FORWARD
    signed.key_length = signed.signature_length = 0
    signed.key = NULL
    if call.credentials != NULL:
        read_authorization(call.credentials, &signed)
    if signed.key_length == 0:
        return deny(g, c, ACCESS_NO_KEY, &signed, "authorization: it names no access key")
    account = access_account(guard.access.table, signed.key, signed.key_length)
    if account == NULL:
        return deny(g, c, ACCESS_UNKNOWN_KEY, &signed, "authorization: its access key is not known")
    if account.address_count and access_is_white(guard.access.table, account.address_first,
                                                 account.address_count, c.address, c.address_is_v6):
        return HANDLE_FORWARD
    g.door.transport.work += VERIFY_WORK
    if not is_signed(account, call.credentials, &signed):
        return deny(g, c, ACCESS_SIGNATURE, &signed,
                    "authorization: its signature of x-mq-date-time is wrong")
    g.account = account
    g.access_key = signed.key
    g.access_key_length = signed.key_length
    if g.handler.limits.on:
        limits_identified(g.handler.limits, c, account.hash)
    return HANDLE_FORWARD


# -- permissions -------------------------------------------------------------------------------------

cdef void deny_topic(Grpc* g, const Connection* c, const uint8_t* topic, int32_t length) noexcept nogil:
    access_note_refusal(g.handler.guard, c, REQUEST_GRPC_CALL, ACCESS_TOPIC, g.access_key,
                        g.access_key_length, topic, length)
    g.denied = "the account has no permission for the topic"


cdef bint may_topic(Grpc* g, const Connection* c, const uint8_t* topic, int32_t length,
                    int needed) noexcept nogil:
    if access_may(g.handler.guard.access.table, g.account, False, topic, length, needed):
        return True
    deny_topic(g, c, topic, length)
    return False


cdef bint may_group(Grpc* g, const Connection* c, const uint8_t* group, int32_t length) noexcept nogil:
    if access_may(g.handler.guard.access.table, g.account, True, group, length, ACCESS_SUB):
        return True
    access_note_refusal(g.handler.guard, c, REQUEST_GRPC_CALL, ACCESS_GROUP, g.access_key,
                        g.access_key_length, group, length)
    g.denied = "the account has no permission for the group"
    return False


cdef bint may_publish(Grpc* g, const Connection* c, const uint8_t* topic, int32_t length) noexcept nogil:
    # to a retry topic its group sends back what it could not handle
    return g.account == NULL or may_topic(
        g, c, topic, length, ACCESS_SUB if starts_with(topic, length, "%RETRY%") else ACCESS_PUB)


cdef bint may_consume(Grpc* g, const Connection* c, const uint8_t* group, int32_t group_length,
                      const uint8_t* topic, int32_t topic_length) noexcept nogil:
    return g.account == NULL or (may_group(g, c, group, group_length)
                                 and may_topic(g, c, topic, topic_length, ACCESS_SUB))
