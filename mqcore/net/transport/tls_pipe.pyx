"""What OpenSSL calls to reach a socket, and what it is called for in a handshake."""
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport calloc, free

from mqcore.atomics cimport load_i64_acquire
from mqcore.tls.library cimport EMPTY_BYTES_MAX, SSL_ERROR_WANT_READ, SSL_ERROR_WANT_WRITE

cdef extern from "<unistd.h>" nogil:
    ssize_t sys_read "read"(int fd, void* data, size_t size)

cdef extern from "<sys/socket.h>" nogil:
    ssize_t c_send "send"(int fd, const void* data, size_t size, int flags)
    int PIPE_FLAGS "(MSG_NOSIGNAL | MSG_DONTWAIT)"

cdef extern from "<arpa/inet.h>" nogil:
    int inet_pton(int family, const char* text, void* address)
    int AF_INET
    int AF_INET6

cdef enum:
    IPV6_BYTES = 16                    # of an address, the longest

cdef enum:                             # of OpenSSL
    BIO_FLAGS_READ = 0x01
    BIO_FLAGS_WRITE = 0x02
    BIO_FLAGS_SHOULD_RETRY = 0x08
    BIO_FLAGS_ALL = 0x0F
    BIO_CTRL_EOF = 2
    BIO_CTRL_FLUSH = 11
    BIO_KIND = 0x0400 | 0x80           # a source and sink, with a number of its own
    CTRL_MSG_CALLBACK_ARG = 16
    CTRL_SERVER_NAME = 55
    RECORD_HEAD = 256                  # what a message is that is told of: the head of a record,
    RECORD_MESSAGE = 22                # or one to TLS
    # of work, about a nanosecond each
    READ_WORK = 1_000                  # of the socket
    RECORD_WORK = 500
    MESSAGE_WORK = 5_000               # of one to TLS: new keys

cdef const TlsLibrary* pipe_ssl = NULL
cdef void* socket_method = NULL


# -- what OpenSSL calls ------------------------------------------------------------------------------

cdef int bio_read(void* bio, void* into, int room) noexcept nogil:
    cdef TlsPipe* pipe = <TlsPipe*>pipe_ssl.BIO_get_data(bio)
    cdef ssize_t got
    pipe_ssl.BIO_clear_flags(bio, BIO_FLAGS_ALL)
    if pipe.drained or pipe.work >= pipe.work_max:
        pipe_ssl.BIO_set_flags(bio, BIO_FLAGS_READ | BIO_FLAGS_SHOULD_RETRY)
        return -1
    if pipe.empty_bytes > EMPTY_BYTES_MAX:
        return -1
    pipe.work += READ_WORK
    got = sys_read(pipe.fd, into, room)
    if got > 0:
        pipe.drained = got < room
        pipe.empty_bytes += got
        return <int>got
    if got < 0 and (errno == EAGAIN or errno == EINTR):
        pipe.drained = True
        pipe_ssl.BIO_set_flags(bio, BIO_FLAGS_READ | BIO_FLAGS_SHOULD_RETRY)
        return -1
    pipe.ended = True
    return <int>got


cdef int bio_write(void* bio, const void* data, int length) noexcept nogil:
    cdef TlsPipe* pipe = <TlsPipe*>pipe_ssl.BIO_get_data(bio)
    cdef ssize_t sent
    pipe_ssl.BIO_clear_flags(bio, BIO_FLAGS_ALL)
    if pipe.ended:
        return -1                      # nobody hears an alert about it
    while True:
        sent = c_send(pipe.fd, data, length, PIPE_FLAGS)
        if sent >= 0:
            return <int>sent
        if errno == EAGAIN:
            pipe_ssl.BIO_set_flags(bio, BIO_FLAGS_WRITE | BIO_FLAGS_SHOULD_RETRY)
            return -1
        if errno == EINTR:
            continue
        if load_i64_acquire(&pipe.state) != PIPE_HERE:
            return length    # in a step: it is gone, and what it sent before is read (transport N8)
        pipe.ended = True
        return -1


cdef void count_message(int is_ours, int version, int kind, const void* data, size_t length,
                        void* connection, void* pipe) noexcept nogil:
    """tls TL8."""
    if not is_ours:
        (<TlsPipe*>pipe).work += (RECORD_WORK if kind == RECORD_HEAD
                                  else MESSAGE_WORK if kind == RECORD_MESSAGE else 0)


cdef long bio_ctrl(void* bio, int what, long number, void* pointer) noexcept nogil:
    if what == BIO_CTRL_FLUSH:
        return 1
    if what == BIO_CTRL_EOF:
        return (<TlsPipe*>pipe_ssl.BIO_get_data(bio)).ended
    return 0


cdef void pipe_use(const TlsLibrary* library) noexcept nogil:
    global pipe_ssl, socket_method
    if pipe_ssl != NULL:
        return                         # a thread may read it: with a new certificate nothing changes
    socket_method = library.BIO_meth_new(BIO_KIND, "connection")
    library.BIO_meth_set_read(socket_method, <void*>bio_read)
    library.BIO_meth_set_write(socket_method, <void*>bio_write)
    library.BIO_meth_set_ctrl(socket_method, <void*>bio_ctrl)
    pipe_ssl = library


# -- a pipe's way ------------------------------------------------------------------------------------

cdef TlsPipe* pipe_open(void* context, int fd, uint64_t id) noexcept nogil:
    cdef TlsPipe* pipe = <TlsPipe*>calloc(1, sizeof(TlsPipe))
    if pipe == NULL:
        return NULL
    pipe_ssl.SSL_CTX_up_ref(context)
    pipe.context = context
    pipe.fd = fd
    pipe.id = id
    return pipe


cdef void let_context_go(TlsPipe* pipe) noexcept nogil:
    if pipe.context != NULL:
        pipe_ssl.SSL_CTX_free(pipe.context)
        pipe.context = NULL


cdef bint make(TlsPipe* pipe) noexcept nogil:
    """What OpenSSL has for a connection; False: no memory."""
    cdef void* bio
    pipe.ssl = pipe_ssl.SSL_new(pipe.context)
    let_context_go(pipe)
    bio = pipe_ssl.BIO_new(socket_method) if pipe.ssl != NULL else NULL
    if bio == NULL:
        return False
    pipe_ssl.BIO_set_data(bio, pipe)
    pipe_ssl.BIO_set_init(bio, 1)
    pipe_ssl.SSL_set_bio(pipe.ssl, bio, bio)
    pipe_ssl.SSL_set_accept_state(pipe.ssl)          # until pipe_connect says otherwise
    pipe_ssl.SSL_set_msg_callback(pipe.ssl, <void*>count_message)
    pipe_ssl.SSL_ctrl(pipe.ssl, CTRL_MSG_CALLBACK_ARG, 0, pipe)
    return True


cdef bint is_named(TlsPipe* pipe, const char* host, bint verifies) noexcept nogil:
    """The server hears the name, and its certificate has to have it; False: no name of a host."""
    cdef void* param = pipe_ssl.SSL_get0_param(pipe.ssl)
    cdef uint8_t address[IPV6_BYTES]
    if inet_pton(AF_INET, host, address) == 1 or inet_pton(AF_INET6, host, address) == 1:
        return not verifies or pipe_ssl.X509_VERIFY_PARAM_set1_ip_asc(param, host) == 1
    return pipe_ssl.SSL_ctrl(pipe.ssl, CTRL_SERVER_NAME, 0, <void*>host) == 1 and (
        not verifies or pipe_ssl.X509_VERIFY_PARAM_set1_host(param, host, 0) == 1)


cdef TlsPipe* pipe_connect(void* context, int fd, const char* host, bint verifies) noexcept nogil:
    cdef TlsPipe* pipe = pipe_open(context, fd, 0)
    if pipe == NULL:
        return NULL
    if make(pipe) and is_named(pipe, host, verifies):
        pipe_ssl.SSL_set_connect_state(pipe.ssl)
        return pipe
    pipe_ssl.ERR_clear_error()
    pipe_close(pipe)
    return NULL


cdef void pipe_step(TlsPipe* pipe) noexcept nogil:
    cdef int result
    pipe.drained = False
    pipe.work = 0
    pipe.work_max = SHAKE_STEP_WORK
    pipe_ssl.ERR_clear_error()
    if pipe.ssl == NULL and not make(pipe):
        pipe.error = PIPE_NO_MEMORY
    else:
        result = pipe_ssl.SSL_do_handshake(pipe.ssl)
        if result == 1:
            pipe.error = PIPE_DONE
            return
        pipe.error = pipe_ssl.SSL_get_error(pipe.ssl, result)
        if pipe.error == SSL_ERROR_WANT_READ or pipe.error == SSL_ERROR_WANT_WRITE:
            return
        pipe.code = pipe_ssl.ERR_peek_error()
        pipe.verified = pipe_ssl.SSL_get_verify_result(pipe.ssl)
    pipe_ssl.ERR_clear_error()
    pipe_ssl.SSL_free(pipe.ssl)             # nothing more is said to it
    pipe.ssl = NULL


cdef void pipe_let_go(TlsPipe* pipe) noexcept nogil:
    let_context_go(pipe)
    pipe_ssl.SSL_free(pipe.ssl)
    pipe.ssl = NULL


cdef void pipe_close(TlsPipe* pipe) noexcept nogil:
    pipe_let_go(pipe)
    free(pipe)
