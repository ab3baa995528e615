# HMAC-SHA1 without an object: an account's key is the two states that `hmac_key` leaves.
#
# A module that calls any of it calls `sha1_init` when it is loaded: each has a copy of its own.
from libc.stdint cimport uint8_t, uint32_t

cdef extern from "mq_hmac_sha1.h" nogil:
    enum:
        SHA1_SIZE "MQ_SHA1_SIZE"
        SHA1_WORDS "MQ_SHA1_WORDS"
        HMAC_SLACK "MQ_HMAC_SLACK"
    ctypedef struct Sha1State "mq_sha1_state_t":
        uint32_t words[5]
    ctypedef struct Hmac "mq_hmac_t":
        Sha1State state
    int sha1_instructions "mq_sha1_instructions"
    void sha1_init "mq_sha1_init"() noexcept
    void hmac_key "mq_hmac_key"(const uint8_t* key, size_t length, Sha1State* inner,
                                Sha1State* outer) noexcept
    void hmac_begin "mq_hmac_begin"(Hmac* hmac, const Sha1State* inner) noexcept
    void hmac_add "mq_hmac_add"(Hmac* hmac, const uint8_t* data, size_t length) noexcept
    void hmac_end "mq_hmac_end"(Hmac* hmac, const Sha1State* outer, uint8_t* digest) noexcept
    # Of one text, which has room for HMAC_SLACK more bytes and may be written over.
    void hmac_whole "mq_hmac_whole"(const Sha1State* inner, const Sha1State* outer, uint8_t* text,
                                    size_t length, uint8_t* digest) noexcept

cdef enum:
    SIGNATURE_LENGTH = 28              # of a digest in base64


cdef inline void signature_store(uint8_t* into, const uint8_t* digest) noexcept nogil:
    """A digest in base64; it ends in one byte of padding."""
    cdef const uint8_t* letters = (
        b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
    cdef int i
    cdef uint32_t three
    for i in range(7):
        three = <uint32_t>digest[3 * i] << 16 | <uint32_t>digest[3 * i + 1] << 8
        if i < 6:
            three |= digest[3 * i + 2]
        into[4 * i] = letters[three >> 18]
        into[4 * i + 1] = letters[three >> 12 & 63]
        into[4 * i + 2] = letters[three >> 6 & 63]
        into[4 * i + 3] = letters[three & 63]
    into[SIGNATURE_LENGTH - 1] = c'='
