"""Sends frames to the coordinator and carries out its answers."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memmove, memset

from mqcore.layout cimport (
    ANSWER_CLOSE,
    ANSWER_FRAME,
    ANSWER_OFFER,
    ANSWER_REDO,
    ANSWER_TAKEN,
    FIGURE_FORWARDED,
    FORWARD_CLOSED,
    FORWARD_COMMITS,
    FORWARD_FRAME,
    FORWARD_PART_SHARE,
    FORWARD_READS,
    FORWARD_REPEATED,
    FORWARD_UNREAD,
    FRAME_HEADER_WORD,
    LONG_FRAMES_MAX,
    PART_MORE,
    PART_NEXT,
    PART_PLACE_SHIFT,
    SLOT_COORDINATOR,
    ForwardHead,
    OffsetCommit,
)
from mqcore.net.memory cimport memory_give, memory_take
from mqcore.net.parked cimport PARK_NOT, drop_parked, may_park, park_frame
from mqcore.net.reply cimport reply_plain
from mqcore.net.requests cimport redo_request
from mqcore.net.server cimport (
    ALL_FORWARD_BYTES,
    ALL_FORWARDS_MAX,
    CLOSE_ASKED,
    CLOSE_HEADER,
    CLOSE_UNREAD,
    COMMITS_MAX,
    FORWARD_BYTES_MAX,
    FORWARD_SHARE_BYTES,
    FORWARDS_MAX,
    HANDLE_CLOSE,
    HANDLE_STALL,
    HANDLE_WAIT,
    HANDLED,
    LONG_HEADER_MAX,
    LONG_PART_BYTES,
    OUT_HIGH_BYTES,
    OUT_MAX_BYTES,
    OUT_OFFER_BYTES,
    PARKED_COUNT_MAX,
    SMALL_FRAME_BYTES,
    URGENT_BYTES,
    Connection,
    ParkedRequest,
    Server,
    Word,
    connection_close,
    connection_find,
    output_flush,
    output_room,
    output_used,
)
from mqcore.shm.ring cimport (
    ring_claim,
    ring_commit,
    ring_next,
    ring_publish,
    ring_release,
    ring_wait_for_room,
)
from mqcore.shm.segment cimport doorbell_ring
from mqcore.wire.header cimport Header

cdef enum:
    CODE_SYSTEM_ERROR = 1
    CODE_SYSTEM_BUSY = 2
    CODE_MESSAGE_ILLEGAL = 13
    CODE_COMMIT_OFFSET = 15
    CODE_HEART_BEAT = 34
    CODE_UNREGISTER = 35
    CODE_LOCK = 41
    CODE_UNLOCK = 42
    CODE_SEND_REPLY = 324
    CODE_SEND_REPLY_V2 = 325
    HEARTBEAT_BYTES_MAX = 64 << 10
    ANSWER_KEEP_BYTES = 1 << 20
    RESPONSE_BIT = 1
    ONEWAY_BIT = 2


cdef uint8_t* claim(Server* s, int32_t length) noexcept nogil:
    cdef uint8_t* place = ring_claim(&s.requests, length)
    if place == NULL:
        ring_wait_for_room(&s.requests)
        place = ring_claim(&s.requests, length)
    return place


cdef void publish(Server* s) noexcept nogil:
    if ring_publish(&s.requests):
        doorbell_ring(&s.shm.slots[SLOT_COORDINATOR])


cdef inline bint is_urgent(int32_t code) noexcept nogil:
    """Whether others wait for it: the coordinator takes these first, too."""
    return (code == CODE_HEART_BEAT or code == CODE_UNREGISTER or code == CODE_LOCK
            or code == CODE_UNLOCK or code == CODE_COMMIT_OFFSET)


cdef bint too_much_waits(Server* s, Connection* c, const Header* header,
                         int64_t length) noexcept nogil:
    """Whether one more frame of a connection, of `length` bytes, has to wait (N5)."""
    cdef bint urgent = is_urgent(header.code)
    if c.forwards >= FORWARDS_MAX:
        return True
    if c.forward_bytes > 0 and c.forward_bytes + length > FORWARD_SHARE_BYTES:
        return True
    if c.forwards > 0 and s.forwards >= ALL_FORWARDS_MAX and not urgent:
        return True
    if c.forwards == 0 and length <= SMALL_FRAME_BYTES:
        return False
    return s.forward_bytes > 0 and s.forward_bytes + length > ALL_FORWARD_BYTES + (
        URGENT_BYTES if urgent else 0)


cdef inline void count_forwarded(Server* s, Connection* c, int32_t shares,
                                 int32_t length) noexcept nogil:
    c.forwards += shares
    c.forward_bytes += length
    s.forwards += shares
    s.forward_bytes += length
    c.known = True


cdef void count_taken(Server* s, uint64_t connection, int32_t shares, int64_t length) noexcept nogil:
    """The coordinator has done them; what its predecessor had was forgotten."""
    cdef Connection* c = connection_find(s, connection)
    s.forwards = max(s.forwards - shares, 0)
    s.forward_bytes = max(s.forward_bytes - length, 0)
    if c != NULL:
        c.forwards = max(c.forwards - shares, 0)
        c.forward_bytes = max(c.forward_bytes - length, 0)


cdef int forward_frame(Server* s, Connection* c, const uint8_t* frame, int32_t length,
                       int32_t header_length, const Header* header, int park,
                       bint body_stays) noexcept nogil:
    cdef int32_t sent = FRAME_HEADER_WORD + header_length if body_stays else length
    cdef ForwardHead* head
    cdef ParkedRequest* parked = NULL
    cdef uint8_t* place
    if sent > FORWARD_BYTES_MAX:
        if not header.has_opaque:      # nothing that could be answered
            connection_close(s, c, CLOSE_HEADER, header_length)
            return HANDLE_CLOSE
        if park == PARK_NOT:
            return forward_long(s, c, frame, length, header_length, header)
        if not header.flag & (RESPONSE_BIT | ONEWAY_BIT):
            reply_plain(s, c, header.binary, header.opaque, CODE_SYSTEM_ERROR,
                        "the request's header is too large: more than 393216 bytes")
        return HANDLED
    if too_much_waits(s, c, header, sent) or (park != PARK_NOT and not may_park(s, c, length)):
        return HANDLE_WAIT
    if not forward_words(s):           # N14; and offsets that came before it go before it
        return HANDLE_STALL
    place = claim(s, sizeof(ForwardHead) + sent)
    if place == NULL:
        return HANDLE_STALL
    if park != PARK_NOT:
        parked = park_frame(s, c, frame, length, header_length, header, park)
        if parked == NULL:
            if header.has_opaque and not header.flag & (RESPONSE_BIT | ONEWAY_BIT):
                reply_plain(s, c, header.binary, header.opaque, CODE_SYSTEM_BUSY,
                            "[OVERLOAD]too many requests wait for the coordinator, try again later")
            return HANDLED
    head = <ForwardHead*>place
    fill_head(head, c)
    head.parked = parked.id if parked != NULL else 0
    head.body_size = length - FRAME_HEADER_WORD - header_length
    memcpy(place + sizeof(ForwardHead), frame, sent)
    ring_commit(&s.requests, FORWARD_FRAME, sizeof(ForwardHead) + sent)
    publish(s)
    count_forwarded(s, c, 1, sent)
    if header.code == CODE_HEART_BEAT:
        keep_heartbeat(s, c, frame, length)
    s.slot.figures[FIGURE_FORWARDED] += 1
    return HANDLED


cdef bint is_reply(const Header* header) noexcept nogil:
    return header.code == CODE_SEND_REPLY or header.code == CODE_SEND_REPLY_V2


cdef bint take_long_place(Server* s, Connection* c) noexcept nogil:
    """N15. Tickets below the lowest that waits are done, so that one is always within reach."""
    cdef int32_t i, free = 0, place = -1
    if c.long_ticket == 0:
        s.long_tickets += 1
        c.long_ticket = s.long_tickets
    for i in range(LONG_FRAMES_MAX):
        if not s.long_frames[i]:
            free += 1
            place = i
    if place < 0 or c.long_ticket > s.long_tickets_done + free:
        return False
    s.long_frames[place] = True
    c.long_place = place + 1
    end_ticket(s, c)
    return True


cdef void end_ticket(Server* s, Connection* c) noexcept nogil:
    s.long_tickets_done += 1
    c.long_ticket = 0


cdef void end_long(Server* s, Connection* c) noexcept nogil:
    s.long_frames[c.long_place - 1] = False
    c.long_place = 0
    c.long_sent = 0


cdef void forget_forwarding(Server* s, Connection* c) noexcept nogil:
    if c.long_place:
        end_long(s, c)
    if c.long_ticket:
        end_ticket(s, c)


cdef int forward_long(Server* s, Connection* c, const uint8_t* frame, int32_t length,
                      int32_t header_length, const Header* header) noexcept nogil:
    """
    A frame in parts (R5). It waits in its connection's buffer until the last of them is in the ring,
    of which the connection never has more than a quarter (N5): others go between the parts.
    """
    cdef ForwardHead* head
    cdef int32_t size
    if is_reply(header) and (length - FRAME_HEADER_WORD - header_length > s.body_max
                             or header_length > LONG_HEADER_MAX):
        if not header.flag & (RESPONSE_BIT | ONEWAY_BIT):
            reply_plain(s, c, header.binary, header.opaque, CODE_MESSAGE_ILLEGAL, s.illegal)
        return HANDLED
    if c.long_place == 0 and not take_long_place(s, c):
        ring_wait_for_room(&s.requests)      # who has a place goes on, and ends, when it is rung
        return HANDLE_WAIT
    if c.long_sent == 0 and too_much_waits(s, c, header, length):
        end_long(s, c)
        return HANDLE_WAIT
    while c.long_sent < length:
        if c.forwards >= FORWARDS_MAX:
            return HANDLE_WAIT
        if not forward_words(s):
            return HANDLE_STALL
        size = min(LONG_PART_BYTES, length - c.long_sent)
        head = <ForwardHead*>claim(s, sizeof(ForwardHead) + size)
        if head == NULL:
            return HANDLE_STALL
        fill_head(head, c)
        head.body_size = length - FRAME_HEADER_WORD - header_length
        head.part = (c.long_place << PART_PLACE_SHIFT) | (PART_NEXT if c.long_sent > 0 else 0) | (
            PART_MORE if c.long_sent + size < length else 0)
        memcpy(<uint8_t*>head + sizeof(ForwardHead), frame + c.long_sent, size)
        ring_commit(&s.requests, FORWARD_FRAME, <int32_t>sizeof(ForwardHead) + size)
        publish(s)
        c.long_sent += size
        count_forwarded(s, c, FORWARD_PART_SHARE, size)
    end_long(s, c)
    s.slot.figures[FIGURE_FORWARDED] += 1
    return HANDLED


cdef void keep_heartbeat(Server* s, Connection* c, const uint8_t* frame, int32_t length) noexcept nogil:
    """The connection's newest heartbeat, for forward_heartbeats; without memory it is not kept."""
    cdef uint8_t* copy
    if length > HEARTBEAT_BYTES_MAX:
        return
    if length > c.heartbeat_capacity:
        if not memory_take(s, c, length - c.heartbeat_capacity):
            return
        copy = <uint8_t*>realloc(c.heartbeat, length)
        if copy == NULL:
            memory_give(s, c, length - c.heartbeat_capacity)
            return
        c.heartbeat = copy
        c.heartbeat_capacity = length
    memcpy(c.heartbeat, frame, length)
    c.heartbeat_length = length


cdef void coordinator_is_new(Server* s) noexcept nogil:
    cdef int32_t i
    s.forwards = 0                     # what its predecessor had taken is lost
    s.forward_bytes = 0
    for i in range(s.connection_max):
        if s.connections[i] != NULL:
            s.connections[i].forwards = 0
            s.connections[i].forward_bytes = 0
            s.connections[i].told_unread = False
    s.repeat_at = 0
    forward_heartbeats(s)


cdef void forward_heartbeats(Server* s) noexcept nogil:
    """Those that are left, as far as there is room; the rest when there is more."""
    cdef Connection* c
    cdef ForwardHead* head
    while 0 <= s.repeat_at < s.connection_max:
        c = s.connections[s.repeat_at]
        s.repeat_at += 1
        if c == NULL or c.heartbeat == NULL:
            continue
        head = NULL
        if s.forward_bytes < ALL_FORWARD_BYTES and forward_words(s):
            head = <ForwardHead*>claim(s, sizeof(ForwardHead) + c.heartbeat_length)
        if head == NULL:
            s.repeat_at -= 1
            publish(s)
            return
        fill_head(head, c)
        count_forwarded(s, c, 1, c.heartbeat_length)
        memcpy(<uint8_t*>head + sizeof(ForwardHead), c.heartbeat, c.heartbeat_length)
        ring_commit(&s.requests, FORWARD_REPEATED,
                    <int32_t>sizeof(ForwardHead) + c.heartbeat_length)
    s.repeat_at = -1
    publish(s)


cdef void fill_head(ForwardHead* head, const Connection* c) noexcept nogil:
    memset(head, 0, sizeof(ForwardHead))
    head.connection = c.id
    memcpy(head.address, c.address, 16)
    head.address_is_v6 = c.address_is_v6
    head.port = c.port
    head.fast_port = c.fast_port


cdef bint forward_word(Server* s, int32_t kind, uint64_t connection) noexcept nogil:
    cdef ForwardHead* head = <ForwardHead*>claim(s, sizeof(ForwardHead))
    if head == NULL:
        return False
    memset(head, 0, sizeof(ForwardHead))
    head.connection = connection
    ring_commit(&s.requests, kind, sizeof(ForwardHead))
    publish(s)
    return True


cdef bint forward_words(Server* s) noexcept nogil:
    """Offsets, then the words that wait (N14); False: some still do."""
    cdef int32_t sent = 0
    forward_commits(s)
    if s.word_count == 0:
        return True
    if s.commit_count > 0:             # others take over its queues where it has left them
        return False
    while sent < s.word_count and forward_word(s, s.words[sent].kind, s.words[sent].connection):
        sent += 1
    s.word_count -= sent
    memmove(s.words, s.words + sent, s.word_count * sizeof(Word))
    return s.word_count == 0


cdef void put_word(Server* s, int32_t kind, uint64_t connection) noexcept nogil:
    """
    Now or when there is room. There is a place for it: while one waits, no connection becomes known
    to the coordinator, so that each has one end and one READS here at most.
    """
    s.words[s.word_count].kind = kind
    s.words[s.word_count].connection = connection
    s.word_count += 1
    forward_words(s)


cdef void forward_closed(Server* s, Connection* c) noexcept nogil:
    put_word(s, FORWARD_CLOSED, c.id)


cdef void forward_reads(Server* s, Connection* c) noexcept nogil:
    c.told_unread = False
    put_word(s, FORWARD_READS, c.id)


cdef void forward_hello(Server* s) noexcept nogil:
    doorbell_ring(&s.shm.slots[SLOT_COORDINATOR])


cdef void forward_commits(Server* s) noexcept nogil:
    cdef uint8_t* place
    cdef int32_t size = s.commit_count * <int32_t>sizeof(OffsetCommit)
    if s.commit_count == 0:
        return
    place = claim(s, size)
    if place == NULL:                  # kept; the next ones replace them queue by queue
        return
    memcpy(place, s.commits, size)
    ring_commit(&s.requests, FORWARD_COMMITS, size)
    publish(s)
    s.commit_count = 0


cdef void note_commit(Server* s, const uint8_t* group, int32_t group_length, const uint8_t* topic,
                      int32_t topic_length, int32_t queue_id, int64_t offset) noexcept nogil:
    cdef OffsetCommit* commit
    cdef int32_t i
    for i in range(s.commit_count):
        commit = &s.commits[i]
        if (commit.queue_id == queue_id and commit.group_length == group_length
                and commit.topic_length == topic_length
                and memcmp(commit.group, group, group_length) == 0
                and memcmp(commit.topic, topic, topic_length) == 0):
            commit.offset = offset
            return
    if s.commit_count == COMMITS_MAX:
        forward_commits(s)
        if s.commit_count == COMMITS_MAX:
            return                     # clients commit again within five seconds
    commit = &s.commits[s.commit_count]
    s.commit_count += 1
    commit.offset = offset
    commit.queue_id = queue_id
    commit.group_length = <uint8_t>group_length
    commit.topic_length = <uint8_t>topic_length
    memcpy(commit.group, group, group_length)
    memcpy(commit.topic, topic, topic_length)


cdef bint gather(Server* s, const uint8_t* part, int32_t length, bint more) noexcept nogil:
    """Joins a frame that comes in parts; True when it is whole, in s.answer."""
    cdef int64_t capacity = max(s.answer_capacity, 65536)
    cdef uint8_t* bigger
    while capacity < s.answer_length + length:
        capacity *= 2
    if capacity > s.answer_capacity:
        bigger = <uint8_t*>realloc(s.answer, capacity)
        if bigger == NULL:
            s.answer_length = 0
            return False
        s.answer = bigger
        s.answer_capacity = capacity
    memcpy(s.answer + s.answer_length, part, length)
    s.answer_length += length
    return not more


cdef void write_frame(Server* s, Connection* c, const uint8_t* frame, int64_t length) noexcept nogil:
    cdef uint8_t* place
    if c.output_end - c.output_start + length > OUT_MAX_BYTES:
        connection_close(s, c, CLOSE_UNREAD, c.output_end - c.output_start)
        return
    place = output_room(s, c, length)
    if place == NULL:
        return
    memcpy(place, frame, length)
    output_used(s, c, length)


cdef void write_offer(Server* s, Connection* c, const uint8_t* frame, int64_t length) noexcept nogil:
    """N6"""
    cdef uint64_t id = c.id
    if not c.told_unread and c.output_end - c.output_start >= OUT_HIGH_BYTES:
        output_flush(s, c)             # it may only be that this turn has brought so many
        c = connection_find(s, id)
        if c == NULL:
            return
        if c.output_end - c.output_start >= OUT_HIGH_BYTES:
            c.told_unread = s.word_count == 0 and forward_word(s, FORWARD_UNREAD, id)
    if c.output_end - c.output_start + length <= OUT_OFFER_BYTES:
        write_frame(s, c, frame, length)


cdef void redo(Server* s, ParkedRequest* parked, const uint8_t* header, int32_t length) noexcept nogil:
    """Run a parked request; header: in place of the one it came with, if any."""
    cdef Connection* c = connection_find(s, parked.connection)
    cdef int32_t body_length = parked.length - FRAME_HEADER_WORD - parked.header_length
    if c != NULL:
        if length > 0:
            redo_request(s, c, header, length, parked.binary,
                         parked.frame + FRAME_HEADER_WORD + parked.header_length, body_length)
        else:
            redo_request(s, c, parked.frame + FRAME_HEADER_WORD, parked.header_length,
                         parked.binary, parked.frame + FRAME_HEADER_WORD + parked.header_length,
                         body_length)
    drop_parked(s, parked)


cdef void one_answer(Server* s, const ForwardHead* head, int32_t kind, const uint8_t* payload,
                     int64_t length) noexcept nogil:
    cdef Connection* c
    cdef ParkedRequest* parked = NULL
    if kind == ANSWER_TAKEN:
        count_taken(s, head.connection, head.parked, head.body_size)
        return
    c = connection_find(s, head.connection)
    if 0 < head.parked <= PARKED_COUNT_MAX and s.parked[head.parked - 1].id == head.parked and (
            s.parked[head.parked - 1].connection == head.connection):
        parked = &s.parked[head.parked - 1]
    if kind == ANSWER_REDO:
        if parked != NULL:
            redo(s, parked, payload, <int32_t>length)
        return
    if kind == ANSWER_FRAME and c != NULL:
        write_frame(s, c, payload, length)
    if kind == ANSWER_OFFER and c != NULL:
        write_offer(s, c, payload, length)
    if parked != NULL:
        drop_parked(s, parked)
    if kind == ANSWER_CLOSE and c != NULL:
        connection_close(s, c, CLOSE_ASKED, 0)


cdef void take_answers(Server* s) noexcept nogil:
    cdef uint8_t* record
    cdef int32_t kind, length
    cdef ForwardHead* head
    while True:
        length = ring_next(&s.answers, &record, &kind)
        if length < 0:
            break
        head = <ForwardHead*>record
        record += sizeof(ForwardHead)
        length -= <int32_t>sizeof(ForwardHead)
        if s.answer_length > 0 and head.connection != s.answer_connection:
            s.answer_length = 0        # the coordinator died between two parts
        if head.part == PART_MORE or s.answer_length > 0:
            s.answer_connection = head.connection
            if not gather(s, record, length, head.part == PART_MORE):
                continue
            one_answer(s, head, kind, s.answer, s.answer_length)
            s.answer_length = 0
            if s.answer_capacity > ANSWER_KEEP_BYTES:
                free(s.answer)
                s.answer = NULL
                s.answer_capacity = 0
            continue
        one_answer(s, head, kind, record, length)
    if ring_release(&s.answers):
        doorbell_ring(&s.shm.slots[SLOT_COORDINATOR])
