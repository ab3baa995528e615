"""The transport's loop for processes that answer frames in Python, a turn at a time."""
import os

from libc.errno cimport errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from mqcore.clock cimport steady_ms
from mqcore.endian cimport load_i32
from mqcore.layout cimport (
    FIGURE_TLS_CONNECTIONS,
    FIGURE_TLS_FAILURES,
    FIGURE_TLS_HANDSHAKES,
)
from mqcore.net.remoting.frames cimport CLOSE_FRAME_LENGTH, FRAME_WORK
from mqcore.net.transport.close_reasons cimport CLOSE_ASKED
from mqcore.net.transport.connections cimport (
    connection_close,
    connection_owes_less,
    connection_watch,
)
from mqcore.net.transport.handshakes cimport handshakes_wait
from mqcore.net.transport.input cimport handle_again
from mqcore.net.transport.loop cimport (
    transport_close_all,
    transport_end_turn,
    transport_continue,
    transport_listen,
    transport_open,
    transport_read,
    transport_sleep,
    transport_tick,
)
from mqcore.net.transport.memory cimport memory_give, memory_take
from mqcore.net.transport.output cimport output_flush_all, output_room, output_used
from mqcore.net.transport.pages cimport give_pages_back, keep_pages
from mqcore.net.transport.shell cimport closed_events, host_text, secure
from mqcore.net.transport.tls cimport tls_end
from mqcore.net.transport.transport cimport (
    INPUT_OPEN,
    INPUT_WAITS,
    LIFE_OPEN,
    connection_find,
)
from mqcore.net.transport.work cimport frame_may_begin, work_charge
from mqcore.shm.segment cimport doorbell_arm, doorbell_disarm

cdef enum:
    LENGTH_SIZE = 4


# -- what the transport calls ------------------------------------------------------------------------

cdef void opened(void* top, Connection* c) noexcept with gil:
    cdef FramedLoop loop = <FramedLoop>(<Framed*>top).loop
    loop.came.append((c.id, (host_text(c.address, c.address_is_v6), c.port)))


cdef void closing(void* top, Connection* c) noexcept with gil:
    (<FramedLoop>(<Framed*>top).loop).came.append((c.id, None))


cdef void hand_over(void* top, Connection* c, const uint8_t* frame, int64_t length) noexcept with gil:
    cdef FramedLoop loop = <FramedLoop>(<Framed*>top).loop
    loop.came.append((c.id, (<const char*>frame)[:length]))


cdef int64_t bytes_came(void* top, Connection* c, uint8_t* data, int64_t length) noexcept nogil:
    cdef Framed* f = <Framed*>top
    cdef Transport* t = &f.transport
    cdef FramedPeer* peer = <FramedPeer*>c
    cdef int64_t at = 0, frame_length
    cdef int64_t began = t.work
    c.input_whole = 0
    while length - at >= LENGTH_SIZE:
        if peer.lent_bytes:                                                   # FL1
            c.input_state = INPUT_WAITS
            connection_watch(t, c)
            break
        frame_length = load_i32(data + at)
        if frame_length < 0 or frame_length > f.frame_bytes_max:
            connection_close(t, c, CLOSE_FRAME_LENGTH, frame_length)
            return -1
        if length - at - LENGTH_SIZE < frame_length:
            c.input_whole = LENGTH_SIZE + frame_length
            break
        if not frame_may_begin(t, c, at == 0):
            break
        if not memory_take(t, c, LENGTH_SIZE + frame_length):            # FL2
            break
        t.work += FRAME_WORK + (frame_length >> 2)
        peer.lent_bytes = LENGTH_SIZE + frame_length
        c.owed += 1
        hand_over(top, c, data + at + LENGTH_SIZE, frame_length)
        work_charge(t, c, began)
        began = t.work
        at += LENGTH_SIZE + frame_length
    return at


cdef void slice_came(void* top, Connection* c) noexcept nogil:
    pass                               # nothing is ever due


cdef void drained(void* top, Connection* c) noexcept nogil:
    pass                               # no caller asks for it


cdef bint waits(void* top) noexcept nogil:
    return (<Framed*>top).others_wait


cdef class FramedLoop:
    """
    Connections that were accepted on `listeners`; a turn does not sleep: `fileno` is readable when
    the next one has something, and `wakeful` says that it has, though that is not.

    frame_bytes_max: without its length word; output_bytes_max: of answers that wait for their peer,
    before its requests do. Raises OSError.
    """

    def __cinit__(self, list listeners, *, int connection_max, int64_t memory_bytes,
                  int64_t frame_bytes_max, int64_t output_bytes_max, int64_t idle_ms):
        cdef Framed* f
        cdef Transport* t
        keep_pages()
        self.came = []
        self.listeners = listeners
        self.f = f = <Framed*>calloc(1, sizeof(Framed))
        if f == NULL:
            raise MemoryError
        f.loop = <void*>self
        f.frame_bytes_max = frame_bytes_max
        f.slot.bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        t = &f.transport
        t.slot = &f.slot
        t.connection_max = connection_max
        t.size_each = sizeof(FramedPeer)
        t.idle_ms_max = idle_ms
        t.above.top = f
        t.above.opened = opened
        t.above.bytes_came = bytes_came
        t.above.slice_came = slice_came
        t.above.drained = drained
        t.above.closing = closing
        t.above.waits = waits
        if not transport_open(t, f.slot.bell, memory_bytes):
            raise OSError(errno, "a name server's loop")
        t.out_high = t.out_most = output_bytes_max
        for listener in listeners:
            listener.setblocking(False)
            if not transport_listen(t, listener.fileno(), 0):
                raise OSError(errno, "a listener")
        doorbell_arm(&self.f.slot)

    def __dealloc__(self):
        free(self.f)

    def secure(self, int mode, TlsContext context, int64_t handshake_ms_max,
               int32_t handshake_count_max) -> None:
        """TLS of connections that come from now on, as ServingLoop.secure."""
        secure(&self.f.transport, mode, context, handshake_ms_max, handshake_count_max)
        self.tls_context = context

    def fileno(self) -> int:
        return self.f.transport.epoll

    def turn(self, bint others_wait) -> list:
        """
        What came since the last one: (id, what), where `what` is (host, port) of a connection that
        begins, bytes of a frame, or None when it has ended.

        others_wait: there is work for connections, for which crowds that begin wait (work N20).
        """
        cdef Transport* t = &self.f.transport
        cdef int count
        self.f.others_wait = others_wait
        with nogil:
            doorbell_disarm(&self.f.slot)
            output_flush_all(t)
            count = transport_sleep(t, 0)
            transport_read(t, count)
            transport_continue(t)
            output_flush_all(t)
            transport_end_turn(t)
            doorbell_arm(&self.f.slot)
        came, self.came = self.came, []
        return came

    def flush(self) -> None:
        """Send what was answered since the last turn."""
        cdef Transport* t = &self.f.transport
        with nogil:
            output_flush_all(t)

    @property
    def wakeful(self) -> bool:
        """Whether a turn has something to do of which `fileno` does not tell."""
        cdef Transport* t = &self.f.transport
        return (t.wakeful or t.deferred.count > 0 or t.stalled.count > 0 or t.newcomers_rest or t.dirty.count > 0
                or t.doomed.count > 0 or handshakes_wait(t) or len(self.came) > 0)

    @property
    def hurried(self) -> bool:
        """Whether `tick` is wanted again after 100 ms: handshakes have their time."""
        return self.f.transport.tls.shaking.count > 0 or self.f.transport.memory_used > self.f.transport.memory_high

    def tick(self) -> None:
        """Ends who says nothing for too long, or begins a handshake for ever; gives pages back."""
        cdef Transport* t = &self.f.transport
        with nogil:
            t.steady_ms = steady_ms()
            transport_tick(t)
            if t.trim and not t.returned.bytes:
                t.trim = False
                give_pages_back()

    def answer(self, uint64_t connection, bytes frame) -> None:
        """To be sent with `flush`, or in the next turn; nothing when it is gone."""
        cdef Connection* c = connection_find(&self.f.transport, connection)
        cdef uint8_t* room
        cdef int64_t size = len(frame)
        if c == NULL or c.life != LIFE_OPEN:
            return
        room = output_room(&self.f.transport, c, size)
        if room != NULL:
            memcpy(room, <const char*>frame, size)
            output_used(&self.f.transport, c, size)

    def done(self, uint64_t connection):
        """The request of the frame at hand is done: take the connection's next frame, if any."""
        cdef Transport* t = &self.f.transport
        cdef Connection* c = connection_find(t, connection)
        cdef Py_ssize_t before = len(self.came)
        if c == NULL:
            return None
        memory_give(t, c, (<FramedPeer*>c).lent_bytes)
        (<FramedPeer*>c).lent_bytes = 0
        connection_owes_less(t, c)
        if c.life != LIFE_OPEN:
            t.wakeful = True           # it continues, or ends, with the stalled ones
            return None
        if c.input_state == INPUT_WAITS:
            c.input_state = INPUT_OPEN
            with nogil:
                handle_again(t, c)
                c = connection_find(t, connection)
                if c != NULL:
                    connection_watch(t, c)
        if len(self.came) > before and isinstance(self.came[before][1], bytes):
            return self.came.pop(before)[1]
        return None

    def is_gone(self, uint64_t connection) -> bool:
        """Whether its answers are unread."""
        cdef Connection* c = connection_find(&self.f.transport, connection)
        return c == NULL or c.life != LIFE_OPEN

    def close(self, uint64_t connection) -> None:
        """End it at once; what it sent and was not handled is dropped."""
        cdef Connection* c = connection_find(&self.f.transport, connection)
        if c != NULL:
            connection_close(&self.f.transport, c, CLOSE_ASKED, 0)

    def events(self) -> tuple[list[tuple[str, int, int]], int]:
        """Connections closed by us since the last call, as ServingLoop.events."""
        return closed_events(&self.f.transport)

    @property
    def tls_connections(self) -> int:
        return self.f.slot.figures[FIGURE_TLS_CONNECTIONS]

    @property
    def tls_handshakes(self) -> int:
        return self.f.slot.figures[FIGURE_TLS_HANDSHAKES]

    @property
    def tls_failures(self) -> int:
        return self.f.slot.figures[FIGURE_TLS_FAILURES]

    @property
    def memory_used(self) -> int:
        """Bytes of all connections."""
        return self.f.transport.memory_used

    def end(self) -> None:
        """Everything is closed, listeners and the thread of handshakes too."""
        cdef Transport* t = &self.f.transport
        with nogil:
            output_flush_all(t)
            transport_close_all(t)
            tls_end(t)
        for listener in self.listeners:
            listener.close()
        os.close(self.f.slot.bell)
