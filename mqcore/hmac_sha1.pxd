# HMAC-SHA1 without an object: an account's key is the two states that `hmac_key` leaves.
#
# A module that calls any of it calls `sha1_init` when it is loaded: each has a copy of its own.
from libc.stdint cimport uint8_t, uint32_t

cdef extern from "mq_hmac_sha1.h" nogil:
    enum:
        SHA1_SIZE "MQ_SHA1_SIZE"
        SHA1_WORDS "MQ_SHA1_WORDS"
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
