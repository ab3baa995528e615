"""Signatures of requests that are made from templates."""
from libc.stdint cimport int32_t, uint8_t

from mqcore.hmac_sha1 cimport (
    SHA1_SIZE,
    SIGNATURE_LENGTH,
    Hmac,
    hmac_add,
    hmac_begin,
    hmac_end,
    hmac_key,
    sha1_init,
    signature_store,
)

sha1_init()


cdef void request_sign(
    const SignedRequest* request, uint8_t* frame, int32_t grows_at, int32_t grown) noexcept nogil:
    cdef Hmac hmac
    cdef uint8_t digest[SHA1_SIZE]
    cdef const SignedPart* part
    cdef int32_t i
    hmac_begin(&hmac, &request.inner)
    for i in range(request.part_count):
        part = &request.parts[i]
        hmac_add(&hmac, part.fixed, part.fixed_size)
        hmac_add(&hmac, frame + part.at + (grown if part.at > grows_at else 0),
                 part.size + (grown if part.at == grows_at else 0))
    hmac_end(&hmac, &request.outer, digest)
    signature_store(
        frame + request.signature_at + (grown if request.signature_at > grows_at else 0), digest)


cdef class Signing:
    """
    How requests from one template are signed.

    secret: of the account. parts: (fixed bytes, place in the frame, bytes there), in the order in
    which they are signed. signature_at: where the signature stands. Raises ValueError.
    """

    def __cinit__(self, bytes secret, list parts, int32_t signature_at):
        cdef SignedPart* part
        cdef bytes fixed
        if len(parts) > SIGNED_PARTS_MAX:
            raise ValueError(f"signing: {len(parts)} parts, expected at most {SIGNED_PARTS_MAX}")
        hmac_key(secret, len(secret), &self.request.inner, &self.request.outer)
        self.request.signature_at = signature_at
        self.end = signature_at + SIGNATURE_LENGTH
        self.kept = []
        for fixed, at, size in parts:
            if at < 0 or size < 0 or signature_at < 0:
                raise ValueError("signing: expected places in the frame")
            part = &self.request.parts[self.request.part_count]
            part.fixed = fixed
            part.fixed_size = <int32_t>len(fixed)
            part.at = at
            part.size = size
            self.kept.append(fixed)
            self.request.part_count += 1
            self.end = max(self.end, part.at + part.size)
