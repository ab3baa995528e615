"""TLS for loads: whoever answers is believed, since only the work is measured."""
from libc.stdint cimport int64_t, uint8_t

from mqcore.tls.library cimport (
    CTRL_MODE,
    CTRL_READ_AHEAD,
    MODE_MOVING_BUFFER,
    MODE_PARTIAL_WRITE,
    MODE_RELEASE_BUFFERS,
    SSL_ERROR_WANT_READ,
    SSL_ERROR_WANT_WRITE,
    tls_library,
)

cdef const char* SUITES = b"TLS_AES_128_GCM_SHA256"


cdef void* common = NULL               # what all sockets of the process are made with


cdef void* common_context(const TlsLibrary* library) except NULL:
    global common
    if common == NULL:
        common = library.SSL_CTX_new(library.TLS_client_method())
        if common == NULL:
            raise MemoryError
        library.SSL_CTX_set_ciphersuites(common, SUITES)
        library.SSL_CTX_ctrl(common, CTRL_MODE,
                             MODE_PARTIAL_WRITE | MODE_MOVING_BUFFER | MODE_RELEASE_BUFFERS, NULL)
        library.SSL_CTX_ctrl(common, CTRL_READ_AHEAD, 1, NULL)
    library.SSL_CTX_up_ref(common)
    return common


cdef class TlsSocket:
    """
    TLS 1.3 with AES-128-GCM over a connected TCP socket, which it takes over.

    Raises OSError when the handshake fails, TlsLibraryError.
    """

    def __cinit__(self, object plain not None):
        cdef const TlsLibrary* library = tls_library()
        cdef int done
        self.library = library
        self.plain = plain
        self.context = common_context(library)
        self.ssl = library.SSL_new(self.context)
        if self.ssl == NULL:
            raise MemoryError
        plain.setblocking(True)
        library.ERR_clear_error()
        library.SSL_set_fd(self.ssl, plain.fileno())
        library.SSL_set_connect_state(self.ssl)
        with nogil:
            done = library.SSL_do_handshake(self.ssl)
        if done != 1:
            plain.close()
            raise ConnectionError("TLS failed")

    def __dealloc__(self):
        if self.ssl != NULL:
            self.library.SSL_free(self.ssl)
        if self.context != NULL:
            self.library.SSL_CTX_free(self.context)

    cdef int64_t read(self, uint8_t* into, int64_t room) noexcept nogil:
        cdef int64_t total = 0
        cdef int got = 1
        self.library.ERR_clear_error()
        while total < room:
            got = self.library.SSL_read(self.ssl, into + total, <int>(room - total))
            if got <= 0:
                break
            total += got
            if not self.library.SSL_has_pending(self.ssl):
                break
        if total > 0:
            return total
        return self.outcome(got)

    cdef int64_t write(self, const uint8_t* data, int64_t length) noexcept nogil:
        cdef int sent
        self.library.ERR_clear_error()
        sent = self.library.SSL_write(self.ssl, data, <int>length)
        return sent if sent > 0 else self.outcome(sent)

    cdef int64_t outcome(self, int result) noexcept nogil:
        cdef int error = self.library.SSL_get_error(self.ssl, result)
        return TLS_LATER if error in (SSL_ERROR_WANT_READ, SSL_ERROR_WANT_WRITE) else TLS_GONE

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self.plain.close()

    def fileno(self) -> int:
        """The descriptor of its socket."""
        return self.plain.fileno()

    def setblocking(self, bint flag) -> None:
        """Whether calls wait."""
        self.plain.setblocking(flag)

    def sendall(self, bytes data) -> None:
        """Send all of it, in a connection that waits. Raises ConnectionError."""
        cdef const uint8_t* at = data
        cdef int64_t left = len(data)
        cdef int64_t sent
        while left > 0:
            sent = self.write(at, left)
            if sent < 0:
                raise ConnectionError("the connection ended")
            at += sent
            left -= sent

    def recv(self, int size) -> bytes:
        """Up to `size` bytes, in a connection that waits; none: the peer has gone."""
        cdef bytearray into = bytearray(size)
        cdef int64_t got = self.read(into, size)
        return bytes(into[:max(got, 0)])
