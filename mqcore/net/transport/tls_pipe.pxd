# OpenSSL's end of a connection: the bytes that it takes from the socket and gives to it, and the steps
# of a handshake. In whose hands a pipe is, `state` says (shake_thread.pxd).
from libc.stdint cimport int64_t, uint64_t

from mqcore.tls.library cimport TlsLibrary

cdef enum PipeState:
    PIPE_HERE = 0                      # the loop's
    PIPE_ASKED = 1                     # it waits for the thread
    PIPE_TAKEN = 2                     # the thread's
    PIPE_BACK = 3                      # the step is done
    PIPE_LEFT = 4                      # its connection has ended: whoever has it lets go of it

cdef enum PipeTrouble:                 # `error`, beside those of OpenSSL
    PIPE_DONE = 0
    PIPE_NO_MEMORY = -1

cdef struct TlsPipe:
    int64_t state                      # PipeState
    uint64_t id                        # of its connection
    void* context                      # SSL_CTX, a reference, until `ssl` is made of it
    void* ssl                          # NULL: not made yet, or its handshake has failed
    int fd
    bint drained                       # in this call: its socket had no more
    bint ended                         # its socket did
    int64_t work                       # tls TL8: what this call has done, and may do
    int64_t work_max
    int64_t empty_bytes                # that came since there was data in them (tls TL6)
    int error                          # of the last step: what OpenSSL calls it, or PipeTrouble
    unsigned long code                 # of a step that failed: what OpenSSL says, 0: nothing
    long verified                      # and of the peer's certificate

cdef enum:
    SHAKE_STEP_WORK = 100_000          # of records in a step; an honest flight has a dozen

cdef void pipe_use(const TlsLibrary* library) noexcept nogil             # before there is a pipe
cdef TlsPipe* pipe_open(void* context, int fd, uint64_t id) noexcept nogil     # NULL: no memory
# The end of who connects to `host`, a name or an address, which the certificate has to name where it
# `verifies` that; NULL: no memory, or a name that none can have.
cdef TlsPipe* pipe_connect(void* context, int fd, const char* host, bint verifies) noexcept nogil
cdef void pipe_step(TlsPipe* pipe) noexcept nogil                        # of its handshake
cdef void pipe_let_go(TlsPipe* pipe) noexcept nogil                      # of all but the struct
cdef void pipe_close(TlsPipe* pipe) noexcept nogil                       # and of that
