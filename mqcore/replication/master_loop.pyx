"""The ha-master process's native loop around its links (master.pxd), and its Python shell."""
import os

from libc.errno cimport errno
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from mqcore.atomics cimport (
    load_i32_acquire,
    load_i64_acquire,
    store_i32_release,
    store_i64_release,
)
from mqcore.clock cimport steady_ms
from mqcore.epoll cimport (
    EPOLL_CLOEXEC,
    EPOLL_CTL_ADD,
    EPOLLET,
    EPOLLIN,
    epoll_create1,
    epoll_ctl,
    epoll_event,
)
from mqcore.layout cimport SLOT_HA_MASTER
from mqcore.net.transport.shake_thread cimport shake_thread_close, shake_thread_open
from mqcore.replication.verifier cimport verifier_close, verifier_open, verifier_pieces
from mqcore.replication.greet cimport CLUSTER_KEY_SIZE, GREETING_WORDS_MAX, greet_drop
from mqcore.replication.link_end cimport link_drop_wire
from mqcore.replication.links cimport (
    BELL_KEY,
    LINKS_MAX,
    LISTENER_KEY,
    MASTER_LISTENERS_MAX,
    UNSIGNED_MAX,
    Link,
    Master,
)
from mqcore.replication.master cimport (
    master_has_work,
    master_is_even,
    master_linger,
    master_part,
    master_turn,
    master_wait,
    master_wait_ms,
)
from mqcore.replication.wire cimport wire_use
from mqcore.shm.segment cimport doorbell_arm, doorbell_disarm, doorbell_rest
from mqcore.store.log.view cimport log_view_close, log_view_forget, log_view_open
from mqcore.tls.library cimport tls_library

cdef extern from "<unistd.h>" nogil:
    int close(int fd)
    int usleep(unsigned int microseconds)

cdef enum:
    GATHER_US = 2000                  # while nobody waits for slaves, they get more at a time
    GATHER_BYTES = 64 << 10           # who has as much to come has no need of a pause
    TWIN_MS = 1000                    # so long behind its successor nothing comes of a dead link


cdef bint are_twins(const Link* l, const Link* other) noexcept nogil:
    """
    Whether two slaves have one id (master HM3): the elder link is heard of while the younger one
    lives.
    """
    return l.reported and other.reported and l.member and l.member == other.member and min(
        l.heard_ms, other.heard_ms) > max(l.opened_ms, other.opened_ms) + TWIN_MS


cdef bint master_follows(Master* m) noexcept nogil:
    """Whether there is a slave that gets what comes (master HM14)."""
    cdef int i
    for i in range(LINKS_MAX):
        if m.links[i].reported:
            return True
    return False


cdef bint is_gathering(Master* m, int64_t sent) noexcept nogil:
    """Whether it was little that went out, and no slave is further behind than that."""
    cdef int64_t published = load_i64_acquire(&m.shm.log.published)
    cdef int i
    if m.gated or m.shows or not 0 < sent < GATHER_BYTES:
        return False
    for i in range(LINKS_MAX):
        if m.links[i].reported and published - m.links[i].position >= GATHER_BYTES:
            return False
    return True


cdef class MasterLoop:
    """
    The work of who sends the log to slaves, without the GIL.

    log_folders: where the segments are (log_folders.pxd); listeners: descriptors of listening sockets
    that do not block; gated: the writer waits for slaves, shows: the dispatcher does; greeting: what slaves
    of ours are told of the log first (greeting.py), empty: nothing; elected: who is waited for is said in
    shared memory (master HM9); hands_on: the log is a master's (master HM11); open_to: where slaves
    have to show the cluster's account, the networks that need not (key.py), None: none has to
    (master HM15); certificate_does: a certificate, where one is asked for, does for the account.
    Raises OSError, ValueError.
    """

    def __cinit__(self, Segment segment not None, bytes log_folders, listeners, *, bint gated=False,
                  bint shows=False, int min_in_sync=1, int64_t batch_bytes=32768,
                  int64_t heartbeat_ms=5000, int64_t housekeeping_ms=20000, bytes greeting=b"",
                  bint elected=False, bint hands_on=False, open_to=None, bint certificate_does=False):
        cdef epoll_event event
        cdef int i
        if len(listeners) > MASTER_LISTENERS_MAX:
            raise ValueError(f"{len(listeners)} listeners, at most {MASTER_LISTENERS_MAX}")
        self.segment = segment
        self.m = <Master*>calloc(1, sizeof(Master))
        if self.m == NULL:
            raise MemoryError
        self.m.epoll = -1
        for i in range(LINKS_MAX):
            self.m.links[i].fd = self.m.links[i].file = -1
        self.m.shm = &segment.shm
        self.m.slot = &segment.shm.slots[SLOT_HA_MASTER]
        log_view_open(&self.m.log, segment.shm.log, log_folders, segment.shm.head.segment_size)
        self.m.log.read_ahead = False
        self.m.gated = gated
        self.m.shows = shows
        self.m.elected = elected
        self.m.hands_on = hands_on
        self.m.guarded = open_to is not None
        self.m.certificate_does = certificate_does
        self._let_in(open_to or ())
        self._say(greeting)
        self.configure(min_in_sync=min_in_sync, batch_bytes=batch_bytes, heartbeat_ms=heartbeat_ms,
                       housekeeping_ms=housekeeping_ms)
        self.m.verifier = verifier_open(segment.shm.log, log_folders, self.m.log.segment_size,
                                      self.m.slot.bell)
        if self.m.verifier == NULL:
            raise MemoryError
        self.m.epoll = epoll_create1(EPOLL_CLOEXEC)
        event.events = EPOLLIN | EPOLLET
        event.data.u64 = BELL_KEY
        if self.m.epoll < 0 or epoll_ctl(self.m.epoll, EPOLL_CTL_ADD, self.m.slot.bell, &event):
            raise OSError(errno, os.strerror(errno))
        for i, listener in enumerate(listeners):
            self.m.listeners[i] = listener
            event.events = EPOLLIN
            event.data.u64 = LISTENER_KEY + i
            if epoll_ctl(self.m.epoll, EPOLL_CTL_ADD, self.m.listeners[i], &event):
                raise OSError(errno, os.strerror(errno))
            self.m.listener_count += 1
        self.m.listening = True
        store_i32_release(&segment.shm.replica_gate.present, 0)      # an earlier process's slaves

    def __dealloc__(self):
        cdef int i
        if self.m == NULL:
            return
        for i in range(LINKS_MAX):
            greet_drop(&self.m.links[i].greet)
            if self.m.links[i].fd >= 0:
                link_drop_wire(&self.m.links[i], False)
            if self.m.links[i].file >= 0:
                close(self.m.links[i].file)
        shake_thread_close(self.m.shaker)
        verifier_close(self.m.verifier)
        log_view_close(&self.m.log)
        if self.m.epoll >= 0:
            close(self.m.epoll)
        free(self.m)

    def _say(self, bytes greeting):
        if len(greeting) > GREETING_WORDS_MAX:
            raise ValueError(f"a greeting of {len(greeting)} bytes, at most {GREETING_WORDS_MAX}")
        self.greeting = greeting
        self.m.greeting = <const uint8_t*><const char*>self.greeting if greeting else NULL
        self.m.greeting_size = len(greeting)

    def _let_in(self, networks):
        if len(networks) > UNSIGNED_MAX:
            raise ValueError(f"{len(networks)} networks, at most {UNSIGNED_MAX}")
        cdef int i
        for i, (address, bits) in enumerate(networks):
            if len(address) != sizeof(self.m.networks[i].bytes):
                raise ValueError(f"an address of {len(address)} bytes")
            memcpy(self.m.networks[i].bytes, <const char*>(<bytes>address), len(address))
            self.m.networks[i].bits = bits
        self.m.network_count = len(networks)

    def take_key(self, bytes key not None) -> None:
        """The key of the cluster's account from now on (key.py); b"": there is none."""
        if len(key) not in (0, CLUSTER_KEY_SIZE):
            raise ValueError(f"{len(key)} bytes of a key")
        self.m.has_key = len(key) > 0
        memcpy(self.m.key, <const char*>key, len(key))

    def secure(self, int mode, TlsContext context, bint asks_certificates,
               int64_t shake_ms_max) -> None:
        """
        How links that come from now on are let in (wire HW1). mode: a TlsMode; context: what TLS is
        served with, None: it is not; asks_certificates: by this context slaves show one that is
        verified; shake_ms_max: a handshake that takes longer ends. Raises OSError.
        """
        if context is not None and self.m.shaker == NULL:
            wire_use(tls_library())
            self.m.shaker = shake_thread_open(self.m.slot)
            if self.m.shaker == NULL:
                raise OSError(errno, os.strerror(errno))
        self.tls = context
        self.m.context = NULL if context is None else context.context
        self.m.tls_mode = mode
        self.m.asks_certificates = asks_certificates
        self.m.shake_ms_max = shake_ms_max

    def greet(self, bytes greeting not None) -> None:
        """The log has other epochs now: all links end, and who comes hears this. Raises ValueError."""
        master_part(self.m)
        self._say(greeting)

    def configure(self, *, int min_in_sync, int64_t batch_bytes, int64_t heartbeat_ms,
                  int64_t housekeeping_ms) -> None:
        """
        From now on. min_in_sync: how many slaves have to have what an acknowledgement waits for;
        batch_bytes: of a frame to a slave of a stock broker; heartbeat_ms: after which silence an
        empty frame is sent; housekeeping_ms: after which silence of a slave its link is closed.
        """
        self.m.min_in_sync = min_in_sync
        self.m.batch_bytes = batch_bytes
        self.m.heartbeat_ms = heartbeat_ms
        self.m.housekeeping_ms = housekeeping_ms

    def slow_down(self, int64_t rate) -> None:
        """
        What is not of the moment goes out at `rate` bytes a second at most; 0: as it can
        (verifier CK6).
        """
        store_i64_release(&self.m.verifier.rate, rate)

    def run(self, int64_t slice_ms, bint until_even=False) -> None:
        """
        Send and listen for `slice_ms`, or until a stop is asked for; until_even: that does not end it,
        but that every slave has all of the log does.
        """
        cdef int64_t end_ms = steady_ms() + slice_ms, now_ms, sent, left_ms
        cdef bint more, rung
        log_view_forget(&self.m.log)
        with nogil:
            while True:
                now_ms = steady_ms()
                sent = master_turn(self.m, now_ms, &more)
                if now_ms >= end_ms:
                    break
                if until_even:
                    if master_is_even(self.m):
                        break
                elif load_i32_acquire(&self.m.slot.stop_requested):
                    break
                left_ms = 0 if more else master_wait_ms(self.m, now_ms, end_ms - now_ms)
                if not more and is_gathering(self.m, sent):
                    self.gathered += 1
                    usleep(GATHER_US)
                if master_follows(self.m):
                    doorbell_arm(self.m.slot)
                else:
                    doorbell_rest(self.m.slot)                           # master HM14
                rung = master_wait(self.m, 0 if master_has_work(self.m) else left_ms)
                doorbell_disarm(self.m.slot)
                if rung and self.m.gated:
                    master_linger(self.m)

    @property
    def checks(self) -> int:
        """
        How often the thread was asked that reads and judges what is not of the moment
        (master HM12).
        """
        return self.m.verifier.asked

    @property
    def kept(self) -> int:
        """Pieces of the log that are in memory for slaves now (verifier CK7)."""
        return verifier_pieces(self.m.verifier)

    @property
    def lingered(self) -> int:
        """How often it has looked for what the writer is about to publish (master HM13)."""
        return self.m.linger.count

    def slaves(self) -> list[tuple[str, bool, int, int]]:
        """(host:port, is it one of ours, log position sent, log position reported) of each."""
        return [(self.m.links[i].peer.decode(), self.m.links[i].ours != 0, self.m.links[i].position,
                 self.m.links[i].acked)
                for i in range(LINKS_MAX) if self.m.links[i].reported]

    def twins(self) -> list[tuple[int, str, str]]:
        """(broker.id, host:port, host:port) of slaves that have one id, and so count as one."""
        return [(self.m.links[i].member, self.m.links[i].peer.decode(),
                 self.m.links[k].peer.decode())
                for i in range(LINKS_MAX) for k in range(i)
                if are_twins(&self.m.links[i], &self.m.links[k])]

    def notes(self) -> tuple[list[tuple[int, str, int]], int]:
        """([(MasterNote, host:port, value)] since the last call, how many more)."""
        found = [(self.m.notes[i].kind, self.m.notes[i].peer.decode(), self.m.notes[i].value)
                 for i in range(self.m.notes_count)]
        lost = self.m.notes_lost
        self.m.notes_count = 0
        self.m.notes_lost = 0
        return found, lost
