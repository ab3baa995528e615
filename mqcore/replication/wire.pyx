"""TLS under a link of a followed log (wire.pxd has the rules)."""
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from mqcore.net.transport.tls_context cimport VERIFY_RESULT_SHIFT
from mqcore.net.transport.tls_pipe cimport PIPE_DONE, pipe_close, pipe_use
from mqcore.store.io cimport store_io
from mqcore.tls.library cimport SSL_ERROR_WANT_READ, SSL_ERROR_WANT_WRITE

cdef enum:
    READ_MAX = 1 << 30                # lengths are int in OpenSSL

cdef const TlsLibrary* wire_ssl = NULL


cdef void wire_use(const TlsLibrary* library) noexcept nogil:
    global wire_ssl
    wire_ssl = library
    pipe_use(library)


cdef void note_trouble(Wire* w, unsigned long code, long verified) noexcept nogil:
    w.trouble = <int64_t>(<uint32_t>code) | (<int64_t>verified << VERIFY_RESULT_SHIFT)


cdef WireShake wire_shaken(Wire* w) noexcept nogil:
    if w.pipe.error == SSL_ERROR_WANT_READ or w.pipe.error == SSL_ERROR_WANT_WRITE:
        return WIRE_WAITS
    if w.pipe.error == PIPE_DONE:
        w.record = <uint8_t*>malloc(WIRE_RECORD_BYTES)
        w.pipe.empty_bytes = 0
        return WIRE_SHAKEN if w.record != NULL else WIRE_FAILED
    if not w.pipe.ended:
        note_trouble(w, w.pipe.code, w.pipe.verified)
    return WIRE_FAILED


cdef int64_t failed(Wire* w, int result, bint reads) noexcept nogil:
    """After a call that brought nothing: as link_read."""
    cdef int error = wire_ssl.SSL_get_error(w.pipe.ssl, result)
    if error == SSL_ERROR_WANT_READ or error == SSL_ERROR_WANT_WRITE:
        return -1
    if reads and not w.pipe.ended and wire_ssl.ERR_peek_error():
        note_trouble(w, wire_ssl.ERR_peek_error(), wire_ssl.SSL_get_verify_result(w.pipe.ssl))
    wire_ssl.ERR_clear_error()
    return -2


cdef int64_t wire_read_tls(Wire* w, void* into, int64_t size) noexcept nogil:
    cdef int64_t total = 0
    cdef int got = 0
    w.pipe.drained = False
    w.pipe.work = 0
    w.pipe.work_max = INT64_MAX
    wire_ssl.ERR_clear_error()
    while total < size:
        got = wire_ssl.SSL_read(w.pipe.ssl, <uint8_t*>into + total,
                                <int>min(size - total, <int64_t>READ_MAX))
        if got <= 0:
            break
        w.pipe.empty_bytes = 0
        total += got
    return total if total > 0 else failed(w, got, True)


cdef int64_t wire_flush(Wire* w) noexcept nogil:
    cdef int sent
    if w.record_size == 0:
        return 1
    wire_ssl.ERR_clear_error()
    sent = wire_ssl.SSL_write(w.pipe.ssl, w.record, w.record_size)
    if sent <= 0:
        return failed(w, sent, False)
    w.record_size = 0                  # one record, which is written whole or not at all
    return 1


cdef int64_t put_record(Wire* w, int64_t size) noexcept nogil:
    """So many bytes are in it (HW2)."""
    w.record_size = <int>size
    return -2 if wire_flush(w) == -2 else size


cdef int64_t wire_write_tls(Wire* w, const void* data, int64_t size) noexcept nogil:
    cdef int64_t part = min(size, <int64_t>WIRE_RECORD_BYTES), before = wire_flush(w)
    if before < 0:
        return before
    memcpy(w.record, data, part)
    return put_record(w, part)


cdef int64_t wire_send_file_tls(Wire* w, int file, int64_t offset, int64_t size) noexcept nogil:
    cdef int64_t got, before = wire_flush(w)
    if before < 0:
        return before
    got = store_io().read_at(file, w.record, min(size, <int64_t>WIRE_RECORD_BYTES), offset)
    return put_record(w, got) if got > 0 else -2 if got < 0 else 0


cdef void wire_close(Wire* w, bint says) noexcept nogil:
    if w.pipe != NULL:
        if says and w.record != NULL and not w.pipe.ended:
            w.pipe.drained = True
            wire_ssl.SSL_shutdown(w.pipe.ssl)
            wire_ssl.ERR_clear_error()
        pipe_close(w.pipe)
    free(w.record)
    w.pipe = NULL
    w.record = NULL
    w.record_size = 0
