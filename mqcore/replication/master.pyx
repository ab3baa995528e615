"""Sends the log to slaves (master.pxd has the rules)."""
from libc.errno cimport EMFILE, ENFILE, ENOBUFS, ENOMEM, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memset

from mqcore.atomics cimport load_i64_acquire
from mqcore.clock cimport steady_ms, wall_ms
from mqcore.endian cimport load_i64, store_i32, store_i64
from mqcore.epoll cimport (
    EPOLL_CTL_ADD,
    EPOLL_CTL_MOD,
    EPOLLET,
    EPOLLIN,
    EPOLLOUT,
    epoll_ctl,
    epoll_event,
    epoll_wait,
)
from mqcore.layout cimport (
    FIGURE_REFUSED_SLAVES,
    FIGURE_SENT_LOG_BYTES,
    FIGURE_SLAVE_LAG_BYTES,
    FIGURE_SLAVE_LAG_MS,
    FIGURE_SLAVES,
)
from mqcore.net.serving.cold cimport COLD_BEHIND_BYTES
from mqcore.replication.bodies cimport (
    COPIED_BYTES_MAX,
    piece_put,
    pieces_drop,
    send_body,
    send_small,
)
from mqcore.replication.verifier cimport (
    CHECK_BYTES,
    CHECK_DAMAGED,
    CHECK_RIGHT,
    CHECK_UNREADABLE,
    verifier_ask,
    verifier_ready,
    verifier_take,
)
from mqcore.replication.greet cimport (
    ANNOUNCE,
    FRAME_HEAD_SIZE,
    KEY_WORDS,
    NONCE_SIZE,
    REPORT_SIZE,
    TELL,
    TELL_SIZE,
    greet_challenge,
    greet_drop,
    greet_make,
    greet_send,
    key_words,
)
from mqcore.replication.in_sync cimport in_sync_judge, in_sync_report, link_of, number_slave
from mqcore.replication.link_end cimport (
    NOTE_BEFORE,
    NOTE_BEYOND,
    NOTE_DAMAGED,
    NOTE_DELETED,
    NOTE_LEFT,
    NOTE_NONSENSE,
    NOTE_NO_PLACE,
    NOTE_SILENT,
    NOTE_SLAVE,
    NOTE_STRANGER,
    NOTE_TLS_FAILED,
    NOTE_UNREADABLE,
    link_close,
    master_note,
    place_of,
)
from mqcore.replication.linger cimport linger_begin, linger_end, linger_on
from mqcore.replication.links cimport (
    ACCEPTS_A_SECOND,
    ACCEPTS_A_TURN,
    BELL_KEY,
    KEY_WORD_MAX,
    LINKS_MAX,
    LINK_PIECES,
    LISTENER_KEY,
    MEMBER_MAX,
    OUR_BATCH_BYTES,
    TURN_BYTES,
    Link,
    Master,
)
from mqcore.replication.places cimport link_is_let_in, place_choice
from mqcore.replication.shakes cimport link_speaks, shakes_turn, shakes_wait
from mqcore.replication.sockets cimport READS_A_TURN, link_accept
from mqcore.replication.wire cimport wire_flush, wire_read, wire_write
from mqcore.shm.replica_gate cimport replicated_end, shown_end
from mqcore.store.log.log_folders cimport log_open

cdef extern from "<unistd.h>" nogil:
    int close(int fd)

cdef extern from "<sys/random.h>" nogil:
    ssize_t getrandom(void* into, size_t size, unsigned int flags)

cdef extern from "<fcntl.h>" nogil:
    int O_RDONLY
    int O_CLOEXEC

cdef enum:
    EVENTS_MAX = 64
    READ_BYTES = 4096                 # of reports at once ...


# -- reports ---------------------------------------------------------------------------------------


cdef void follow_time(Link* l, int64_t published, int64_t now_ms) noexcept nogil:
    if l.acked >= l.goal:
        l.even_ms = l.goal_ms
        l.goal = published
        l.goal_ms = now_ms
    if l.acked >= published:
        l.even_ms = now_ms


cdef bint begin(Master* m, Link* l, int64_t asked, int64_t published, int64_t now_ms) noexcept nogil:
    """The first report; False: the link is closed."""
    cdef int64_t first = load_i64_acquire(&m.shm.log.first)
    l.position = asked
    if asked == 0:
        l.position = first if l.ours else published - published % m.log.segment_size
    elif asked > published:
        link_close(m, l, NOTE_BEYOND, asked)
        return False
    elif asked < first:
        link_close(m, l, NOTE_BEFORE, asked)
        return False
    if m.elected and l.member and link_of(m, l.member) != NULL:
        link_close(m, link_of(m, l.member), NOTE_LEFT, 0)
    number_slave(m, l)
    l.reported = True
    l.acked = asked
    l.even_ms = l.goal_ms = now_ms
    l.goal = published
    master_note(m, l, NOTE_SLAVE, l.position)
    return True


cdef bint challenge(Master* m, Link* l) noexcept nogil:
    """HM15; False: the link is closed."""
    cdef uint8_t nonce[NONCE_SIZE]
    if getrandom(nonce, NONCE_SIZE, 0) != NONCE_SIZE or not greet_challenge(&l.greet, nonce):
        link_close(m, l, NOTE_UNREADABLE, errno)
        return False
    key_words(l.expected, m.key, nonce, l.member)
    l.challenged = True
    return True


cdef bint greet(Master* m, Link* l, int64_t report, int64_t published) noexcept nogil:
    """Say whose log it is (HM8); False: the link is closed."""
    l.greeted = True
    greet_drop(&l.greet)               # a challenge that it has answered before it had all of it
    if greet_make(&l.greet, m.greeting, m.greeting_size, &m.log,
                  load_i64_acquire(&m.shm.log.first), published, report):
        return True
    link_close(m, l, NOTE_UNREADABLE, m.log.failure)
    return False


cdef void push_greeting(Master* m, Link* l) noexcept nogil:
    cdef int sent = greet_send(&l.greet, l.fd, &l.wire)
    if sent == 0:
        l.blocked = True
    elif sent < 0:
        link_close(m, l, NOTE_LEFT, 0)


cdef void flush(Master* m, Link* l) noexcept nogil:
    """What TLS still has of what was sent (wire HW2)."""
    cdef int64_t put = wire_flush(&l.wire)
    if put == -1:
        l.blocked = True
    elif put < 0:
        link_close(m, l, NOTE_LEFT, 0)


cdef bint take_report(Master* m, Link* l, int64_t value, int64_t now_ms) noexcept nogil:
    """One number; False: the link is closed (HM2)."""
    cdef int64_t published = load_i64_acquire(&m.shm.log.published)
    if not l.reported and not l.ours and ANNOUNCE - <int64_t>MEMBER_MAX <= value <= ANNOUNCE:
        l.ours = True
        l.member = ANNOUNCE - value
        return True
    if value <= KEY_WORD_MAX and l.challenged and l.key_words < KEY_WORDS:       # HM15
        l.key_differs |= value ^ l.expected[l.key_words]
        l.key_words += 1
        return True
    if value == TELL and l.greeted and not l.reported and not l.asks:    # HM10
        l.asks = True
        return True
    if value < 0:
        link_close(m, l, NOTE_NONSENSE, value)
        return False
    if not l.reported and not l.greeted and not link_is_let_in(m, l):
        if l.ours and m.has_key and not l.challenged:
            return challenge(m, l)
        if l.challenged and l.key_words == 0:      # it was on its way
            return True
        link_close(m, l, NOTE_STRANGER, 0)
        return False
    l.heard_ms = now_ms
    if l.ours and not l.greeted and m.greeting != NULL:
        return greet(m, l, value, published)
    if not l.reported:
        if not begin(m, l, value, published, now_ms):
            return False
    elif value > l.position:
        link_close(m, l, NOTE_BEYOND, value)
        return False
    l.acked = value
    follow_time(l, published, now_ms)
    return True


cdef void link_hear(Master* m, Link* l, int64_t now_ms) noexcept nogil:
    """What it says, within limits."""
    cdef uint8_t bytes[READ_BYTES]
    cdef int64_t got, at
    cdef int part, reads
    for reads in range(READS_A_TURN):
        got = wire_read(l.fd, &l.wire, bytes, READ_BYTES)
        if got == -1:
            l.readable = False
            return
        if got <= 0:
            link_close(m, l, NOTE_TLS_FAILED if l.wire.trouble else NOTE_LEFT, l.wire.trouble)
            return
        at = 0
        while at < got:
            part = <int>min(<int64_t>(REPORT_SIZE - l.report_got), got - at)
            memcpy(l.report + l.report_got, bytes + at, part)
            l.report_got += part
            at += part
            if l.report_got == REPORT_SIZE:
                l.report_got = 0
                if not take_report(m, l, load_i64(l.report), now_ms):
                    return


# -- frames ----------------------------------------------------------------------------------------


cdef bint take_check(Master* m, Link* l) noexcept nogil:
    """What the thread has found of its part of the log, if it has; False: the link is closed."""
    cdef int64_t position = 0
    cdef int piece, state = verifier_take(m.verifier, place_of(m, l), &position, &piece)
    piece_put(m.verifier, l, piece)
    pieces_drop(m.verifier, l, l.position)        # it may have been sent meanwhile, from the file
    if state >= CHECK_RIGHT:
        l.checking = False
    if state == CHECK_UNREADABLE:
        link_close(m, l, NOTE_UNREADABLE, position)
        return False
    if state in (CHECK_RIGHT, CHECK_DAMAGED):
        l.checked_to = position
    l.damaged = l.damaged or state == CHECK_DAMAGED
    return True


cdef inline bint is_of_the_moment(Master* m, int64_t position, int64_t published) noexcept nogil:
    return (position >= load_i64_acquire(&m.shm.log.begun)
            and published - position < COLD_BEHIND_BYTES)


cdef int64_t sendable(Master* m, Link* l, int64_t published) noexcept nogil:
    """Bytes from its position on that may be sent now (HM12); 0: none, -1: the link is closed."""
    cdef int64_t ahead
    if l.checking and not take_check(m, l):
        return -1
    if l.damaged and l.checked_to <= l.position:
        link_close(m, l, NOTE_DAMAGED, l.checked_to)
        return -1
    if not l.damaged and is_of_the_moment(m, l.position, published):
        return published - l.position
    ahead = max(l.checked_to, l.position)
    if (not l.checking and not l.damaged and ahead < min(published, l.file_base + m.log.segment_size)
            and ahead < l.position + CHECK_BYTES and not is_of_the_moment(m, ahead, published)):
        l.checking = verifier_ask(m.verifier, place_of(m, l), l.file, ahead, published,
                                 l.piece_count < LINK_PIECES)
    return max(l.checked_to - l.position, <int64_t>0)


cdef bint open_file(Master* m, Link* l) noexcept nogil:
    """The segment of its position; False: the link is closed (HM5)."""
    cdef int64_t base = l.position // m.log.segment_size * m.log.segment_size
    if l.file >= 0 and l.file_base == base:
        return True
    if l.file >= 0:
        close(l.file)
    l.file = log_open(m.log.folders, base, O_RDONLY | O_CLOEXEC)
    l.file_base = base
    if l.file >= 0:
        return True
    if base < load_i64_acquire(&m.shm.log.first):
        link_close(m, l, NOTE_DELETED, l.position)
    else:
        link_close(m, l, NOTE_UNREADABLE, errno)
    return False


cdef bint next_frame(Master* m, Link* l, int64_t published, int64_t now_ms) noexcept nogil:
    """The next frame that there is to be sent; False: none now."""
    cdef int64_t size = 0
    l.waits = False
    if l.position < published:
        if not open_file(m, l):
            return False
        size = sendable(m, l, published)
        if size <= 0:
            l.waits = size == 0
            return False
        size = min(size, l.file_base + m.log.segment_size - l.position)
        size = min(size, max(m.batch_bytes, <int64_t>OUR_BATCH_BYTES) if l.ours else m.batch_bytes)
    elif now_ms - l.sent_ms < m.heartbeat_ms:
        return False
    store_i64(l.head, l.position)
    store_i32(l.head + 8, <int32_t>size)
    l.head_sent = 0
    l.left = size
    return True


cdef int64_t known_end(Master* m) noexcept nogil:
    """Below it others have the log, as far as is known here (HM11, leadership FO10)."""
    if m.hands_on:
        return shown_end(m.shm, load_i64_acquire(&m.shm.log.published))
    return replicated_end(m.shm) if m.elected else load_i64_acquire(&m.shm.replica_gate.replicated)


cdef bint is_untold(Master* m, const Link* l) noexcept nogil:
    """HM10: whether there is a word to it, or the rest of one."""
    return l.word_left > 0 or (l.asks and l.reported and l.told < known_end(m))


cdef int64_t send_word(Master* m, Link* l, int64_t published) noexcept nogil:
    """What others have, between two frames; as link_write."""
    cdef int64_t put
    if l.word_left == 0:
        l.told = known_end(m)
        store_i64(l.word, TELL)
        store_i32(l.word + 8, TELL_SIZE)
        store_i64(l.word + FRAME_HEAD_SIZE, l.told)
        l.word_left = sizeof(l.word)
    put = wire_write(l.fd, &l.wire, l.word + sizeof(l.word) - l.word_left, l.word_left,
                     l.position < published)
    if put > 0:
        l.word_left -= <int>put
    return put


cdef int64_t link_send(Master* m, Link* l, int64_t published, int64_t now_ms) noexcept nogil:
    """Bytes that it took in this turn."""
    cdef int64_t done = 0, put, before
    cdef bint word
    while done < TURN_BYTES:
        word = l.head_sent == FRAME_HEAD_SIZE and l.left == 0 and is_untold(m, l)
        if not word and l.head_sent == FRAME_HEAD_SIZE and l.left == 0 and not next_frame(
                m, l, published, now_ms):
            return done
        before = l.position
        put = 0
        if l.head_sent == 0 and 0 < l.left <= COPIED_BYTES_MAX:
            put = send_small(m.verifier, l)
        if word:
            put = send_word(m, l, published)
        elif put == 0 and l.head_sent < FRAME_HEAD_SIZE:
            put = wire_write(l.fd, &l.wire, l.head + l.head_sent, FRAME_HEAD_SIZE - l.head_sent, l.left > 0)
            if put > 0:
                l.head_sent += <int>put
        elif put == 0:
            put = send_body(m.verifier, l)
            if put == 0:
                link_close(m, l, NOTE_UNREADABLE, 0)
                return done
        m.sent_bytes += l.position - before
        if put == -1:
            l.blocked = True
            return done
        if put < 0:
            link_close(m, l, NOTE_LEFT, 0)
            return done
        done += put
        l.sent_ms = now_ms
    return done


# -- who comes (HM7) -------------------------------------------------------------------------------


cdef void listen_again(Master* m, bint listening) noexcept nogil:
    cdef epoll_event event
    cdef int i
    if m.listening == listening:
        return
    m.listening = listening
    for i in range(m.listener_count):
        event.events = EPOLLIN if listening else 0
        event.data.u64 = LISTENER_KEY + i
        epoll_ctl(m.epoll, EPOLL_CTL_MOD, m.listeners[i], &event)


cdef void take_in(Master* m, int listener, int64_t now_ms) noexcept nogil:
    cdef Link come
    cdef Link* l
    cdef epoll_event event
    cdef int turn
    for turn in range(ACCEPTS_A_TURN):
        if m.accepted >= ACCEPTS_A_SECOND:
            break
        memset(&come, 0, sizeof(Link))
        come.fd = link_accept(listener, come.peer, &come.host_length)
        if come.fd < 0 and errno in (EMFILE, ENFILE, ENOBUFS, ENOMEM):
            m.accepted = ACCEPTS_A_SECOND          # the machine has none: later
            break
        if come.fd < 0:
            return
        m.accepted += 1
        come.file = -1
        come.head_sent = FRAME_HEAD_SIZE
        come.opened_ms = come.heard_ms = come.sent_ms = now_ms
        l = place_choice(m, &come)
        if l == NULL:
            link_close(m, &come, NOTE_NO_PLACE, 0)
            continue
        if l.fd >= 0:
            link_close(m, l, NOTE_NO_PLACE, 0)
        l[0] = come
        event.events = EPOLLIN | EPOLLOUT | EPOLLET
        event.data.u64 = place_of(m, l)
        if epoll_ctl(m.epoll, EPOLL_CTL_ADD, l.fd, &event) != 0:
            link_close(m, l, NOTE_NO_PLACE, errno)
    if m.accepted >= ACCEPTS_A_SECOND:
        listen_again(m, False)


cdef void master_part(Master* m) noexcept nogil:
    cdef int i
    for i in range(LINKS_MAX):
        if m.links[i].fd >= 0:
            link_close(m, &m.links[i], NOTE_LEFT, 0)


# -- turns -----------------------------------------------------------------------------------------


cdef void report(Master* m, int64_t published, int64_t now_ms) noexcept nogil:
    cdef int64_t slaves = 0, behind = 0, late = 0
    cdef uint32_t known = 0
    cdef Link* l
    cdef int i
    for i in range(LINKS_MAX):
        l = &m.links[i]
        if not l.reported:
            continue
        slaves += not known >> l.slave & 1
        known |= <uint32_t>1 << l.slave
        behind = max(behind, published - l.acked)
        if l.acked < published:
            late = max(late, now_ms - l.even_ms)
    m.slot.figures[FIGURE_SLAVES] = slaves
    m.slot.figures[FIGURE_SLAVE_LAG_BYTES] = behind
    m.slot.figures[FIGURE_SLAVE_LAG_MS] = late
    m.slot.figures[FIGURE_SENT_LOG_BYTES] = m.sent_bytes
    m.slot.figures[FIGURE_REFUSED_SLAVES] = m.refused
    m.slot.beat_ms = wall_ms()


cdef int64_t master_turn(Master* m, int64_t now_ms, bint* more) noexcept nogil:
    cdef int64_t published = load_i64_acquire(&m.shm.log.published), done = 0, put
    cdef Link* l
    cdef int i
    more[0] = False
    if now_ms // 1000 != m.second:
        m.second = now_ms // 1000
        m.accepted = 0
        listen_again(m, True)
    for i in range(LINKS_MAX):
        l = &m.links[i]
        if l.fd < 0:
            continue
        if l.readable and link_speaks(m, l):
            link_hear(m, l, now_ms)
        if l.fd >= 0 and l.wire.record_size and not l.blocked:
            flush(m, l)
        if l.fd >= 0 and l.greet.bytes != NULL and not l.blocked:
            push_greeting(m, l)
        if l.fd >= 0 and l.reported and not l.blocked and l.greet.bytes == NULL:
            put = link_send(m, l, published, now_ms)
            done += put
            more[0] = more[0] or (l.fd >= 0 and put >= TURN_BYTES)
        if l.fd >= 0 and now_ms - l.heard_ms > m.housekeeping_ms:
            link_close(m, l, NOTE_SILENT, now_ms - l.heard_ms)
        more[0] = more[0] or (l.fd >= 0 and l.readable and not l.shaking)
    shakes_turn(m, now_ms)
    in_sync_judge(m)
    for i in range(LINKS_MAX):
        l = &m.links[i]
        more[0] = more[0] or (l.reported and not l.blocked and is_untold(m, l))
    report(m, published, now_ms)
    if m.elected:
        in_sync_report(m, published, now_ms)
    return done


cdef int64_t master_wait_ms(Master* m, int64_t now_ms, int64_t most) noexcept nogil:
    cdef Link* l
    cdef int i
    if not m.listening:
        most = min(most, 1000 - now_ms % 1000)
    for i in range(LINKS_MAX):
        l = &m.links[i]
        if l.fd < 0:
            continue
        if l.reported and not l.blocked:
            most = min(most, l.sent_ms + m.heartbeat_ms - now_ms)
        if l.shaking:
            most = min(most, l.opened_ms + m.shake_ms_max + 1 - now_ms)
        most = min(most, l.heard_ms + m.housekeeping_ms + 1 - now_ms)
    return max(most, <int64_t>0)


cdef bint master_wait(Master* m, int64_t timeout_ms) noexcept nogil:
    cdef bint rung = False, came = False
    cdef epoll_event events[EVENTS_MAX]
    cdef int64_t key
    cdef Link* l
    cdef int i, count = epoll_wait(m.epoll, events, EVENTS_MAX, <int>timeout_ms)
    for i in range(count):
        key = events[i].data.u64
        if key == BELL_KEY:
            rung = True
            continue
        came = True
        if key >= LISTENER_KEY:
            take_in(m, m.listeners[key - LISTENER_KEY], steady_ms())
            continue
        l = &m.links[key]
        l.readable = l.fd >= 0
        if events[i].events & EPOLLOUT:
            l.blocked = False
    return rung and not came


cdef void master_linger(Master* m) noexcept nogil:
    cdef int64_t end_us = linger_begin(&m.linger)
    if end_us == 0:
        return
    while not master_has_work(m) and linger_on(end_us):
        pass
    linger_end(&m.linger, master_has_work(m))


cdef bint master_is_even(Master* m) noexcept nogil:
    cdef int i
    for i in range(LINKS_MAX):
        if m.links[i].reported and (m.links[i].acked < load_i64_acquire(&m.shm.log.published)
                                    or is_untold(m, &m.links[i])):
            return False
    return True


cdef bint master_has_work(Master* m) noexcept nogil:
    cdef int64_t published = load_i64_acquire(&m.shm.log.published)
    cdef Link* l
    cdef int i
    if shakes_wait(m):
        return True
    for i in range(LINKS_MAX):
        l = &m.links[i]
        if not l.reported or l.blocked:
            continue
        if l.waits:
            if verifier_ready(m.verifier, place_of(m, l)):
                return True
        elif l.position < published:
            return True
    return False
