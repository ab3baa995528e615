"""The load generator's event loop: an epoll loop without the GIL and without Python objects."""
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memmove, memset
from libc.time cimport time_t

from mqcore.endian cimport load_i32
from mqcore.epoll cimport (
    EPOLL_CLOEXEC,
    EPOLL_CTL_ADD,
    EPOLL_CTL_DEL,
    EPOLL_CTL_MOD,
    EPOLLERR,
    EPOLLET,
    EPOLLHUP,
    EPOLLIN,
    EPOLLOUT,
    epoll_create1,
    epoll_ctl,
    epoll_event,
    epoll_wait,
)
from mqcore.layout cimport FRAME_HEADER_WORD, FRAME_LENGTH_MAX, FRAME_LENGTH_SIZE
from mqcore.bench.frames cimport OPAQUE_BASE, response_parse
from mqcore.bench.histogram cimport histogram_clear, histogram_summary
from mqcore.bench.tls_socket cimport TLS_GONE, TLS_LATER, TlsSocket

cdef extern from "<time.h>" nogil:
    struct timespec:
        time_t tv_sec
        long tv_nsec
    int CLOCK_MONOTONIC, CLOCK_REALTIME
    int clock_gettime(int clock, timespec* result) noexcept

cdef extern from "<sys/timerfd.h>" nogil:
    struct itimerspec:
        timespec it_interval
        timespec it_value
    int TFD_NONBLOCK, TFD_CLOEXEC, TFD_TIMER_ABSTIME
    int timerfd_create(int clock, int flags) noexcept
    int timerfd_settime(int fd, int flags, const itimerspec* value, itimerspec* old) noexcept

cdef extern from "<sys/socket.h>" nogil:
    int MSG_NOSIGNAL, MSG_DONTWAIT
    Py_ssize_t recv(int fd, void* target, size_t size, int flags) noexcept
    Py_ssize_t send(int fd, const void* source, size_t size, int flags) noexcept

cdef extern from "<unistd.h>" nogil:
    int close(int fd) noexcept

cdef enum:
    EVENTS_A_TURN = 128
    WAIT_MS_MAX = 100
    FREE_ROOM_MIN = 1 << 16              # less room than this behind the input: compact or grow
    TIMER = -1                           # the timer's mark among the connections' indexes

cdef int64_t NEVER = 0x7FFFFFFFFFFFFFFF
cdef int64_t NS_PER_S = 1_000_000_000


cdef int64_t monotonic_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return now.tv_sec * NS_PER_S + now.tv_nsec


cdef int64_t epoch_ms() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return now.tv_sec * 1000 + now.tv_nsec // 1_000_000


cdef int64_t outcome(Py_ssize_t moved) noexcept nogil:
    return TLS_LATER if moved < 0 and (errno == EAGAIN or errno == EINTR) else TLS_GONE


cdef int64_t receive_some(LoadConnection* connection) noexcept nogil:
    cdef uint8_t* into = connection.input + connection.input_end
    cdef int64_t room = connection.input_size - connection.input_end
    cdef Py_ssize_t got
    if connection.tls != NULL:
        return (<TlsSocket>connection.tls).read(into, room)
    got = recv(connection.fd, into, room, MSG_DONTWAIT)
    return got if got > 0 else outcome(got)


cdef int64_t send_some(LoadConnection* connection, int64_t waiting) noexcept nogil:
    cdef const uint8_t* data = connection.output + connection.output_begin
    cdef Py_ssize_t sent
    if connection.tls != NULL:
        return (<TlsSocket>connection.tls).write(data, waiting)
    sent = send(connection.fd, data, waiting, MSG_NOSIGNAL | MSG_DONTWAIT)
    return sent if sent >= 0 else outcome(sent)


cdef class LoadEngine:
    """
    What all engines share. Subclasses fill `turn` and `on_response`.

    sockets: connected, non-blocking TCP sockets, or TlsSockets over such; the engine keeps them and closes them in `close`.
    output_limit: bytes that may wait in one connection's output buffer.
    """

    def __cinit__(self, list sockets, int64_t output_limit, *args, **kwargs):
        cdef int32_t i
        cdef epoll_event event
        if not 1 <= len(sockets) <= CONNECTION_COUNT_MAX:
            raise ValueError(f"connections {len(sockets)}: expected 1 to {CONNECTION_COUNT_MAX}")
        self.epoll_fd = self.timer_fd = -1
        self.sockets = sockets
        self.output_limit = output_limit
        self.armed_ns = NEVER
        self.first_remark = b""
        self.connection_count = <int32_t>len(sockets)
        self.connections = <LoadConnection*>calloc(self.connection_count, sizeof(LoadConnection))
        if self.connections == NULL:
            raise MemoryError
        self.epoll_fd = epoll_create1(EPOLL_CLOEXEC)
        self.timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)
        event.events = EPOLLIN | EPOLLET                # edge: the timer is never read, only set
        event.data.fd = TIMER
        if (self.epoll_fd < 0 or self.timer_fd < 0
                or epoll_ctl(self.epoll_fd, EPOLL_CTL_ADD, self.timer_fd, &event)):
            raise OSError(errno, "epoll or timerfd could not be set up")
        for i in range(self.connection_count):
            self._add(i, sockets[i].fileno())
            if isinstance(sockets[i], TlsSocket):
                self.connections[i].tls = <void*>sockets[i]
        self.reset()

    def __dealloc__(self):
        cdef int32_t i
        if self.connections != NULL:
            for i in range(self.connection_count):
                free(self.connections[i].input)
                free(self.connections[i].output)
            free(self.connections)
        if self.epoll_fd >= 0:
            close(self.epoll_fd)
        if self.timer_fd >= 0:
            close(self.timer_fd)

    def _add(self, int32_t index, int32_t fd):
        cdef LoadConnection* connection = &self.connections[index]
        cdef epoll_event event
        connection.fd = fd
        connection.input = <uint8_t*>malloc(INPUT_SIZE)
        connection.input_size = INPUT_SIZE
        if connection.input == NULL:
            raise MemoryError
        event.events = EPOLLIN
        event.data.fd = index
        if epoll_ctl(self.epoll_fd, EPOLL_CTL_ADD, fd, &event):
            raise OSError(errno, f"connection {index} cannot be watched")
        connection.is_open = True
        self.open_count += 1

    # -- for subclasses ---------------------------------------------------------------------------

    cdef int64_t turn(self, int64_t now_ns) noexcept nogil:
        return NEVER

    cdef void on_response(
            self, int32_t index, const Response* response, int64_t now_ns) noexcept nogil:
        self.counters.unexpected += 1

    cdef void on_closed(self, int32_t index) noexcept nogil:
        return                                          # most engines have nothing of their own

    cdef uint8_t* output_room(self, LoadConnection* connection, int64_t size) noexcept nogil:
        """
        Where `size` bytes may be written, or NULL: over the limit or out of memory.

        The caller adds what it wrote to output_end.
        """
        cdef int64_t used = connection.output_end - connection.output_begin
        cdef int64_t wanted
        cdef uint8_t* grown
        if used + size > self.output_limit:
            return NULL
        if connection.output_size - connection.output_end >= size:
            return connection.output + connection.output_end
        if connection.output_begin:
            memmove(connection.output, connection.output + connection.output_begin, used)
            connection.output_begin = 0
            connection.output_end = used
        if connection.output_size - used < size:
            wanted = max(2 * connection.output_size, used + size + (1 << 14))
            grown = <uint8_t*>realloc(connection.output, wanted)
            if grown == NULL:
                return NULL
            connection.output = grown
            connection.output_size = wanted
        return connection.output + connection.output_end

    cdef void flush(self, int32_t index) noexcept nogil:
        """Send what waits on a connection; what the kernel does not take waits for EPOLLOUT."""
        cdef LoadConnection* connection = &self.connections[index]
        cdef int64_t waiting = connection.output_end - connection.output_begin
        cdef int64_t sent
        cdef bint blocked = False
        cdef epoll_event event
        if not connection.is_open or waiting == 0:
            return
        sent = send_some(connection, waiting)
        self.counters.writes += 1
        if sent == TLS_GONE:
            self.close_connection(index)
            return
        sent = max(sent, 0)
        self.counters.bytes_out += sent
        connection.output_begin += sent
        if sent == waiting:
            connection.output_begin = connection.output_end = 0
        blocked = sent < waiting
        if blocked != connection.wants_write:
            event.events = EPOLLIN | EPOLLOUT if blocked else EPOLLIN
            event.data.fd = index
            epoll_ctl(self.epoll_fd, EPOLL_CTL_MOD, connection.fd, &event)
            connection.wants_write = blocked

    cdef void close_connection(self, int32_t index) noexcept nogil:
        """Stop using a connection; its socket object is closed by close()."""
        cdef LoadConnection* connection = &self.connections[index]
        if not connection.is_open:
            return
        connection.is_open = False
        epoll_ctl(self.epoll_fd, EPOLL_CTL_DEL, connection.fd, NULL)
        self.open_count -= 1
        self.counters.lost += connection.inflight
        self.inflight -= connection.inflight
        connection.inflight = 0
        self.on_closed(index)

    cdef void count_error(self, const Response* response) noexcept nogil:
        cdef int32_t code = response.code
        cdef int32_t size
        self.counters.errors += 1
        if code < 0 or code >= ERROR_CODES:
            code = ERROR_CODES - 1
        self.error_codes[code] += 1
        if self.counters.errors == 1:                   # the first one is kept for the report
            size = response.header_size if response.header_size < 2000 else 2000
            with gil:
                self.first_remark = (<const char*>response.header)[:size]

    # -- the loop ---------------------------------------------------------------------------------

    cdef bint _receive(self, int32_t index) noexcept nogil:
        """One read into the input buffer; False when there was nothing or the peer has gone."""
        cdef LoadConnection* connection = &self.connections[index]
        cdef int64_t used = connection.input_end - connection.input_begin
        cdef uint8_t* grown
        cdef int64_t got
        if connection.input_size - connection.input_end < FREE_ROOM_MIN:
            if connection.input_begin:
                memmove(connection.input, connection.input + connection.input_begin, used)
                connection.input_begin = 0
                connection.input_end = used
            if connection.input_size - used < FREE_ROOM_MIN:    # bounded: _take_frames refuses
                grown = <uint8_t*>realloc(connection.input, 2 * connection.input_size)
                if grown == NULL:
                    self.close_connection(index)
                    return False
                connection.input = grown
                connection.input_size *= 2
        got = receive_some(connection)
        self.counters.reads += 1
        if got > 0:
            connection.input_end += got
            self.counters.bytes_in += got
            return True
        if got == TLS_GONE:
            self.close_connection(index)
        return False

    cdef bint _take_frames(self, int32_t index, int64_t now_ns) noexcept nogil:
        """Hand on every whole frame; False when the peer sent something that is no frame."""
        cdef LoadConnection* connection = &self.connections[index]
        cdef Response response
        cdef int64_t size
        cdef uint8_t* frame
        while connection.input_end - connection.input_begin >= FRAME_LENGTH_SIZE:
            frame = connection.input + connection.input_begin
            size = load_i32(frame)
            if size < FRAME_HEADER_WORD or size > FRAME_LENGTH_MAX:
                return False
            size += FRAME_LENGTH_SIZE
            if connection.input_end - connection.input_begin < size:
                break
            if not response_parse(frame, <int32_t>size, &connection.hint, &response):
                return False
            connection.input_begin += size
            if response.opaque >= OPAQUE_BASE:
                self.on_response(index, &response, now_ns)
            else:
                self.counters.server_requests += 1
            if not connection.is_open:
                return True
        if connection.input_begin == connection.input_end:
            connection.input_begin = connection.input_end = 0
        return True

    cdef void _ready(self, int32_t index, int32_t events) noexcept nogil:
        if not self.connections[index].is_open:
            return
        while events & (EPOLLIN | EPOLLERR | EPOLLHUP) and self._receive(index):
            if not self._take_frames(index, monotonic_ns()):
                self.counters.bad_frames += 1
                self.close_connection(index)
            if self.connections[index].tls == NULL or not self.connections[index].is_open:
                break                  # epoll tells of what is left in the socket, not in OpenSSL
        self.flush(index)

    cdef void _arm(self, int64_t at_ns) noexcept nogil:
        cdef itimerspec when
        if at_ns == self.armed_ns:
            return
        memset(&when, 0, sizeof(when))
        if at_ns != NEVER:                              # all zero would disarm; so would a past 0
            when.it_value.tv_sec = at_ns // NS_PER_S
            when.it_value.tv_nsec = at_ns % NS_PER_S
        timerfd_settime(self.timer_fd, TFD_TIMER_ABSTIME, &when, NULL)
        self.armed_ns = at_ns

    cdef void _loop(
            self, int64_t completed_target, int64_t deadline_ns, bint until_idle) noexcept nogil:
        cdef epoll_event events[EVENTS_A_TURN]
        cdef int64_t now_ns = monotonic_ns()
        cdef int64_t wake_ns
        cdef int count, i, timeout_ms
        while (self.open_count and now_ns < deadline_ns
                and self.counters.completed < completed_target):
            wake_ns = self.turn(now_ns)
            if until_idle and self.inflight == 0:
                return
            timeout_ms = WAIT_MS_MAX
            if wake_ns <= now_ns:
                timeout_ms = 0
            else:
                self._arm(wake_ns)
                if deadline_ns - now_ns < WAIT_MS_MAX * 1_000_000:
                    timeout_ms = <int>((deadline_ns - now_ns) // 1_000_000) + 1
            count = epoll_wait(self.epoll_fd, events, EVENTS_A_TURN, timeout_ms)
            for i in range(count):
                if events[i].data.fd == TIMER:
                    self.armed_ns = NEVER
                else:
                    self._ready(events[i].data.fd, <int32_t>events[i].events)
            now_ns = monotonic_ns()

    def run(self, *, int64_t completed_target=-1, double seconds=0.25, bint until_idle=False):
        """
        Turn the loop until `completed` reaches the target (-1: no target), `seconds` have passed,
        every connection is closed or, with until_idle, nothing is in flight.
        """
        cdef int64_t deadline_ns = monotonic_ns() + <int64_t>(seconds * 1e9)
        cdef int64_t target = NEVER if completed_target < 0 else completed_target
        with nogil:
            self._loop(target, deadline_ns, until_idle)

    # -- results ----------------------------------------------------------------------------------

    def reset(self) -> None:
        """Forget latencies and byte counts so far: the measured part begins."""
        histogram_clear(&self.latency)
        self.counters.bytes_in = self.counters.bytes_out = 0
        self.counters.reads = self.counters.writes = 0

    @property
    def completed(self) -> int:
        return self.counters.completed

    @property
    def in_flight(self) -> int:
        return self.inflight

    def results(self) -> dict:
        """All counters; latencies in microseconds."""
        result = dict(self.counters)
        result["errors_by_code"] = {
            code: self.error_codes[code] for code in range(ERROR_CODES) if self.error_codes[code]}
        result["first_error_header"] = self.first_remark.decode("utf-8", "replace")
        result["open_connections"] = self.open_count
        result["latency"] = histogram_summary(&self.latency)
        return result

    def close(self) -> None:
        """Close every connection."""
        for index in range(self.connection_count):
            self.close_connection(index)
        for sock in self.sockets:
            sock.close()
