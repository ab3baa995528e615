"""TLS records by OpenSSL, over a connection's socket."""
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint8_t

from mqcore.net.transport.close_reasons cimport (
    CLOSE_MEMORY,
    CLOSE_PEER,
    CLOSE_TLS_CROWD,
    CLOSE_TLS_EMPTY,
    CLOSE_TLS_FAILED,
    CLOSE_TLS_REFUSED,
)
from mqcore.net.transport.memory cimport connection_doom, memory_give, memory_take
from mqcore.net.transport.slots cimport slots_add, slots_open, slots_remove
from mqcore.net.transport.transport cimport (
    LIFE_DOOMED,
    TLS_BYTES,
    WIRE_GONE,
    WIRE_LATER,
    WIRE_SHAKES,
    WIRE_TLS,
    TlsEnd,
)

cdef extern from "<unistd.h>" nogil:
    ssize_t sys_read "read"(int fd, void* data, size_t size)

cdef extern from "<sys/socket.h>" nogil:
    ssize_t c_send "send"(int fd, const void* data, size_t size, int flags)
    int MSG_NOSIGNAL
    int MSG_DONTWAIT

cdef enum:                             # of OpenSSL
    SSL_ERROR_WANT_READ = 2
    SSL_ERROR_WANT_WRITE = 3
    BIO_FLAGS_READ = 0x01
    BIO_FLAGS_WRITE = 0x02
    BIO_FLAGS_SHOULD_RETRY = 0x08
    BIO_FLAGS_ALL = 0x0F
    BIO_CTRL_EOF = 2
    BIO_CTRL_FLUSH = 11
    BIO_KIND = 0x0400 | 0x80           # a source and sink, with a number of its own
    CHUNK_MAX = 1 << 30                # lengths are int there
    FREED_COUNT = 256                  # connections whose memory is worth giving back

cdef const TlsLibrary* ssl = NULL
cdef void* socket_method = NULL


# -- what OpenSSL calls to reach the socket ----------------------------------------------------------

cdef int bio_read(void* bio, void* into, int room) noexcept nogil:
    cdef TlsEnd* end = <TlsEnd*>ssl.BIO_get_data(bio)
    cdef ssize_t got
    ssl.BIO_clear_flags(bio, BIO_FLAGS_ALL)
    if end.drained:
        ssl.BIO_set_flags(bio, BIO_FLAGS_READ | BIO_FLAGS_SHOULD_RETRY)
        return -1
    if end.empty_bytes > EMPTY_BYTES_MAX:
        return -1
    got = sys_read(end.fd, into, room)
    if got > 0:
        end.drained = got < room
        end.empty_bytes += got
        return <int>got
    if got < 0 and (errno == EAGAIN or errno == EINTR):
        end.drained = True
        ssl.BIO_set_flags(bio, BIO_FLAGS_READ | BIO_FLAGS_SHOULD_RETRY)
        return -1
    end.ended = True
    return <int>got


cdef int bio_write(void* bio, const void* data, int length) noexcept nogil:
    cdef TlsEnd* end = <TlsEnd*>ssl.BIO_get_data(bio)
    cdef ssize_t sent
    ssl.BIO_clear_flags(bio, BIO_FLAGS_ALL)
    while True:
        sent = c_send(end.fd, data, length, MSG_NOSIGNAL | MSG_DONTWAIT)
        if sent >= 0:
            end.sent_bytes += sent
            return <int>sent
        if errno == EAGAIN:
            ssl.BIO_set_flags(bio, BIO_FLAGS_WRITE | BIO_FLAGS_SHOULD_RETRY)
            return -1
        if errno != EINTR:
            end.ended = True
            return -1


cdef long bio_ctrl(void* bio, int what, long number, void* pointer) noexcept nogil:
    if what == BIO_CTRL_FLUSH:
        return 1
    if what == BIO_CTRL_EOF:
        return (<TlsEnd*>ssl.BIO_get_data(bio)).ended
    return 0


cdef void tls_use(Transport* t, const TlsLibrary* library) noexcept:
    global ssl, socket_method
    ssl = library
    if socket_method == NULL:
        socket_method = library.BIO_meth_new(BIO_KIND, "connection")
        library.BIO_meth_set_read(socket_method, <void*>bio_read)
        library.BIO_meth_set_write(socket_method, <void*>bio_write)
        library.BIO_meth_set_ctrl(socket_method, <void*>bio_ctrl)


cdef bint tls_open(Transport* t) noexcept nogil:
    return (slots_open(&t.tls.shaking, t.connection_max)
            and slots_open(&t.tls.line, t.connection_max)
            and slots_open(&t.tls.again, t.connection_max))


# -- memory (TL4) ------------------------------------------------------------------------------------

cdef bint hold(Transport* t, Connection* c, int64_t bytes) noexcept nogil:
    """False: it has to go itself."""
    cdef int64_t more = bytes - c.tls.held
    if more > 0 and not memory_take(t, c, more):
        return False
    if more < 0:
        memory_give(t, c, -more)
    c.tls.held = bytes
    return True


cdef void hold_records(Transport* t, Connection* c, bint coming, bint going) noexcept nogil:
    """While a record is not whole its buffer is there; one that comes is no progress (N12)."""
    cdef int64_t bytes = TLS_BYTES
    if not coming:
        c.tls.since_ms = 0
    elif c.tls.since_ms == 0:
        c.tls.since_ms = t.steady_ms
    c.tls.going = going
    if coming:
        bytes += RECORD_BYTES
    if going:
        bytes += RECORD_BYTES
    hold(t, c, bytes)


# -- a connection's way ------------------------------------------------------------------------------

cdef void make_room(Transport* t) noexcept nogil:
    """TL7: the oldest handshake ends for a new one."""
    cdef Connection* oldest
    if t.tls.shaking.count < t.tls.shake_max:
        return
    oldest = t.connections[t.tls.shaking.first]
    slots_remove(&t.tls.shaking, oldest.slot)
    slots_remove(&t.tls.line, oldest.slot)
    connection_doom(t, oldest, CLOSE_TLS_CROWD, t.tls.shake_max)


cdef bint tls_begin(Transport* t, Connection* c) noexcept nogil:
    cdef void* bio
    if t.tls.mode == TLS_DISABLED or t.tls.context == NULL:
        c.wire_reason = CLOSE_TLS_REFUSED
        c.wire_detail = t.tls.mode
        return False
    make_room(t)
    if not hold(t, c, SHAKE_BYTES):
        c.wire_reason = c.doom
        c.wire_detail = c.doom_detail
        return False
    c.tls.fd = c.fd
    c.tls.ssl = ssl.SSL_new(t.tls.context)
    bio = ssl.BIO_new(socket_method) if c.tls.ssl != NULL else NULL
    if bio == NULL:
        c.wire_reason = CLOSE_MEMORY
        c.wire_detail = SHAKE_BYTES
        return False
    ssl.BIO_set_data(bio, &c.tls)
    ssl.BIO_set_init(bio, 1)
    ssl.SSL_set_bio(c.tls.ssl, bio, bio)
    ssl.SSL_set_accept_state(c.tls.ssl)
    c.wire = WIRE_SHAKES
    c.tls.since_ms = t.steady_ms
    slots_add(&t.tls.shaking, c.slot)
    return True


cdef void note_failure(Connection* c) noexcept nogil:
    cdef unsigned long code = ssl.ERR_peek_error()
    c.tls.failed = True
    if c.tls.empty_bytes > EMPTY_BYTES_MAX:                              # TL6
        c.wire_reason = CLOSE_TLS_EMPTY
        c.wire_detail = c.tls.empty_bytes
    elif c.tls.ended or code == 0:
        c.wire_reason = CLOSE_PEER
    else:
        c.wire_reason = CLOSE_TLS_FAILED
        c.wire_detail = <int64_t>code
    ssl.ERR_clear_error()


cdef ShakeStep tls_shake(Transport* t, Connection* c) noexcept nogil:
    cdef int64_t sent = c.tls.sent_bytes
    cdef int result, error
    c.tls.drained = c.tls.read_wants_write = False
    ssl.ERR_clear_error()
    result = ssl.SSL_do_handshake(c.tls.ssl)
    t.work += STEP_WORK
    if c.tls.sent_bytes > sent and not c.tls.answered:
        c.tls.answered = True
        t.work += t.tls.answer_work
    if result == 1:
        t.work += FINISH_WORK
        c.wire = WIRE_TLS
        c.tls.since_ms = c.tls.empty_bytes = 0
        c.active_ms = t.steady_ms
        slots_remove(&t.tls.shaking, c.slot)
        hold(t, c, TLS_BYTES)
        return SHAKE_DONE
    error = ssl.SSL_get_error(c.tls.ssl, result)
    if error == SSL_ERROR_WANT_READ:
        return SHAKE_LATER
    if error == SSL_ERROR_WANT_WRITE:
        c.tls.read_wants_write = True
        return SHAKE_LATER
    note_failure(c)
    return SHAKE_FAILED


cdef void look_again(Transport* t, Connection* c) noexcept nogil:
    c.tls.again = True
    slots_add(&t.tls.again, c.slot)


cdef int64_t tls_read(Transport* t, Connection* c, uint8_t* into, int64_t room) noexcept nogil:
    cdef int64_t total = 0
    cdef int got = 1
    cdef int error = 0
    c.tls.drained = c.tls.again = c.tls.read_wants_write = False
    if c.tls.failed:
        return WIRE_GONE
    ssl.ERR_clear_error()
    while total < room:
        got = ssl.SSL_read(c.tls.ssl, into + total, <int>min(room - total, <int64_t>CHUNK_MAX))
        if got <= 0:
            break
        total += got
        c.tls.empty_bytes = 0
        if c.tls.drained and not ssl.SSL_has_pending(c.tls.ssl):
            break
    if got > 0:
        hold_records(t, c, False, c.tls.going)
        if total == room:              # there may be more
            look_again(t, c)
        return total
    error = ssl.SSL_get_error(c.tls.ssl, got)
    if error == SSL_ERROR_WANT_READ:
        hold_records(t, c, ssl.SSL_has_pending(c.tls.ssl), c.tls.going)
    elif error == SSL_ERROR_WANT_WRITE:
        c.tls.read_wants_write = True
    else:
        note_failure(c)
        if total > 0:
            look_again(t, c)           # its end comes with the next read
    return total if total > 0 else (WIRE_GONE if c.tls.failed else WIRE_LATER)


cdef int64_t tls_send(Transport* t, Connection* c, const uint8_t* data, int64_t length) noexcept nogil:
    cdef int sent, error
    if c.tls.failed:
        return WIRE_GONE
    c.tls.send_wants_read = False
    ssl.ERR_clear_error()
    sent = ssl.SSL_write(c.tls.ssl, data, <int>min(length, <int64_t>CHUNK_MAX))
    if sent > 0:
        if c.tls.going:
            hold_records(t, c, c.tls.since_ms != 0, False)
        return sent
    error = ssl.SSL_get_error(c.tls.ssl, sent)
    if error == SSL_ERROR_WANT_WRITE:
        hold_records(t, c, c.tls.since_ms != 0, True)
        return WIRE_LATER
    if error == SSL_ERROR_WANT_READ:
        c.tls.send_wants_read = True
        return WIRE_LATER
    c.tls.ended = True                 # what it sent before may still be read (N8)
    ssl.ERR_clear_error()
    return WIRE_GONE


cdef void tls_close(Transport* t, Connection* c) noexcept nogil:
    slots_remove(&t.tls.shaking, c.slot)
    slots_remove(&t.tls.line, c.slot)
    slots_remove(&t.tls.again, c.slot)
    if c.tls.ssl == NULL:
        return
    if c.wire == WIRE_TLS and c.life != LIFE_DOOMED and not (c.tls.ended or c.tls.failed):
        c.tls.drained = True
        ssl.SSL_shutdown(c.tls.ssl)    # says that this is the end; nobody waits for the answer
    ssl.ERR_clear_error()
    ssl.SSL_free(c.tls.ssl)
    c.tls.ssl = NULL
    t.tls.freed += 1
    if t.tls.freed >= FREED_COUNT:
        t.tls.freed = 0
        t.trim = True
