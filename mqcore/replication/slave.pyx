"""Takes the log of a master (slave.pxd has the rules)."""
from libc.errno cimport ETIMEDOUT, errno
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp, memcpy, memmove

from mqcore.atomics cimport load_i64_acquire, store_i32_release, store_i64_release
from mqcore.clock cimport steady_ms, wall_ms
from mqcore.endian cimport load_i32, load_i64, store_i64
from mqcore.epoll cimport epoll_event, epoll_wait
from mqcore.layout cimport (
    APPEND_RAW,
    BLANK_SIZE_MIN,
    FIGURE_FOLLOWED_BYTES,
    FIGURE_MASTER_LINK,
    FIGURE_MASTER_LINKS,
    FIGURE_MASTER_SILENT_MS,
    FIGURE_UNSTORED_BYTES,
    MAGIC_BLANK,
    PUT_OK,
    RECORD_FIXED_SIZE,
    RECORD_MAGIC,
    RECORD_SIZE,
    SLOT_DISPATCHER,
    SLOT_HA_MASTER,
    SLOT_WRITER,
    AppendHead,
    AppendResult,
)
from mqcore.net.transport.tls_pipe cimport PIPE_DONE, pipe_step
from mqcore.replication.greet cimport (
    ANNOUNCE,
    CHALLENGE,
    FRAME_HEAD_SIZE,
    GREETING_FIXED_SIZE,
    KEY_WORDS,
    NONCE_SIZE,
    REPORT_SIZE,
    TELL,
    TELL_SIZE,
    key_words,
)
from mqcore.replication.linger cimport linger_begin, linger_end, linger_on
from mqcore.replication.sockets cimport (
    READS_A_TURN,
    link_error,
    link_read_parts,
)
from mqcore.replication.wire cimport (
    WIRE_FAILED,
    WIRE_SHAKEN,
    wire_close,
    wire_flush,
    wire_read,
    wire_shaken,
    wire_write,
)
from mqcore.shm.ring cimport ring_finish, ring_is_empty, ring_next, ring_release
from mqcore.shm.segment cimport doorbell_grew, doorbell_ring
from mqcore.store.log.append_end cimport (
    append_bytes_max,
    append_claim,
    append_push,
    append_records,
)

cdef extern from "<unistd.h>" nogil:
    int close(int fd)

cdef enum:
    EVENTS_A_WAIT = 4
    CONNECT_MS = 5000
    RESULTS_WAIT_MS = 5000            # after a link that failed; then they count as lost


cdef void slave_note(Slave* s, int kind, int64_t value) noexcept nogil:
    if s.notes_count < SLAVE_NOTES_MAX:
        s.notes[s.notes_count] = kind
        s.values[s.notes_count] = value
        s.notes_count += 1


cdef void link_drop(Slave* s) noexcept nogil:
    if s.fd < 0:
        return
    wire_close(&s.wire, not s.connecting)
    close(s.fd)
    s.fd = -1
    s.failed = s.outstanding > 0
    s.failed_ms = steady_ms()


cdef void link_end(Slave* s, int kind, int64_t value) noexcept nogil:
    """No link; kind: why, as a SlaveNote."""
    if s.fd < 0:
        return
    slave_note(s, kind, value)
    link_drop(s)


cdef void link_begin(Slave* s, int fd) noexcept nogil:
    s.fd = fd
    s.wire.trouble = 0
    s.connecting = True
    s.readable = False
    s.heard_ms = steady_ms()
    s.reported = s.next = -1
    s.out_size = s.out_sent = 0
    s.head_got = 0
    s.claim = NULL
    s.left = s.have = s.greeting = s.skip = 0
    s.outstanding = 0
    s.failed = False
    s.greeted = s.was_greeted = s.asks = s.asked = False
    s.word_left = s.nonce_left = 0
    s.challenged = s.answers = False
    s.proves = s.was_empty = False
    s.overlap_left = 0


# -- reports (HS1) ---------------------------------------------------------------------------------


cdef void push_out(Slave* s) noexcept nogil:
    cdef int64_t put
    while s.out_sent < s.out_size:
        put = wire_write(s.fd, &s.wire, s.out + s.out_sent, s.out_size - s.out_sent, False)
        if put == -1:
            return
        if put < 0:
            link_end(s, NOTE_ENDED, 0)
            return
        s.out_sent += <int>put


cdef void put_answer(Slave* s) noexcept nogil:
    """The words for the nonce (HS12)."""
    cdef int64_t words[KEY_WORDS]
    cdef int i
    key_words(words, s.key, s.nonce, s.member)
    for i in range(KEY_WORDS):
        store_i64(s.out + REPORT_SIZE * i, words[i])
    s.out_size = KEY_WORDS * REPORT_SIZE
    s.answers = False


cdef void say_end(Slave* s, int64_t now_ms) noexcept nogil:
    cdef int64_t end = load_i64_acquire(&s.shm.log.published)
    if s.next >= 0:
        end = min(end, s.next)
    elif s.overlap_left:                                                 # HS10
        end = s.overlap_end - s.overlap_left
    if s.out_sent < s.out_size:        # the master does not read: what it gets then is the latest
        push_out(s)
        if s.fd < 0 or s.out_sent < s.out_size:
            return
    if s.greeted:                      # HS7: it is not known yet whose log it is
        return
    if s.nonce_left or (end == s.reported and not s.answers
                        and now_ms - s.reported_ms < s.heartbeat_ms):
        return
    if s.reported >= 0 and s.next < 0 and not (s.was_greeted or s.answers):                  # HS14
        s.reported_ms = now_ms
        return
    s.out_size = s.out_sent = 0
    if s.reported < 0:                                                   # HS6
        store_i64(s.out, ANNOUNCE - s.member)                            # HS8
        s.out_size = REPORT_SIZE
    if s.answers:                                                        # HS12
        put_answer(s)
    if s.asks and not s.asked:                                           # HS9
        store_i64(s.out, TELL)
        s.out_size = REPORT_SIZE
        s.asked = True
    store_i64(s.out + s.out_size, end)
    s.out_size += REPORT_SIZE
    s.reported = end
    s.reported_ms = now_ms
    push_out(s)


# -- what comes ------------------------------------------------------------------------------------


cdef bint begin_frame(Slave* s) noexcept nogil:
    """A head is complete; False: the link is ended (HS2)."""
    cdef int64_t position = load_i64(s.head)
    cdef int32_t size = load_i32(s.head + 8)
    s.head_got = 0
    if position == ANNOUNCE and s.next < 0 and not s.was_greeted:        # HS7
        if not GREETING_FIXED_SIZE <= size <= GREETING_BYTES_MAX:
            link_end(s, NOTE_BAD_FRAME, size)
            return False
        s.greeted = s.was_greeted = True
        s.left = size
        return True
    if position == CHALLENGE and s.next < 0 and s.reported >= 0 and not (
            s.was_greeted or s.challenged):                              # HS12
        if size != NONCE_SIZE:
            link_end(s, NOTE_BAD_FRAME, size)
            return False
        if not s.has_key:
            link_end(s, NOTE_NO_ACCOUNT, 0)
            return False
        s.challenged = True
        s.left = s.nonce_left = NONCE_SIZE
        return True
    if not 0 <= size <= FRAME_BYTES_MAX or (
            position == TELL and s.asked and size != TELL_SIZE):
        link_end(s, NOTE_BAD_FRAME, size)
        return False
    if position == TELL and s.asked:                                     # HS9
        s.left = s.word_left = TELL_SIZE
        return True
    if s.next < 0:
        if s.proves and not s.was_greeted and s.reported > 0:            # HS10
            if s.overlap_left == 0 or (s.was_empty and size == 0 and position == s.reported):
                link_end(s, NOTE_NOTHING_BELOW if s.overlap_left else NOTE_NOT_GREETED, position)
                return False
            if size == 0 and position == s.reported:
                s.was_empty = True
                return True
        if position >> POSITION_BITS or (s.reported != position and (
                s.reported != 0 or position % s.shm.head.segment_size != 0)):
            link_end(s, NOTE_OTHER_PLACE, position)
            return False
        s.next = position
        s.next_position = position + s.overlap_left
        # replica_gate G10; the log of a master of ours may come before it was asked
        store_i32_release(&s.shm.replica_gate.untold, not (s.asked or s.asks))
    if position != s.next:
        link_end(s, NOTE_OTHER_PLACE, position)
        return False
    s.left = size
    return True


cdef void drop_blank(Slave* s) noexcept nogil:
    """HS3: the rest of a blank, as far as it is there."""
    cdef uint8_t* bytes = append_records(s.claim)
    cdef int64_t part = min(s.skip, s.have)
    if part:
        memmove(bytes, bytes + part, s.have - part)
        s.have -= part
        s.next_position += part
        s.skip -= part


cdef bint open_claim(Slave* s, int64_t room) noexcept nogil:
    """A claim that has `room`, with what came before at its start (HS4); False: the ring has none."""
    cdef const uint8_t* before = s.kept if s.claim == NULL else append_records(s.claim)
    cdef AppendHead* head = append_claim(&s.appends, <int32_t>room)
    if head == NULL:
        return False
    memmove(append_records(head), before, s.have)    # what is behind a claim before it overlaps
    s.claim = head
    s.room = room
    return True


cdef bint has_claim(Slave* s) noexcept nogil:
    """Whether there is room for what comes next; if not, the writer rings when there is some."""
    cdef int64_t room = s.claim_bytes
    if s.claim != NULL and s.have < s.room:
        return True
    if s.claim != NULL:                # all of it is one record: its size is known to be a possible one
        room = load_i32(append_records(s.claim) + RECORD_SIZE)
    return open_claim(s, room)


cdef bint feed_greeting(Slave* s, const uint8_t* data, int64_t size) noexcept nogil:
    """HS7; False: the link is ended."""
    cdef int64_t part = min(s.left, size)
    memcpy(s.kept + s.greeting, data, part)
    s.greeting += part
    s.left -= part
    if s.left > 0:
        return True
    s.readable = False
    if part < size:                    # it says no more before it is answered
        link_end(s, NOTE_BAD_FRAME, size - part)
        return False
    slave_note(s, NOTE_GREETED, s.greeting)
    return True


cdef int64_t feed_word(Slave* s, const uint8_t* data, int64_t size) noexcept nogil:
    """HS9: bytes of it that were taken, -1: the link is ended."""
    cdef int64_t part = min(<int64_t>s.word_left, size), told
    memcpy(s.word + TELL_SIZE - s.word_left, data, part)
    s.word_left -= <int>part
    s.left -= part
    if s.word_left:
        return part
    told = load_i64(s.word)
    if told < 0 or told >> POSITION_BITS:
        link_end(s, NOTE_OTHER_PLACE, told)
        return -1
    if told > load_i64_acquire(&s.shm.replica_gate.told):
        store_i64_release(&s.shm.replica_gate.told, told)
        doorbell_grew(&s.shm.slots[SLOT_DISPATCHER])
        doorbell_grew(&s.shm.slots[SLOT_HA_MASTER])          # master HM11
    return part


cdef int64_t feed_nonce(Slave* s, const uint8_t* data, int64_t size) noexcept nogil:
    """HS12: the count of bytes that were taken."""
    cdef int64_t part = min(<int64_t>s.nonce_left, size)
    memcpy(s.nonce + NONCE_SIZE - s.nonce_left, data, part)
    s.nonce_left -= <int>part
    s.left -= part
    s.answers = s.nonce_left == 0
    return part


cdef int64_t feed_overlap(Slave* s, const uint8_t* data, int64_t size) noexcept nogil:
    """HS10: bytes that are here, too, -1: they are others, and the link is ended."""
    cdef int64_t part = min(min(s.left, size), s.overlap_left)
    if memcmp(data, s.overlap - s.overlap_left, part) != 0:
        link_end(s, NOTE_OTHER_LOG, s.next)
        return -1
    s.overlap_left -= part
    s.left -= part
    s.next += part
    return part


cdef inline void came(Slave* s, int64_t size) noexcept nogil:
    """Bytes of the log, where they belong."""
    s.have += size
    s.left -= size
    s.next += size
    s.received += size


cdef bint feed_head(Slave* s, int64_t size) noexcept nogil:
    """So many bytes of a head are there; False: the link is ended."""
    s.head_got += <int>size
    return s.head_got < FRAME_HEAD_SIZE or begin_frame(s)


cdef bint feed(Slave* s, const uint8_t* data, int64_t size) noexcept nogil:
    """
    Frames cut anywhere, which lie in the claim: their bodies move together there; False: the link is
    ended.
    """
    cdef uint8_t* bytes = append_records(s.claim)
    cdef int64_t part, at = 0
    while at < size:
        if s.greeted:
            return feed_greeting(s, data + at, size - at)
        if s.left == 0:
            part = min(<int64_t>(FRAME_HEAD_SIZE - s.head_got), size - at)
            memcpy(s.head + s.head_got, data + at, part)
            if not feed_head(s, part):
                return False
        elif s.word_left:
            part = feed_word(s, data + at, size - at)
            if part < 0:
                return False
        elif s.nonce_left:
            part = feed_nonce(s, data + at, size - at)
        elif s.overlap_left:
            part = feed_overlap(s, data + at, size - at)
            if part < 0:
                return False
        else:
            part = min(s.left, size - at)
            if bytes + s.have != data + at:
                memmove(bytes + s.have, data + at, part)
            came(s, part)
        at += part
    return True


cdef void believe(Slave* s) noexcept nogil:
    s.greeting = 0
    s.greeted = False
    s.readable = True
    s.reported_ms = 0


cdef int64_t whole_records(Slave* s) noexcept nogil:
    """Bytes in the claim that are whole records, for one request; -1: the link is ended."""
    cdef int64_t size = 0, rest, length
    cdef const uint8_t* at
    while s.have - size >= BLANK_SIZE_MIN:
        at = append_records(s.claim) + size
        rest = s.shm.head.segment_size - (s.next_position + size) % s.shm.head.segment_size
        if load_i32(at + RECORD_MAGIC) == MAGIC_BLANK:
            s.skip = rest - BLANK_SIZE_MIN
            return size + BLANK_SIZE_MIN
        length = load_i32(at + RECORD_SIZE)
        if length < RECORD_FIXED_SIZE or length + BLANK_SIZE_MIN > rest:
            if size:
                break
            link_end(s, NOTE_BAD_RECORD, s.next_position)
            return -1
        if length > append_bytes_max(&s.appends):
            if size:
                break
            link_end(s, NOTE_TOO_LARGE, length)
            return -1
        if length > s.have - size:
            break
        size += length
    return size


cdef bint hand_over(Slave* s) noexcept nogil:
    """Whole records to the writer (HS3); whether there were any."""
    cdef AppendHead* head = s.claim
    cdef int64_t size = whole_records(s)
    if size <= 0:
        return False
    s.have -= size
    memcpy(s.kept, append_records(head) + size, s.have)
    head.queue_hash = s.next_position
    head.bytes_total = <int32_t>size
    ring_finish(&s.appends.appends, APPEND_RAW, <int32_t>(sizeof(AppendHead) + size))
    s.claim = NULL
    s.outstanding += 1
    s.handed = size
    s.next_position += size
    return True


cdef void hand_all_over(Slave* s) noexcept nogil:
    """All that is whole, while there is room for what is not (HS4)."""
    cdef int64_t before = s.next_position
    while s.fd >= 0 and not s.failed and not s.greeted:
        if s.claim == NULL and (s.have == 0 or not open_claim(s, s.claim_bytes)):
            break
        drop_blank(s)
        if s.skip or not hand_over(s):
            break
    if s.next_position != before:
        append_push(&s.appends)


cdef void take_results(Slave* s) noexcept nogil:
    cdef uint8_t* record
    cdef int32_t kind
    cdef AppendResult* result
    while ring_next(&s.appends.results, &record, &kind) >= 0:
        result = <AppendResult*>record
        if result.producer_incarnation != s.appends.incarnation:
            continue
        s.outstanding -= s.outstanding > 0
        if result.status != PUT_OK and not s.failed:                     # HS5
            link_end(s, NOTE_REFUSED, result.status)
            s.failed = True
    if ring_release(&s.appends.results):
        doorbell_ring(&s.shm.slots[SLOT_WRITER])
    if s.failed and (s.outstanding == 0 or steady_ms() - s.failed_ms >= RESULTS_WAIT_MS):
        s.failed = False


cdef int64_t link_fill(Slave* s) noexcept nogil:
    """
    What comes, into the claim: the rest of this frame, the head of the next one, and what is behind
    that, which is where it belongs if that frame is long. As link_read; 0 also if the link is ended.
    """
    cdef uint8_t* bytes = append_records(s.claim) + s.have
    cdef int64_t room = s.room - s.have, now, part, got
    if s.greeted:
        got = wire_read(s.fd, &s.wire, bytes, min(s.left + 1, room))
        return got if got <= 0 or feed(s, bytes, got) else 0
    if s.wire.pipe != NULL or s.word_left or s.nonce_left or s.overlap_left:
        got = wire_read(s.fd, &s.wire, bytes, room)
        return got if got <= 0 or feed(s, bytes, got) else 0
    now = min(s.left, room)
    got = link_read_parts(s.fd, bytes, now, s.head + s.head_got,
                          FRAME_HEAD_SIZE - s.head_got if now == s.left else 0,
                          bytes + now, room - now if now == s.left else 0)
    if got <= 0:
        return got
    part = min(got, now)
    came(s, part)
    got -= part
    part = min(got, <int64_t>(FRAME_HEAD_SIZE - s.head_got))
    if part and (not feed_head(s, part) or not feed(s, bytes + now, got - part)):
        return 0
    return 1


cdef void link_take(Slave* s, int64_t now_ms) noexcept nogil:
    cdef int64_t got
    cdef int reads
    for reads in range(READS_A_TURN):
        if (s.greeted and s.left == 0) or not has_claim(s):              # HS7, HS4
            return
        got = link_fill(s)
        if got == -1:
            s.readable = False
            return
        if got <= 0:
            link_end(s, NOTE_LINK_TLS_FAILED if s.wire.trouble else NOTE_ENDED, s.wire.trouble)
            return
        s.heard_ms = now_ms
        hand_all_over(s)
        if s.fd < 0 or not s.readable:
            return


cdef void connected(Slave* s, int64_t now_ms) noexcept nogil:
    """The connect has ended, and a step of the handshake may be taken (HS13)."""
    cdef int error = link_error(s.fd)
    if error and (s.wire.pipe == NULL or s.wire.pipe.error == PIPE_DONE):     # before the first step
        link_end(s, NOTE_NO_LINK, error)
        return
    if s.wire.pipe != NULL:
        pipe_step(s.wire.pipe)
        error = wire_shaken(&s.wire)
        if error == WIRE_FAILED:
            link_end(s, NOTE_LINK_TLS_FAILED, s.wire.trouble)
        if error != WIRE_SHAKEN:
            return
    s.connecting = False
    s.links += 1
    s.heard_ms = now_ms
    slave_note(s, NOTE_LINKED, load_i64_acquire(&s.shm.log.published))


cdef void slave_turn(Slave* s, int64_t now_ms) noexcept nogil:
    take_results(s)
    if s.fd >= 0 and not s.connecting:
        hand_all_over(s)               # there may be room now
        if s.fd >= 0 and s.readable:
            link_take(s, now_ms)
        if s.fd >= 0 and wire_flush(&s.wire) == -2:
            link_end(s, NOTE_ENDED, 0)
        if s.fd >= 0:
            say_end(s, now_ms)
    if s.fd >= 0 and s.connecting and now_ms - s.heard_ms > CONNECT_MS:
        link_end(s, NOTE_NO_LINK, ETIMEDOUT)
    if s.fd >= 0 and now_ms - s.heard_ms > s.housekeeping_ms:
        link_end(s, NOTE_MASTER_SILENT, now_ms - s.heard_ms)
    s.slot.figures[FIGURE_MASTER_LINK] = s.fd >= 0 and not s.connecting
    s.slot.figures[FIGURE_MASTER_SILENT_MS] = now_ms - s.heard_ms
    s.slot.figures[FIGURE_FOLLOWED_BYTES] = s.received
    s.slot.figures[FIGURE_UNSTORED_BYTES] = (
        max(s.next - load_i64_acquire(&s.shm.log.published), <int64_t>0) if s.fd >= 0 else 0)
    s.slot.figures[FIGURE_MASTER_LINKS] = s.links
    s.slot.beat_ms = wall_ms()


cdef bint slave_has_work(Slave* s) noexcept nogil:
    return (not ring_is_empty(&s.appends.results)
            or (s.fd >= 0 and (s.readable or (s.claim == NULL and s.have > 0)) and has_claim(s)))


cdef void slave_linger(Slave* s) noexcept nogil:
    cdef int64_t end_us
    if s.outstanding != 1 or s.handed > LINGER_BYTES:
        return
    end_us = linger_begin(&s.linger)
    if end_us == 0:
        return
    while ring_is_empty(&s.appends.results) and linger_on(end_us):
        pass
    linger_end(&s.linger, not ring_is_empty(&s.appends.results))


cdef void slave_wait(Slave* s, int64_t timeout_ms) noexcept nogil:
    cdef epoll_event events[EVENTS_A_WAIT]
    cdef int i, count = epoll_wait(s.epoll, events, EVENTS_A_WAIT, <int>timeout_ms)
    for i in range(count):
        if events[i].data.u64 == SLAVE_BELL or s.fd < 0:
            continue
        if s.connecting:
            connected(s, steady_ms())
        s.readable = not s.connecting
