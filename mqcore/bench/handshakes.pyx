"""
The load of peers that begin whole handshakes of TLS, so many a second, and go with a reset.

Open loop: handshake i is due at start + i / rate, whatever the server does; who is late makes up for
a second of it. Each has a socket, SOCKETS at a time, and ANSWER_NS for its answer. One thread runs a
load; no Python object is made for a handshake.
"""
from libc.errno cimport EAGAIN, errno
from libc.stdint cimport int32_t, int64_t, uint16_t
from libc.stdlib cimport calloc, free

from mqcore.bench.engine cimport NS_PER_S, monotonic_ns
from mqcore.bench.tls13 cimport (
    FINISHED_BYTES,
    FLIGHT_MAX,
    SHAKE_BROKEN,
    SHAKE_WAITS,
    SHAKEN,
    Shake,
    ShakeClient,
    shake_begin,
    shake_came,
    shake_client_close,
    shake_client_open,
)
from mqcore.epoll cimport (
    EPOLL_CLOEXEC,
    EPOLL_CTL_ADD,
    EPOLL_CTL_MOD,
    EPOLLIN,
    EPOLLOUT,
    epoll_create1,
    epoll_ctl,
    epoll_event,
    epoll_wait,
)

cdef extern from "<sys/socket.h>" nogil:
    int NO_SIGNAL "MSG_NOSIGNAL"
    int NO_WAIT "MSG_DONTWAIT"
    ssize_t c_receive "recv"(int fd, void* into, size_t size, int flags)
    ssize_t c_send "send"(int fd, const void* data, size_t size, int flags)

cdef extern from "<unistd.h>" nogil:
    int close(int fd)

cdef extern from *:
    """
    #include <arpa/inet.h>
    #include <netinet/in.h>
    #include <string.h>
    #include <sys/socket.h>
    #include <unistd.h>
    #ifndef IP_BIND_ADDRESS_NO_PORT
    #define IP_BIND_ADDRESS_NO_PORT 24
    #endif
    /* A socket on its way to an address; its close is a reset, which leaves no port waiting. */
    static int mq_knock(const char *host, uint16_t port, const char *source) {
      struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
      struct sockaddr_in from = {.sin_family = AF_INET};
      struct linger reset = {1, 0};
      int one = 1;
      int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
      if (fd < 0) return -1;
      inet_pton(AF_INET, host, &to.sin_addr);
      inet_pton(AF_INET, source, &from.sin_addr);
      setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
      setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
      if (bind(fd, (struct sockaddr *)&from, sizeof from) != 0
          || (connect(fd, (struct sockaddr *)&to, sizeof to) != 0 && errno != EINPROGRESS)) {
        close(fd);
        return -1;
      }
      return fd;
    }
    """
    int mq_knock(const char* host, uint16_t port, const char* source) noexcept nogil

cdef enum:
    SOCKETS = 1024
    EVENTS_AT_ONCE = 64
    NEVER_FD = -1

cdef int64_t NS_PER_MS = 1_000_000
cdef int64_t ANSWER_NS = 10 * NS_PER_S
cdef int64_t LATE_NS = NS_PER_S


cdef struct Place:
    int fd                                # NEVER_FD: free
    bint said                             # the hello has gone
    int64_t since_ns
    Shake shake


cdef class HandshakeLoad:
    """
    Handshakes at an IPv4 address, `rate` a second, from another one.

    begun, answered, failed   handshakes so far: the server's part of an answered one was whole, and
                              the client's has gone to it
    Raises OSError, TlsLibraryError, ValueError.
    """

    cdef ShakeClient client
    cdef Place* places
    cdef int32_t[SOCKETS] free_places
    cdef int32_t free_count
    cdef int epoll
    cdef bytes host
    cdef bytes source
    cdef uint16_t port
    cdef int64_t interval_ns
    cdef int64_t due_ns
    cdef int64_t look_ns                  # when places were last looked at for those without an answer
    cdef readonly int64_t begun
    cdef readonly int64_t answered
    cdef readonly int64_t failed

    def __cinit__(self, str address not None, double rate, str source="0.0.0.0"):
        cdef int32_t i
        self.epoll = NEVER_FD
        host, _, port = address.rpartition(":")
        if rate <= 0:
            raise ValueError(f"rate {rate}: expected more than 0 handshakes a second")
        self.host, self.port, self.source = host.encode(), int(port), source.encode()
        self.interval_ns = <int64_t>(NS_PER_S / rate)
        shake_client_open(&self.client)
        self.places = <Place*>calloc(SOCKETS, sizeof(Place))
        if self.places == NULL:
            raise MemoryError
        for i in range(SOCKETS):
            self.places[i].fd = NEVER_FD
            self.free_places[i] = i
        self.free_count = SOCKETS
        self.epoll = epoll_create1(EPOLL_CLOEXEC)
        if self.epoll < 0:
            raise OSError(errno, "no epoll")
        self.due_ns = self.look_ns = monotonic_ns()

    def __dealloc__(self):
        self.close()
        shake_client_close(&self.client)

    def close(self) -> None:
        """End what is under way."""
        cdef int32_t i
        if self.places != NULL:
            for i in range(SOCKETS):
                if self.places[i].fd >= 0:
                    close(self.places[i].fd)
            free(self.places)
            self.places = NULL
        if self.epoll >= 0:
            close(self.epoll)
            self.epoll = NEVER_FD

    def work(self, int span_ms) -> None:
        """Begin what is due, and go on with what is under way, for so long."""
        cdef const char* host = self.host
        cdef const char* source = self.source
        if self.places == NULL:
            raise ValueError("the load is closed")
        with nogil:
            self.run(host, source, monotonic_ns() + span_ms * NS_PER_MS)

    cdef void run(self, const char* host, const char* source, int64_t end_ns) noexcept nogil:
        cdef epoll_event[EVENTS_AT_ONCE] events
        cdef int64_t now_ns = monotonic_ns()
        cdef int64_t wait_ns
        cdef int i, count
        while now_ns < end_ns:
            self.due_ns = max(self.due_ns, now_ns - LATE_NS)
            while self.due_ns <= now_ns and self.free_count > 0:
                self.due_ns += self.interval_ns
                self.begin(host, source, now_ns)
            wait_ns = end_ns - now_ns
            if self.free_count > 0:
                wait_ns = min(wait_ns, self.due_ns - now_ns)
            count = epoll_wait(self.epoll, events, EVENTS_AT_ONCE,
                               <int>((max(wait_ns, 0) + NS_PER_MS - 1) // NS_PER_MS))
            for i in range(count):
                self.advance(<int32_t>events[i].data.u64)
            now_ns = monotonic_ns()
            if now_ns - self.look_ns >= NS_PER_S:
                self.look_ns = now_ns
                self.give_up(now_ns)

    cdef void begin(self, const char* host, const char* source, int64_t now_ns) noexcept nogil:
        cdef int32_t index = self.free_places[self.free_count - 1]
        cdef Place* place = &self.places[index]
        cdef epoll_event event
        place.fd = mq_knock(host, self.port, source)
        if place.fd < 0:
            self.failed += 1
            return
        self.free_count -= 1
        self.begun += 1
        place.since_ns = now_ns
        place.said = False
        shake_begin(&self.client, &place.shake)
        if not self.say(place):
            self.leave(index, False)
            return
        event.events = EPOLLIN if place.said else EPOLLOUT
        event.data.u64 = index
        epoll_ctl(self.epoll, EPOLL_CTL_ADD, place.fd, &event)

    cdef bint say(self, Place* place) noexcept nogil:
        """The hello, if its connection stands; False: it has failed."""
        cdef ssize_t sent = c_send(place.fd, self.client.hello, self.client.hello_length,
                                   NO_SIGNAL | NO_WAIT)
        place.said = sent == self.client.hello_length
        return place.said or (sent < 0 and errno == EAGAIN)

    cdef void advance(self, int32_t index) noexcept nogil:
        cdef Place* place = &self.places[index]
        cdef Shake* shake = &place.shake
        cdef epoll_event event
        cdef ssize_t got
        cdef int state
        if not place.said:
            if not self.say(place):
                self.leave(index, False)
            elif place.said:
                event.events = EPOLLIN
                event.data.u64 = index
                epoll_ctl(self.epoll, EPOLL_CTL_MOD, place.fd, &event)
            return
        got = c_receive(place.fd, shake.flight + shake.length, FLIGHT_MAX - shake.length,
                        NO_WAIT)
        if got < 0 and errno == EAGAIN:
            return
        state = shake_came(&self.client, shake, <int32_t>got) if got > 0 else SHAKE_BROKEN
        if state == SHAKE_WAITS:
            return
        self.leave(index, state == SHAKEN and c_send(
            place.fd, shake.finished, FINISHED_BYTES,
            NO_SIGNAL | NO_WAIT) == FINISHED_BYTES)

    cdef void leave(self, int32_t index, bint whole) noexcept nogil:
        cdef Place* place = &self.places[index]
        if whole:
            self.answered += 1
        else:
            self.failed += 1
        close(place.fd)
        place.fd = NEVER_FD
        self.free_places[self.free_count] = index
        self.free_count += 1

    cdef void give_up(self, int64_t now_ns) noexcept nogil:
        cdef int32_t i
        for i in range(SOCKETS):
            if self.places[i].fd >= 0 and now_ns - self.places[i].since_ns > ANSWER_NS:
                self.leave(i, False)
