"""TLS records by OpenSSL, over a connection's socket."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from mqcore.epoll cimport EPOLL_CTL_DEL, epoll_ctl
from mqcore.layout cimport (
    ADDRESS_V4_SIZE,
    FIGURE_TLS_CONNECTIONS,
    FIGURE_TLS_FAILURES,
    FIGURE_TLS_HANDSHAKES,
)
from mqcore.net.transport.close_reasons cimport (
    CLOSE_MEMORY,
    CLOSE_PEER,
    CLOSE_TLS_CROWD,
    CLOSE_TLS_EMPTY,
    CLOSE_TLS_FAILED,
    CLOSE_TLS_REFUSED,
)
from mqcore.net.transport.memory cimport connection_doom, memory_give, memory_take
from mqcore.net.transport.shake_thread cimport (
    shake_thread_close,
    shake_thread_leave,
    shake_thread_open,
)
from mqcore.net.transport.slots cimport (
    SlotList,
    slots_add,
    slots_open,
    slots_remove,
    slots_share,
    slots_take,
)
from mqcore.net.transport.tls_context cimport VERIFY_RESULT_SHIFT
from mqcore.net.transport.tls_pipe cimport (
    PIPE_DONE,
    PIPE_NO_MEMORY,
    TlsPipe,
    pipe_close,
    pipe_open,
    pipe_use,
)
from mqcore.net.transport.transport cimport (
    LIFE_DOOMED,
    TLS_BYTES,
    TLS_CROWDS,
    V6_NETWORK_BYTES,
    WIRE_GONE,
    WIRE_LATER,
    WIRE_SHAKES,
    WIRE_TLS,
    TlsCrowd,
    crowd_works,
    watcher,
)
from mqcore.shm.tables cimport name_hash
from mqcore.tls.library cimport EMPTY_BYTES_MAX, SSL_ERROR_WANT_READ, SSL_ERROR_WANT_WRITE

cdef enum:
    CHUNK_MAX = 1 << 30                # lengths are int in OpenSSL
    FREED_COUNT = 256                  # connections whose memory is worth giving back

cdef const TlsLibrary* ssl = NULL


cdef bint tls_use(Transport* t, const TlsLibrary* library) noexcept nogil:
    global ssl
    ssl = library
    pipe_use(library)
    if t.tls.thread == NULL:
        t.tls.thread = shake_thread_open(t.slot)
    return t.tls.thread != NULL


cdef void tls_end(Transport* t) noexcept nogil:
    shake_thread_close(t.tls.thread)
    t.tls.thread = NULL


cdef bint tls_open(Transport* t) noexcept nogil:
    cdef TlsCrowd* crowds = t.tls.crowds
    cdef int i
    if not (slots_open(&t.tls.shaking, t.connection_max)
            and slots_open(&t.tls.again, t.connection_max)
            and slots_open(&t.tls.turns, TLS_CROWDS)
            and slots_open(&crowds[0].shaking, t.connection_max)
            and slots_open(&crowds[0].line, t.connection_max)):
        return False
    for i in range(1, TLS_CROWDS):
        slots_share(&crowds[i].shaking, &crowds[0].shaking)
        slots_share(&crowds[i].line, &crowds[0].line)
    return True


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
    """
    While a record is not whole its buffer is there; one that comes is no progress (memory N12).
    """
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

cdef uint8_t crowd_of(const Transport* t, const Connection* c) noexcept nogil:
    return <uint8_t>(name_hash(c.address, V6_NETWORK_BYTES if c.address_is_v6 else ADDRESS_V4_SIZE,
                               t.tls.seed) >> 32)


cdef void begin_shaking(Transport* t, Connection* c) noexcept nogil:
    slots_add(&t.tls.shaking, c.slot)
    slots_add(&t.tls.crowds[c.tls.crowd].shaking, c.slot)


cdef void leave_line(Transport* t, Connection* c) noexcept nogil:
    cdef TlsCrowd* crowd = &t.tls.crowds[c.tls.crowd]
    slots_remove(&crowd.line, c.slot)
    if crowd.line.count == 0:
        slots_remove(&t.tls.turns, c.tls.crowd)


cdef void end_shaking(Transport* t, Connection* c) noexcept nogil:
    slots_remove(&t.tls.shaking, c.slot)
    slots_remove(&t.tls.crowds[c.tls.crowd].shaking, c.slot)
    leave_line(t, c)


cdef void make_room(Transport* t) noexcept nogil:
    """TL7: a handshake ends for a new one."""
    cdef const SlotList* most
    cdef const SlotList* one
    cdef Connection* oldest
    cdef int i
    if t.tls.shaking.count < t.tls.shake_max:
        return
    most = &t.tls.crowds[0].shaking
    for i in range(1, TLS_CROWDS):
        one = &t.tls.crowds[i].shaking
        if one.count > most.count or (
                one.count == most.count and one.count > 0
                and t.connections[one.first].tls.since_ms
                < t.connections[most.first].tls.since_ms):
            most = one
    oldest = t.connections[most.first]
    end_shaking(t, oldest)
    connection_doom(t, oldest, CLOSE_TLS_CROWD, t.tls.shake_max)


cdef bint tls_begin(Transport* t, Connection* c) noexcept nogil:
    if t.tls.mode == TLS_DISABLED or t.tls.context == NULL:
        c.wire_reason = CLOSE_TLS_REFUSED
        c.wire_detail = t.tls.mode
        return False
    make_room(t)
    if not hold(t, c, SHAKE_BYTES):
        c.wire_reason = c.doom
        c.wire_detail = c.doom_detail
        return False
    c.tls.pipe = pipe_open(t.tls.context, c.fd, c.id)
    if c.tls.pipe == NULL:
        c.wire_reason = CLOSE_MEMORY
        c.wire_detail = SHAKE_BYTES
        return False
    c.wire = WIRE_SHAKES
    c.tls.since_ms = t.steady_ms
    c.tls.crowd = crowd_of(t, c)
    begin_shaking(t, c)
    return True


cdef void tls_line(Transport* t, Connection* c) noexcept nogil:
    c.tls.in_line = True
    slots_add(&t.tls.crowds[c.tls.crowd].line, c.slot)
    slots_add(&t.tls.turns, c.tls.crowd)


cdef Connection* tls_next(Transport* t) noexcept nogil:
    cdef int32_t crowd = slots_take(&t.tls.turns)
    cdef Connection* c
    if crowd < 0:
        return NULL
    c = t.connections[slots_take(&t.tls.crowds[crowd].line)]
    if t.tls.crowds[crowd].line.count:
        slots_add(&t.tls.turns, crowd)
    return c


cdef void note_failure(Connection* c, unsigned long code, long verified) noexcept nogil:
    cdef const TlsPipe* pipe = c.tls.pipe
    c.tls.failed = True
    if pipe.empty_bytes > EMPTY_BYTES_MAX:                               # TL6
        c.wire_reason = CLOSE_TLS_EMPTY
        c.wire_detail = pipe.empty_bytes
    elif pipe.ended or code == 0:
        c.wire_reason = CLOSE_PEER
    else:
        c.wire_reason = CLOSE_TLS_FAILED
        c.wire_detail = <int64_t>(<uint32_t>code) | (<int64_t>verified << VERIFY_RESULT_SHIFT)


cdef ShakeStep tls_shaken(Transport* t, Connection* c) noexcept nogil:
    cdef int error = c.tls.pipe.error
    crowd_works(t, STEP_WORK)
    c.tls.read_wants_write = error == SSL_ERROR_WANT_WRITE
    if error == SSL_ERROR_WANT_READ or error == SSL_ERROR_WANT_WRITE:
        return SHAKE_LATER
    if error == PIPE_NO_MEMORY:
        c.wire_reason = CLOSE_MEMORY
        c.wire_detail = SHAKE_BYTES
        return SHAKE_FAILED
    if error != PIPE_DONE:
        note_failure(c, c.tls.pipe.code, c.tls.pipe.verified)
        return SHAKE_FAILED
    crowd_works(t, FINISH_WORK)
    t.slot.figures[FIGURE_TLS_HANDSHAKES] += 1
    t.slot.figures[FIGURE_TLS_CONNECTIONS] += 1
    c.wire = WIRE_TLS
    c.tls.since_ms = c.tls.pipe.empty_bytes = 0
    c.active_ms = t.steady_ms
    end_shaking(t, c)
    hold(t, c, TLS_BYTES)
    return SHAKE_DONE


cdef void read_failed(Connection* c) noexcept nogil:
    note_failure(c, ssl.ERR_peek_error(), ssl.SSL_get_verify_result(c.tls.pipe.ssl))
    ssl.ERR_clear_error()


cdef void look_again(Transport* t, Connection* c) noexcept nogil:
    c.tls.again = True
    slots_add(&t.tls.again, c.slot)


cdef int64_t tls_read(Transport* t, Connection* c, uint8_t* into, int64_t room) noexcept nogil:
    cdef TlsPipe* pipe = c.tls.pipe
    cdef int64_t total = 0
    cdef int got = 1
    cdef int error = 0
    pipe.drained = c.tls.again = c.tls.read_wants_write = False
    pipe.work = 0
    pipe.work_max = c.tls.work_max
    if c.tls.failed:
        return WIRE_GONE
    ssl.ERR_clear_error()
    while total < room and pipe.work < pipe.work_max:
        got = ssl.SSL_read(pipe.ssl, into + total, <int>min(room - total, <int64_t>CHUNK_MAX))
        if got <= 0:
            break
        total += got
        pipe.empty_bytes = 0
        if pipe.drained and not ssl.SSL_has_pending(pipe.ssl):
            break
    t.work += pipe.work
    if got > 0:
        hold_records(t, c, False, c.tls.going)
        if total == room or pipe.work >= pipe.work_max:          # there may be more
            look_again(t, c)
        return total
    error = ssl.SSL_get_error(pipe.ssl, got)
    if error == SSL_ERROR_WANT_READ:
        if pipe.work >= pipe.work_max and not pipe.drained:
            look_again(t, c)
        hold_records(t, c, ssl.SSL_has_pending(pipe.ssl), c.tls.going)
    elif error == SSL_ERROR_WANT_WRITE:
        c.tls.read_wants_write = True
    else:
        read_failed(c)
        if total > 0:
            look_again(t, c)           # its end comes with the next read
    return total if total > 0 else (WIRE_GONE if c.tls.failed else WIRE_LATER)


cdef int64_t tls_send(Transport* t, Connection* c, const uint8_t* data, int64_t length) noexcept nogil:
    cdef TlsPipe* pipe = c.tls.pipe
    cdef int sent, error
    if c.tls.failed:
        return WIRE_GONE
    c.tls.send_wants_read = False
    ssl.ERR_clear_error()
    sent = ssl.SSL_write(pipe.ssl, data, <int>min(length, <int64_t>CHUNK_MAX))
    if sent > 0:
        if c.tls.going:
            hold_records(t, c, c.tls.since_ms != 0, False)
        return sent
    error = ssl.SSL_get_error(pipe.ssl, sent)
    if error == SSL_ERROR_WANT_WRITE:
        hold_records(t, c, c.tls.since_ms != 0, True)
        return WIRE_LATER
    if error == SSL_ERROR_WANT_READ:
        c.tls.send_wants_read = True
        return WIRE_LATER
    pipe.ended = True                 # what it sent before may still be read (transport N8)
    ssl.ERR_clear_error()
    return WIRE_GONE


cdef bint tls_close(Transport* t, Connection* c) noexcept nogil:
    cdef TlsPipe* pipe = c.tls.pipe
    cdef bint stays = not c.tls.away
    if pipe == NULL:
        return True
    end_shaking(t, c)
    slots_remove(&t.tls.again, c.slot)
    if c.wire == WIRE_TLS:
        t.slot.figures[FIGURE_TLS_CONNECTIONS] -= 1
    else:
        t.slot.figures[FIGURE_TLS_FAILURES] += 1
    if c.tls.away:
        epoll_ctl(watcher(t, c), EPOLL_CTL_DEL, c.fd, NULL)
        shake_thread_leave(pipe)
    else:
        if c.wire == WIRE_TLS and c.life != LIFE_DOOMED and not (pipe.ended or c.tls.failed):
            pipe.drained = True
            ssl.SSL_shutdown(pipe.ssl)           # says that this is the end; nobody waits for the answer
        ssl.ERR_clear_error()
        pipe_close(pipe)
    c.tls.pipe = NULL
    t.tls.freed += 1
    if t.tls.freed >= FREED_COUNT:
        t.tls.freed = 0
        t.trim = True
    return stays
