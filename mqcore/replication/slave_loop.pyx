"""The ha-slave process's native loop around its link (slave.pxd), and its Python shell."""
import os

from libc.errno cimport EINVAL, errno
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from mqcore.atomics cimport load_i32_acquire
from mqcore.clock cimport steady_ms
from mqcore.epoll cimport (
    EPOLL_CLOEXEC,
    EPOLL_CTL_ADD,
    EPOLLET,
    EPOLLIN,
    EPOLLOUT,
    epoll_create1,
    epoll_ctl,
    epoll_event,
)
from mqcore.layout cimport PRODUCER_HA_SLAVE, SLOT_HA_SLAVE
from mqcore.net.transport.tls_context cimport TlsClientContext
from mqcore.net.transport.tls_pipe cimport pipe_connect
from mqcore.replication.greet cimport CLUSTER_KEY_SIZE
from mqcore.replication.slave cimport (
    CLAIM_BYTES,
    GREETING_BYTES_MAX,
    LINK_KEY,
    SLAVE_BELL,
    Slave,
    believe,
    link_begin,
    link_drop,
    slave_has_work,
    slave_linger,
    slave_turn,
    slave_wait,
)
from mqcore.replication.wire cimport wire_close, wire_use
from mqcore.shm.segment cimport Segment, Shm, doorbell_arm, doorbell_disarm
from mqcore.store.log.append_end cimport append_bytes_max, append_end_open
from mqcore.tls.library cimport tls_library

cdef extern from "<unistd.h>" nogil:
    int close(int fd)


cdef int64_t place_version(Shm* shm) noexcept nogil:
    """Another one when it was said anew who leads, or where the master is."""
    return (<int64_t>load_i32_acquire(&shm.leadership.leader_sequence) << 32
            | <uint32_t>load_i32_acquire(&shm.master_place.sequence))


cdef class SlaveLoop:
    """
    The work of who follows a master's log, without the GIL: one link after the other.

    heartbeat_ms: after which silence of ours the end is reported again; housekeeping_ms: after which
    silence of the master the link is ended. Raises OSError.
    """

    def __cinit__(self, Segment segment not None, *, int64_t heartbeat_ms=5000,
                  int64_t housekeeping_ms=20000, int64_t member=0):
        cdef epoll_event event
        cdef Shm* shm = &segment.shm
        self.segment = segment
        self.s = <Slave*>calloc(1, sizeof(Slave))
        if self.s == NULL:
            raise MemoryError
        self.s.fd = self.s.epoll = -1
        self.s.shm = shm
        self.s.slot = &shm.slots[SLOT_HA_SLAVE]
        self.s.member = member
        self.s.heard_ms = steady_ms()
        append_end_open(&self.s.appends, shm, PRODUCER_HA_SLAVE, self.s.slot.incarnation)
        self.s.claim_bytes = min(<int64_t>CLAIM_BYTES, append_bytes_max(&self.s.appends))
        self.s.kept = <uint8_t*>malloc(max(<int64_t>CLAIM_BYTES, <int64_t>GREETING_BYTES_MAX))
        if self.s.kept == NULL:
            raise MemoryError
        self.configure(heartbeat_ms=heartbeat_ms, housekeeping_ms=housekeeping_ms)
        self.s.epoll = epoll_create1(EPOLL_CLOEXEC)
        event.events = EPOLLIN | EPOLLET
        event.data.u64 = SLAVE_BELL
        if self.s.epoll < 0 or epoll_ctl(self.s.epoll, EPOLL_CTL_ADD, self.s.slot.bell, &event):
            raise OSError(errno, os.strerror(errno))

    def __dealloc__(self):
        if self.s == NULL:
            return
        wire_close(&self.s.wire, False)
        if self.s.fd >= 0:
            close(self.s.fd)
        if self.s.epoll >= 0:
            close(self.s.epoll)
        free(self.s.kept)
        free(self.s)

    def configure(self, *, int64_t heartbeat_ms, int64_t housekeeping_ms) -> None:
        """Other times from now on."""
        self.s.heartbeat_ms = heartbeat_ms
        self.s.housekeeping_ms = housekeeping_ms

    def link(self, int fd, int64_t end=0, bytes below=None, TlsClientContext tls=None,
             bytes host=b"") -> None:
        """
        Follow over this socket from now on: it does not block, its connect has begun, and it is this
        object's. There is no link, and `ready`. below: the bytes of the log here up to `end`, where it
        ends, that a master sends again if it does not greet; b"": it has to greet; None: it
        is believed (slave HS10). tls, host: the link is made by TLS, to the host of this name or
        address (slave HS13). Raises OSError.
        """
        cdef epoll_event event
        event.events = EPOLLIN | EPOLLOUT | EPOLLET
        event.data.u64 = LINK_KEY
        link_begin(self.s, fd)
        if tls is not None:
            wire_use(tls_library())
            self.s.wire.pipe = pipe_connect(tls.context, fd, host, tls.verifies_host)
            if self.s.wire.pipe == NULL:
                link_drop(self.s)
                raise OSError(EINVAL, "no name of a host that a certificate could have")
        if below is not None:
            self.overlap = below
            self.s.overlap = <const uint8_t*><const char*>self.overlap + len(below)
            self.s.overlap_end = end
            self.s.overlap_left = len(below)
            self.s.proves = True
        if epoll_ctl(self.s.epoll, EPOLL_CTL_ADD, fd, &event):
            raise OSError(errno, os.strerror(errno))

    def take_key(self, bytes key not None) -> None:
        """The key of the cluster's account, for the next link (slave HS12); b"": it has none."""
        if len(key) not in (0, CLUSTER_KEY_SIZE):
            raise ValueError(f"{len(key)} bytes of a key")
        memcpy(self.s.key, <const char*>key, len(key))
        self.s.has_key = len(key) > 0

    def greeting(self) -> bytes:
        """What a master of ours said of its log, after NOTE_GREETED (slave HS7)."""
        return self.s.kept[:self.s.greeting] if self.s.greeted else b""

    def follow(self, bint asks=False) -> None:
        """
        The log that a greeting spoke of is the one here: it may be sent. asks: and so what others
        have of it, which the greeting has offered (slave HS9).
        """
        self.s.asks = asks
        believe(self.s)

    def unlink(self) -> None:
        """End the link, if there is one, without a note: the caller knows why."""
        link_drop(self.s)

    @property
    def linked(self) -> bool:
        """Whether there is a link, or one is being made."""
        return self.s.fd >= 0

    @property
    def ready(self) -> bool:
        """Whether the writer has answered what an earlier link brought (slave HS5)."""
        return not self.s.failed

    @property
    def lingered(self) -> int:
        """How often it has looked for a result of the writer before it slept (slave HS11)."""
        return self.s.linger.count

    def run(self, int64_t slice_ms) -> None:
        """
        Follow for `slice_ms`, or until a stop is asked for, a greeting came, the link ends, or another
        place of the master was said since the last run.
        """
        cdef int64_t end_ms = steady_ms() + slice_ms, now_ms, left_ms
        cdef bint linked = self.s.fd >= 0
        with nogil:
            while True:
                now_ms = steady_ms()
                slave_turn(self.s, now_ms)
                if (now_ms >= end_ms or load_i32_acquire(&self.s.slot.stop_requested)
                        or (linked and self.s.fd < 0) or (self.s.greeted and self.s.left == 0)
                        or place_version(self.s.shm) != self.place_seen):
                    break
                left_ms = end_ms - now_ms
                if (self.s.fd >= 0 and not self.s.connecting
                        and self.s.out_sent == self.s.out_size):
                    left_ms = min(left_ms, max(
                        self.s.reported_ms + self.s.heartbeat_ms - now_ms, <int64_t>0))
                slave_linger(self.s)
                doorbell_arm(self.s.slot)
                slave_wait(self.s, 0 if slave_has_work(self.s) else left_ms)
                doorbell_disarm(self.s.slot)
            self.place_seen = place_version(self.s.shm)

    def notes(self) -> list[tuple[int, int]]:
        """[(SlaveNote, value)] since the last call."""
        found = [(self.s.notes[i], self.s.values[i]) for i in range(self.s.notes_count)]
        self.s.notes_count = 0
        return found
