"""
TLS around OpenSSL: what a transport makes of any bytes on a new connection, and of a client's records,
brought to it in any pieces. Sockets, OpenSSL and the loop are real.

A connection of an honest client is kept from one input to the next, for its handshake costs as much as a
thousand of them; one that an input has broken is made anew.
"""
import os
import tempfile
from pathlib import Path

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc
from libc.string cimport memcpy, memset

from mqcore.epoll cimport EPOLL_CTL_ADD, EPOLLIN, epoll_ctl, epoll_event
from mqcore.layout cimport WorkerSlot
from mqcore.net.transport.loop cimport (
    transport_end_turn,
    transport_continue,
    transport_open,
    transport_read,
    transport_sleep,
)
from mqcore.net.transport.output cimport output_flush_all, output_room, output_used
from mqcore.net.transport.slots cimport slots_add
from mqcore.net.transport.tls cimport TLS_ENFORCING, TLS_PERMISSIVE, tls_use
from mqcore.net.transport.tls_context cimport TlsContext
from mqcore.net.transport.transport cimport (
    TLS_BYTES,
    WIRE_TLS,
    Connection,
    Transport,
    connection_find,
)
from mqcore.tls.library cimport TlsLibrary, tls_library

from tests.fuzz.targets.input cimport Input, hold, input_of, take_byte

from mqcore.net.transport.tls_context import TlsContext as Context, self_signed

cdef extern from "<sched.h>" nogil:
    int sched_yield()

cdef extern from "<unistd.h>" nogil:
    int close(int fd)

cdef extern from "<sys/socket.h>" nogil:
    int socketpair(int domain, int type, int protocol, int* ends)
    ssize_t c_send "send"(int fd, const void* data, size_t size, int flags)
    ssize_t c_receive "recv"(int fd, void* data, size_t size, int flags)
    int AF_UNIX, SOCK_STREAM, SOCK_NONBLOCK, MSG_NOSIGNAL

cdef enum:
    CTRL_MODE = 33                    # of OpenSSL
    MODES = 3                         # writes in part, from buffers that move
    HANDSHAKE_BYTE = 0x16
    BYTES_MAX = 1 << 16               # on a wire at a time
    STEPS_MAX = 64                    # of one input
    SAID_MAX = 1 << 17                # by one input
    TURNS_MAX = 4000
    STILL_TURNS = 4
    LONG_MS = 1 << 40

cdef struct Client:
    void* ssl                         # NULL: there is none
    int fd
    int wire                          # the other end of fd ...
    int server                        # ... what comes there goes in here
    uint64_t id                       # of its connection
    int64_t said
    int64_t owed                      # of a record that its socket has taken in part
    int64_t heard                     # by the server, of what was said
    int64_t answered                  # and by the client, of what the server says again

cdef Transport* transport = <Transport*>calloc(1, sizeof(Transport))
cdef WorkerSlot* slot = <WorkerSlot*>calloc(1, sizeof(WorkerSlot))
cdef const TlsLibrary* library = NULL
cdef void* context = NULL
cdef Client client
cdef int64_t frame = 1                # bytes that the server takes at a time
cdef const uint8_t* raw_bytes
cdef int64_t raw_size, raw_heard
cdef uint8_t buffer[BYTES_MAX]
cdef object kept = []


cdef inline uint8_t pattern(int64_t at) noexcept nogil:
    return <uint8_t>((at * 167) ^ (at >> 8))


# -- the rooms above -------------------------------------------------------------------------------

cdef void nothing(void* top, Connection* c) noexcept nogil:
    return


cdef bint nobody_waits(void* top) noexcept nogil:
    return False


cdef int64_t bytes_came(void* top, Connection* c, uint8_t* data, int64_t length) noexcept nogil:
    """Whole frames are said again; what was sent comes in its order, each byte once."""
    global raw_heard
    cdef int64_t i, handled = length - length % frame
    cdef uint8_t* room
    if c.id == client.id:
        hold(client.heard + length <= client.said, "no more is heard than was said")
        for i in range(length):
            hold(data[i] == pattern(client.heard + i), "what is heard is what was said")
        client.heard += handled
    else:
        hold(raw_heard + length <= raw_size, "no more is heard than came")
        for i in range(length):
            hold(data[i] == raw_bytes[raw_heard + i], "in the clear, bytes are what they are")
        raw_heard += handled
    c.input_whole = frame
    if handled:
        room = output_room(transport, c, handled)
        if room != NULL:
            memcpy(room, data, handled)
            output_used(transport, c, handled)
    return handled


cdef void one_turn() noexcept nogil:
    transport_read(transport, transport_sleep(transport, 0))
    transport_continue(transport)
    output_flush_all(transport)
    transport_end_turn(transport)


cdef bint thread_works() noexcept nogil:
    """Whether steps of handshakes are under way, or done and not taken back."""
    return transport.tls.turns.count > 0 or transport.tls.thread.asked_end != transport.tls.thread.took


cdef void turn() noexcept nogil:
    """One, and those that it takes until no handshake waits for the thread."""
    one_turn()
    while thread_works():
        sched_yield()
        one_turn()


cdef Connection* connect(int fd) noexcept nogil:
    """A connection as accepting one makes it."""
    cdef Transport* t = transport
    cdef Connection* c = <Connection*>calloc(1, t.size_each)
    cdef epoll_event event
    t.free_count -= 1
    c.slot = t.free_slots[t.free_count]
    t.generation = (t.generation + 1) & 0xFFFFFF
    c.fd = fd
    c.id = t.id_base | (<uint64_t>t.generation << 24) | <uint64_t>c.slot
    c.active_ms = t.steady_ms
    c.interest = EPOLLIN
    event.events = EPOLLIN
    event.data.u64 = c.id
    epoll_ctl(t.epoll, EPOLL_CTL_ADD, fd, &event)
    t.connections[c.slot] = c
    slots_add(&t.silent, c.slot)
    t.connection_count += 1
    return c


# -- any bytes -------------------------------------------------------------------------------------

cdef void any_bytes(const uint8_t* data, int64_t size, int64_t cut, int mode) noexcept nogil:
    """A new connection on which they come, in two pieces; then its peer goes."""
    global raw_bytes, raw_size, raw_heard
    cdef int64_t before = transport.memory_used
    cdef int ends[2]
    cdef uint64_t id
    cdef int i
    if size == 0:
        return
    raw_bytes = data
    raw_size = size
    raw_heard = 0
    socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends)
    transport.tls.mode = mode
    id = connect(ends[0]).id
    if cut:
        c_send(ends[1], data, cut, MSG_NOSIGNAL)
        turn()
    if size > cut:
        c_send(ends[1], data + cut, size - cut, MSG_NOSIGNAL)
    turn()
    if data[0] == HANDSHAKE_BYTE or mode == TLS_ENFORCING:
        hold(raw_heard == 0, "nobody is heard before a handshake is done")
    else:
        hold(raw_heard == size - size % frame, "in the clear, all is heard")
    close(ends[1])
    for i in range(TURNS_MAX):
        if connection_find(transport, id) == NULL:
            break
        turn()
    hold(connection_find(transport, id) == NULL, "who is gone is closed")
    hold(transport.memory_used == before, "nothing stays of who is gone")
    transport.event_count = 0
    transport.tls.mode = TLS_PERMISSIVE


# -- an honest client ------------------------------------------------------------------------------

cdef int64_t carry(int64_t most, int wrong_at) noexcept nogil:
    """Bytes of the client that reach the server; one of them changed, if wrong_at is one of them."""
    cdef ssize_t got = c_receive(client.wire, buffer, min(most, <int64_t>BYTES_MAX), 0)
    if got <= 0:
        return 0
    if 0 <= wrong_at < got:
        buffer[wrong_at] ^= 0x10
    c_send(client.server, buffer, got, MSG_NOSIGNAL)
    return got


cdef int64_t bring_back() noexcept nogil:
    """What the server has sent reaches the client, which holds it against what it has said."""
    cdef ssize_t got = c_receive(client.server, buffer, BYTES_MAX, 0)
    cdef int64_t moved = 0
    cdef int i, count
    if got > 0:
        c_send(client.wire, buffer, got, MSG_NOSIGNAL)
        moved = got
    while True:
        count = library.SSL_read(client.ssl, buffer, BYTES_MAX)
        if count <= 0:
            break
        for i in range(count):
            hold(buffer[i] == pattern(client.answered + i), "an answer is what was sent")
        client.answered += count
        moved += count
    library.ERR_clear_error()
    return moved


cdef void say(int64_t size) noexcept nogil:
    """One record, if it is not too long for one; the rest of one, which OpenSSL takes as it was."""
    cdef int64_t i
    cdef int put
    size = client.owed or size
    for i in range(size):
        buffer[i] = pattern(client.said + i)
    put = library.SSL_write(client.ssl, buffer, <int>size)
    client.owed = 0 if put > 0 else size
    if put > 0:
        client.said += put
    else:
        library.ERR_clear_error()


cdef void settle() noexcept nogil:
    """Until nothing moves, turn after turn: on a busy machine a turn may end before its work does."""
    cdef int i, still = 0
    for i in range(TURNS_MAX):
        turn()
        if client.owed:
            say(client.owed)
        if carry(BYTES_MAX, -1) + bring_back() == 0 and client.owed == 0 and (
                transport.tls.again.count + transport.deferred.count
                + transport.stalled.count == 0):
            still += 1
        else:
            still = 0
        if still == STILL_TURNS:
            return
    hold(False, "all comes to an end")


cdef void hang_up() noexcept nogil:
    cdef Connection* c = connection_find(transport, client.id)
    cdef int i
    if client.ssl == NULL:
        return
    library.SSL_free(client.ssl)
    client.ssl = NULL
    close(client.fd)
    close(client.wire)
    close(client.server)
    for i in range(TURNS_MAX):
        if connection_find(transport, client.id) == NULL:
            break
        turn()
    hold(connection_find(transport, client.id) == NULL, "who is gone is closed")
    hold(transport.memory_used == 0, "nothing stays of who is gone")
    transport.event_count = 0


cdef void hello() noexcept nogil:
    cdef int ends[2]
    cdef int i, done = 0
    memset(&client, 0, sizeof(Client))
    socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends)
    client.fd = ends[0]
    client.wire = ends[1]
    socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends)
    client.server = ends[1]
    client.id = connect(ends[0]).id
    client.ssl = library.SSL_new(context)
    library.SSL_set_fd(client.ssl, client.fd)
    library.SSL_set_connect_state(client.ssl)
    for i in range(TURNS_MAX):
        done = library.SSL_do_handshake(client.ssl)
        library.ERR_clear_error()
        if carry(BYTES_MAX, -1) + (0 if done == 1 else turn_back()) == 0 and done == 1:
            break
        turn()
    hold(done == 1, "an honest client's handshake is done")
    settle()


cdef int64_t turn_back() noexcept nogil:
    """What the server has sent, for a handshake."""
    cdef ssize_t got
    turn()
    got = c_receive(client.server, buffer, BYTES_MAX, 0)
    if got > 0:
        c_send(client.wire, buffer, got, MSG_NOSIGNAL)
    return max(got, 0)


cdef int tls_records(const uint8_t* data, size_t size) noexcept nogil:
    """
    | bytes of a new connection, or steps: what, how much | where the bytes are cut, a byte | bytes of a
    frame, a byte | which: 0 any bytes, 1 the same where TLS is asked for, else steps |
    """
    global frame
    cdef Input left = input_of(data, size)
    cdef uint8_t which = take_byte(&left)
    cdef int64_t steps, cut, i, k, amount, said
    cdef bint honest = True
    cdef Connection* c
    frame = 1 + take_byte(&left)
    if which < 2:
        cut = take_byte(&left)
        any_bytes(data, left.left, min(cut, left.left), TLS_ENFORCING if which else TLS_PERMISSIVE)
        return 0
    if client.ssl == NULL:
        hello()
    said = client.said
    steps = min(left.left // 2, <int64_t>STEPS_MAX)
    for i in range(steps):
        amount = data[2 * i + 1]
        if client.said - said > SAID_MAX:
            break
        if data[2 * i] & 7 == 0:
            say(1 + amount)
        elif data[2 * i] & 7 == 1:
            say(64 * (1 + amount))
        elif data[2 * i] & 7 == 2:
            for k in range(amount):   # crumbs
                say(1)
        elif data[2 * i] & 7 == 3:
            carry(1 + amount, -1)
        elif data[2 * i] & 7 == 4:
            carry(BYTES_MAX, -1)
            turn()
        elif data[2 * i] & 7 == 5:
            turn()
        elif data[2 * i] & 7 == 6:
            bring_back()
        else:
            honest = carry(256, <int>amount) <= amount and honest
    if not honest:
        hang_up()
        return 0
    settle()
    c = connection_find(transport, client.id)
    hold(c != NULL and c.wire == WIRE_TLS, "an honest client is not closed")
    hold(client.heard + c.input_length == client.said, "all that was said is heard, or waits for its rest")
    hold(client.answered == client.heard, "all answers are there")
    hold(c.tls.held == TLS_BYTES and transport.memory_used == c.memory, "an idle connection has its memory")
    return 0


def begin() -> None:
    """What the target needs; once."""
    global library, context
    cdef TlsContext serving
    folder = tempfile.TemporaryDirectory(prefix="mqcore-fuzz-")
    pem = Path(folder.name) / "own.pem"
    pem.write_bytes(self_signed("fuzz"))
    serving = Context(certificate=os.fspath(pem), key=os.fspath(pem))
    bell = os.eventfd(0)
    kept.extend([folder, serving, bell])
    transport.slot = slot
    transport.connection_max = 8
    transport.size_each = sizeof(Connection)
    transport.above.opened = transport.above.slice_came = nothing
    transport.above.drained = transport.above.closing = nothing
    transport.above.bytes_came = bytes_came
    transport.above.waits = nobody_waits
    transport.idle_ms_max = transport.tls.shake_ms_max = LONG_MS
    transport.tls.shake_max = 8
    transport.tls.mode = TLS_PERMISSIVE
    assert transport_open(transport, bell, 1 << 24)
    library = tls_library()
    assert tls_use(transport, library)
    transport.tls.context = serving.context
    context = library.SSL_CTX_new(library.TLS_client_method())
    library.SSL_CTX_ctrl(context, CTRL_MODE, MODES, NULL)


TARGETS = {"tls_records": <size_t>&tls_records}
