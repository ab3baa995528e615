# Signatures of requests that are made from templates (remoting.md 7).
#
# What is signed is fixed bytes, and between them what stands in the frame when it is done: a part is some
# of the one and then some of the other.
from libc.stdint cimport int32_t, uint8_t

from mqcore.hmac_sha1 cimport Sha1State

cdef enum:
    SIGNED_PARTS_MAX = 8

cdef struct SignedPart:
    const uint8_t* fixed
    int32_t fixed_size
    int32_t at                           # in the frame
    int32_t size

cdef struct SignedRequest:
    Sha1State inner
    Sha1State outer
    SignedPart[SIGNED_PARTS_MAX] parts
    int32_t part_count
    int32_t signature_at

cdef class Signing:
    cdef SignedRequest request
    cdef readonly int32_t end            # places lie before it
    cdef list kept                       # what the parts point into


# grown: how many bytes longer than in its template what stands at the place grows_at is.
cdef void request_sign(
    const SignedRequest* request, uint8_t* frame, int32_t grows_at, int32_t grown) noexcept nogil
