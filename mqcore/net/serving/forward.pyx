"""Sends frames to the coordinator, and words about connections."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memmove, memset

from mqcore.atomics cimport load_i32_acquire
from mqcore.endian cimport load_i32
from mqcore.half cimport within_half
from mqcore.invariants cimport invariant
from mqcore.layout cimport (
    FIGURE_FORWARDED,
    FORWARD_CLOSED,
    FORWARD_FRAME,
    FORWARD_PART_SHARE,
    FORWARD_READS,
    FORWARD_REPEATED,
    FORWARD_UNREAD,
    FRAME_HEADER_LENGTH_MASK,
    FRAME_HEADER_WORD,
    LONG_FRAMES_MAX,
    PART_MORE,
    PART_NEXT,
    PART_PLACE_SHIFT,
    SLOT_COORDINATOR,
    ForwardHead,
)
from mqcore.net.remoting.frames cimport CLOSE_HEADER, RESPONSE_BIT
from mqcore.net.remoting.headers cimport read_asker
from mqcore.net.requests cimport HANDLED, HANDLE_CLOSE, HANDLE_STALL, HANDLE_WAIT, Asker
from mqcore.net.serving.asked cimport asked_add, asked_orphaned
from mqcore.net.serving.offset_commits cimport send_offset_commits
from mqcore.net.serving.limits cimport limits_fly
from mqcore.net.serving.parked cimport PARK_NOT, ParkedRequest, may_park, park_frame
from mqcore.net.serving.peer cimport ForwardShare, forwarding_of, peer_of, say
from mqcore.net.serving.requests_ring cimport requests_claim, requests_publish
from mqcore.net.transport.connections cimport connection_close
from mqcore.net.transport.memory cimport memory_give, memory_return, memory_take
from mqcore.net.transport.transport cimport connection_find
from mqcore.shm.ring cimport ring_finish, ring_wait_for_room
from mqcore.shm.segment cimport doorbell_ring
from mqcore.wire.codes cimport (
    REQUEST_GRPC_SETTINGS,
    REQUEST_HEART_BEAT,
    REQUEST_LOCK_BATCH_MQ,
    REQUEST_SEND_REPLY_MESSAGE,
    REQUEST_SEND_REPLY_MESSAGE_V2,
    REQUEST_UNLOCK_BATCH_MQ,
    REQUEST_UNREGISTER_CLIENT,
    REQUEST_UPDATE_CONSUMER_OFFSET,
    RESPONSE_MESSAGE_ILLEGAL,
    RESPONSE_SYSTEM_BUSY,
    RESPONSE_SYSTEM_ERROR,
)
from mqcore.wire.header cimport Header

cdef enum:
    KEPT_EACH_BYTES = 64 << 10         # N22
    KEPT_MOST_BYTES = 4 << 20          # ... of one heartbeat: a member of some 40,000 topics
    KEPT_LARGE_PART = 4                # ... a quarter
    GOODBYES_BYTES_MAX = 16 << 10      # ... behind one heartbeat
    FORWARDS_MAX = 32                  # N5
    FORWARD_SHARE_BYTES = 1 << 20      # N5: or one frame
    ALL_FORWARDS_MAX = 2048            # N5, of one serving process
    ALL_FORWARD_BYTES = 48 << 20
    URGENT_BYTES = 16 << 20            # N5: more for heartbeats, goodbyes, locks and commits
    SMALL_FRAME_BYTES = 4096           # N5: who has nothing there may send such a one ...
    NEWS_MAX = 2 * ALL_FORWARDS_MAX    # ... while all have no more there than this
    URGENT_NEWS_MAX = 4 * ALL_FORWARDS_MAX
    LONG_PART_BYTES = 64 << 10         # of a frame that goes there in parts ...
    LONG_HEADER_MAX = 64 << 10         # beside the largest body
    LENGTH_WORD = 4
    REPEAT_PLACE = LONG_FRAMES_MAX + 1 # N22: behind those of N15


cdef bint forwarding_open(Forwarding* f) noexcept nogil:
    f.repeat_at = -1
    f.words = <Word*>calloc(2 * f.transport.connection_max, sizeof(Word))
    return f.words != NULL


cdef inline bint is_answer(const Request* request) noexcept nogil:
    return not request.unusual and request.header.flag & RESPONSE_BIT != 0


cdef inline bint is_urgent(const Request* request) noexcept nogil:
    """N19: who is there, who holds which queue, how far it has come; and what clients were asked."""
    cdef int32_t code = request.header.code
    if request.unusual:                # its code may not be the last one: only the coordinator can read it
        return False
    return (is_answer(request) or code == REQUEST_HEART_BEAT or code == REQUEST_GRPC_SETTINGS
            or code == REQUEST_UNREGISTER_CLIENT or code == REQUEST_LOCK_BATCH_MQ
            or code == REQUEST_UNLOCK_BATCH_MQ or code == REQUEST_UPDATE_CONSUMER_OFFSET)


cdef bint too_much_waits(Forwarding* f, Connection* c, const Request* request,
                         int64_t length) noexcept nogil:
    """Whether one more frame of a connection, of `length` bytes, has to wait (N5)."""
    cdef ForwardShare* own = forwarding_of(c)
    cdef bint urgent = is_urgent(request)
    if own.count >= FORWARDS_MAX:
        return True
    if own.bytes > 0 and own.bytes + length > FORWARD_SHARE_BYTES:
        return True
    if own.count > 0 and f.count >= ALL_FORWARDS_MAX and not urgent:
        return True
    if own.count == 0 and length <= SMALL_FRAME_BYTES:
        return f.count >= (URGENT_NEWS_MAX if urgent else NEWS_MAX)
    return f.bytes > 0 and f.bytes + length > ALL_FORWARD_BYTES + (
        URGENT_BYTES if urgent else 0)


cdef inline void count_forwarded(Forwarding* f, Connection* c, int32_t shares,
                                 int32_t length) noexcept nogil:
    cdef ForwardShare* own = forwarding_of(c)
    own.count += shares
    own.bytes += length
    limits_fly(f.limits, c, shares)
    f.count += shares
    f.bytes += length
    own.known = True


cdef void count_done(Forwarding* f, uint64_t connection, int32_t shares,
                      int64_t length) noexcept nogil:
    """The coordinator has done them; what its predecessor had was forgotten."""
    cdef Connection* c = connection_find(f.transport, connection)
    cdef ForwardShare* own
    f.count = max(f.count - shares, 0)
    f.bytes = max(f.bytes - length, 0)
    if c != NULL:
        own = forwarding_of(c)
        shares = min(shares, own.count)
        own.count -= shares
        limits_fly(f.limits, c, -shares)
        own.bytes = max(own.bytes - length, 0)


cdef void refuse_forward(Connection* c, const Header* header, int32_t code,
                 const char* remark) noexcept nogil:
    """An answer that is not the coordinator's, where one can be given."""
    cdef Asker asker
    if header.has_opaque and not header.flag & RESPONSE_BIT:
        read_asker(header, &asker)
        say(c, &asker, code, remark)


cdef int forward_frame(Forwarding* f, Connection* c, const Request* request, int park,
                       bint body_stays) noexcept nogil:
    cdef const Header* header = &request.header
    cdef int32_t length = request.length
    cdef int32_t header_length = request.header_length
    cdef int32_t sent = FRAME_HEADER_WORD + header_length if body_stays else length
    cdef ForwardHead* head
    cdef ParkedRequest* parked = NULL
    cdef uint8_t* place
    meet_coordinator(f)
    if is_answer(request) and forwarding_of(c).questions == 0:
        return HANDLED                 # N24
    if f.repeat_sent > 0 and f.repeat_at == c.slot:
        return HANDLE_WAIT             # N22
    if sent > FORWARD_BYTES_MAX:
        if not header.has_opaque:      # nothing that could be answered
            connection_close(f.transport, c, CLOSE_HEADER, header_length)
            return HANDLE_CLOSE
        if park == PARK_NOT and header_length <= FORWARD_BYTES_MAX:
            return forward_long(f, c, request)
        refuse_forward(c, header, RESPONSE_SYSTEM_ERROR,
               "the request's header is too large: more than 393216 bytes")
        return HANDLED
    if too_much_waits(f, c, request, sent) or (park != PARK_NOT and not may_park(f.parking, c, length)):
        return HANDLE_WAIT
    if not forward_words(f):           # N14; and offsets that came before it go before it
        return HANDLE_STALL
    place = requests_claim(f.requests, sizeof(ForwardHead) + sent)
    if place == NULL:
        return HANDLE_STALL
    if park != PARK_NOT:
        parked = park_frame(f.parking, c, request, park)
        if parked == NULL:
            refuse_forward(c, header, RESPONSE_SYSTEM_BUSY,
                   "[OVERLOAD]too many requests wait for the coordinator, try again later")
            return HANDLED
    head = <ForwardHead*>place
    fill_forward_head(f, head, c)
    head.passed = request.passed
    head.urgent = is_urgent(request)
    head.parked = parked.id if parked != NULL else 0
    head.body_size = length - FRAME_HEADER_WORD - header_length
    memcpy(place + sizeof(ForwardHead), request.frame, sent)
    ring_finish(&f.requests.ring, FORWARD_FRAME, sizeof(ForwardHead) + sent)
    requests_publish(f.requests)
    count_forwarded(f, c, 1, sent)
    if park == PARK_NOT:
        asked_add(&f.asking, c, header)
    whole_frame_left(f, c, request)
    f.transport.slot.figures[FIGURE_FORWARDED] += 1
    return HANDLED


cdef bint is_reply(const Header* header) noexcept nogil:
    return (header.code == REQUEST_SEND_REPLY_MESSAGE
            or header.code == REQUEST_SEND_REPLY_MESSAGE_V2)


cdef bint take_long_place(Forwarding* f, Connection* c) noexcept nogil:
    """N15. Tickets below the lowest that waits are done, so that one is always within reach."""
    cdef ForwardShare* own = forwarding_of(c)
    cdef int32_t i, free = 0, place = -1
    if own.long_ticket == 0:
        f.long_tickets += 1
        own.long_ticket = f.long_tickets
    for i in range(LONG_FRAMES_MAX):
        if not f.long_frames[i]:
            free += 1
            place = i
    if place < 0 or own.long_ticket > f.long_tickets_done + free:
        return False
    f.long_frames[place] = True
    own.long_place = place + 1
    c.begun = True
    end_ticket(f, c)
    return True


cdef void end_ticket(Forwarding* f, Connection* c) noexcept nogil:
    f.long_tickets_done += 1
    forwarding_of(c).long_ticket = 0


cdef void end_long(Forwarding* f, Connection* c) noexcept nogil:
    cdef ForwardShare* own = forwarding_of(c)
    f.long_frames[own.long_place - 1] = False
    own.long_place = 0
    c.begun = False
    own.long_sent = 0


cdef void forget_forwarding(Forwarding* f, Connection* c) noexcept nogil:
    cdef ForwardShare* own = forwarding_of(c)
    if own.long_place:
        end_long(f, c)
    if own.long_ticket:
        end_ticket(f, c)
    if f.repeat_at == c.slot:
        f.repeat_from = f.repeat_sent = 0
    if own.known:
        put_word(f, FORWARD_CLOSED, c.id)
    forget_kept(f, c)
    free(own.asked)


cdef int forward_long(Forwarding* f, Connection* c, const Request* request) noexcept nogil:
    """
    A frame in parts (ring R5). It waits in its connection's buffer until the last of them is in the
    ring, of which the connection never has more than a quarter (N5): others go between the parts.
    """
    cdef ForwardShare* own = forwarding_of(c)
    cdef const Header* header = &request.header
    cdef int32_t length = request.length
    cdef int32_t header_length = request.header_length
    cdef ForwardHead* head
    cdef int32_t size
    if is_reply(header) and (length - FRAME_HEADER_WORD - header_length > f.identity.body_max
                             or header_length > LONG_HEADER_MAX):
        refuse_forward(c, header, RESPONSE_MESSAGE_ILLEGAL, <const char*>f.identity.illegal)
        return HANDLED
    if own.long_place == 0 and not take_long_place(f, c):
        ring_wait_for_room(&f.requests.ring)      # who has a place goes on, and ends, when it is rung
        return HANDLE_WAIT
    if own.long_sent == 0 and too_much_waits(f, c, request, length):
        end_long(f, c)
        return HANDLE_WAIT
    while own.long_sent < length:
        if own.count >= FORWARDS_MAX:
            return HANDLE_WAIT
        if not forward_words(f):
            return HANDLE_STALL
        size = min(LONG_PART_BYTES, length - own.long_sent)
        head = <ForwardHead*>requests_claim(f.requests, sizeof(ForwardHead) + size)
        if head == NULL:
            return HANDLE_STALL
        fill_forward_head(f, head, c)
        head.passed = request.passed
        head.urgent = is_urgent(request)
        head.body_size = length - FRAME_HEADER_WORD - header_length
        head.part = (own.long_place << PART_PLACE_SHIFT) | (
            PART_NEXT if own.long_sent > 0 else 0) | (
            PART_MORE if own.long_sent + size < length else 0)
        memcpy(<uint8_t*>head + sizeof(ForwardHead), request.frame + own.long_sent, size)
        ring_finish(&f.requests.ring, FORWARD_FRAME, <int32_t>sizeof(ForwardHead) + size)
        requests_publish(f.requests)
        own.long_sent += size
        count_forwarded(f, c, FORWARD_PART_SHARE, size)
    end_long(f, c)
    asked_add(&f.asking, c, header)
    whole_frame_left(f, c, request)
    f.transport.slot.figures[FIGURE_FORWARDED] += 1
    return HANDLED


cdef inline void whole_frame_left(Forwarding* f, Connection* c, const Request* request) noexcept nogil:
    """It is in `requests` now."""
    if is_answer(request):
        forwarding_of(c).questions -= 1
    elif not request.unusual:
        keep_for_later(f, c, request)


cdef void keep_for_later(Forwarding* f, Connection* c, const Request* request) noexcept nogil:
    """N22. A frame that is in `requests` now."""
    cdef ForwardShare* own = forwarding_of(c)
    cdef int32_t code = request.header.code
    cdef int32_t kept = 0                                # bytes that stay
    cdef int64_t room = LENGTH_WORD + <int64_t>request.length
    if code != REQUEST_HEART_BEAT and code != REQUEST_GRPC_SETTINGS and (
            code != REQUEST_UNREGISTER_CLIENT):
        return
    if code == REQUEST_UNREGISTER_CLIENT:
        kept = own.kept_length
        if kept == 0:
            return
        if kept - own.heartbeat_length + request.length > GOODBYES_BYTES_MAX:
            forget_kept(f, c)
            return
        room += kept
        if own.heartbeat_length > KEPT_EACH_BYTES:       # it is copied once for all of them
            room = <int64_t>own.heartbeat_length + GOODBYES_BYTES_MAX + LENGTH_WORD
    elif request.length > KEPT_MOST_BYTES:
        forget_kept(f, c)
        return
    if not keep_room(f, c, room, kept > 0):
        forget_kept(f, c)
        return
    if kept == 0 and f.repeat_at == c.slot:
        f.repeat_from = 0              # it pointed into what is replaced now
    memcpy(own.kept + kept, &request.length, LENGTH_WORD)
    memcpy(own.kept + kept + LENGTH_WORD, request.frame, request.length)
    own.kept_length = kept + LENGTH_WORD + request.length
    if kept == 0:
        own.heartbeat_length = own.kept_length


cdef inline int64_t large_part(int64_t length) noexcept nogil:
    return max(length - KEPT_EACH_BYTES, <int64_t>0)


cdef bint keep_room(Forwarding* f, Connection* c, int64_t length, bint stays) noexcept nogil:
    """stays: what is kept."""
    cdef ForwardShare* own = forwarding_of(c)
    cdef int64_t before = own.kept_capacity
    cdef int64_t others = f.kept_large - large_part(before)
    cdef int64_t large = large_part(length)
    cdef uint8_t* kept
    if length <= before and (stays or before <= KEPT_EACH_BYTES):
        return True
    if large and not within_half(large, f.transport.memory_max // KEPT_LARGE_PART - others):
        return False
    if length > before:
        if large and (
                f.transport.memory_used + length - before > f.transport.memory_high):
            return False               # nobody has to go for it
        if not memory_take(f.transport, c, length - before):
            return False
    kept = <uint8_t*>realloc(own.kept, length)
    if kept == NULL:
        if length > before:
            memory_give(f.transport, c, length - before)
        return False
    if length < before:
        memory_give(f.transport, c, before - length)
    own.kept = kept
    own.kept_capacity = <int32_t>length
    f.kept_large = others + large
    return True


cdef void forget_kept(Forwarding* f, Connection* c) noexcept nogil:
    cdef ForwardShare* own = forwarding_of(c)
    f.kept_large -= large_part(own.kept_capacity)
    memory_give(f.transport, c, own.kept_capacity)
    memory_return(f.transport, own.kept, own.kept_capacity)
    if f.repeat_at == c.slot:
        f.repeat_from = 0
    own.kept = NULL
    own.heartbeat_length = own.kept_length = own.kept_capacity = 0


cdef void meet_coordinator(Forwarding* f) noexcept nogil:
    cdef int32_t incarnation = load_i32_acquire(&f.shm.slots[SLOT_COORDINATOR].incarnation)
    cdef int32_t i
    if incarnation == f.coordinator:
        return
    f.coordinator = incarnation
    f.count = 0                     # what its predecessor had taken is lost
    f.bytes = 0
    for i in range(f.transport.connection_max):
        if f.transport.connections[i] != NULL:
            limits_fly(f.limits, f.transport.connections[i],
                       -forwarding_of(f.transport.connections[i]).count)
            forwarding_of(f.transport.connections[i]).count = 0
            forwarding_of(f.transport.connections[i]).bytes = 0
            forwarding_of(f.transport.connections[i]).long_sent = 0          # asked N16
            forwarding_of(f.transport.connections[i]).questions = 0
            f.transport.connections[i].tell_below = 0
    asked_orphaned(&f.asking)
    f.repeat_at = f.repeat_from = f.repeat_sent = 0
    forward_heartbeats(f)


cdef void forward_heartbeats(Forwarding* f) noexcept nogil:
    """What is kept of those that are left, as far as there is room; the rest when there is more."""
    cdef Connection* c
    while 0 <= f.repeat_at < f.transport.connection_max:
        c = f.transport.connections[f.repeat_at]
        if c != NULL and not repeat_kept(f, c):
            requests_publish(f.requests)
            return
        f.repeat_at += 1
        f.repeat_from = 0
    f.repeat_at = -1
    requests_publish(f.requests)


cdef bint repeat_kept(Forwarding* f, Connection* c) noexcept nogil:
    """What is kept of one, in its order; False: the rest of it later."""
    cdef ForwardShare* own = forwarding_of(c)
    cdef int32_t length
    while f.repeat_from < own.kept_length:
        memcpy(&length, own.kept + f.repeat_from, LENGTH_WORD)
        invariant("N22", length > 0)
        invariant("N22", length <= own.kept_length - f.repeat_from - LENGTH_WORD)
        if not repeat_frame(f, c, own.kept + f.repeat_from + LENGTH_WORD, length):
            return False
        f.repeat_from += LENGTH_WORD + length
        f.repeat_sent = 0
    return True


cdef bint repeat_frame(Forwarding* f, Connection* c, const uint8_t* frame,
                       int32_t length) noexcept nogil:
    cdef bint whole = length <= FORWARD_BYTES_MAX
    cdef int32_t size
    cdef ForwardHead* head
    while f.repeat_sent < length:
        if f.bytes >= ALL_FORWARD_BYTES or not forward_words(f):
            return False
        size = length if whole else min(LONG_PART_BYTES, length - f.repeat_sent)
        head = <ForwardHead*>requests_claim(f.requests, sizeof(ForwardHead) + size)
        if head == NULL:
            return False
        fill_forward_head(f, head, c)
        head.urgent = True
        if not whole:
            head.body_size = length - FRAME_HEADER_WORD - (load_i32(frame) & FRAME_HEADER_LENGTH_MASK)
            head.part = (REPEAT_PLACE << PART_PLACE_SHIFT) | (
                PART_NEXT if f.repeat_sent > 0 else 0) | (
                PART_MORE if f.repeat_sent + size < length else 0)
        memcpy(<uint8_t*>head + sizeof(ForwardHead), frame + f.repeat_sent, size)
        count_forwarded(f, c, 1 if whole else FORWARD_PART_SHARE, size)
        ring_finish(&f.requests.ring, FORWARD_REPEATED, <int32_t>sizeof(ForwardHead) + size)
        f.repeat_sent += size
    return True


cdef void fill_forward_head(Forwarding* f, ForwardHead* head, const Connection* c) noexcept nogil:
    memset(head, 0, sizeof(ForwardHead))
    head.connection = c.id
    head.taken_us = <uint32_t>f.transport.steady_us
    memcpy(head.address, c.address, sizeof(c.address))
    head.address_is_v6 = c.address_is_v6
    head.port = c.port
    head.fast_port = peer_of(c).fast_port


cdef bint forward_unread(Forwarding* f, Connection* c) noexcept nogil:
    return f.word_count == 0 and forward_word(f, FORWARD_UNREAD, c.id)


cdef bint forward_word(Forwarding* f, int32_t kind, uint64_t connection) noexcept nogil:
    cdef ForwardHead* head = <ForwardHead*>requests_claim(f.requests, sizeof(ForwardHead))
    if head == NULL:
        return False
    memset(head, 0, sizeof(ForwardHead))
    head.connection = connection
    ring_finish(&f.requests.ring, kind, sizeof(ForwardHead))
    requests_publish(f.requests)
    return True


cdef bint forward_words(Forwarding* f) noexcept nogil:
    """Offsets, then the words that wait (N14); False: some still do."""
    cdef int32_t sent = 0
    send_offset_commits(f.offset_commits)
    if f.word_count == 0:
        return True
    if f.offset_commits.count > 0:             # others take over its queues where it has left them
        return False
    while sent < f.word_count and forward_word(f, f.words[sent].kind, f.words[sent].connection):
        sent += 1
    f.word_count -= sent
    memmove(f.words, f.words + sent, f.word_count * sizeof(Word))
    return f.word_count == 0


cdef void put_word(Forwarding* f, int32_t kind, uint64_t connection) noexcept nogil:
    """
    Now or when there is room. There is a place for it: while one waits, no connection becomes known
    to the coordinator, so that each has one end and one READS here at most.
    """
    f.words[f.word_count].kind = kind
    f.words[f.word_count].connection = connection
    f.word_count += 1
    forward_words(f)


cdef void forward_reads(Forwarding* f, Connection* c) noexcept nogil:
    put_word(f, FORWARD_READS, c.id)


cdef void forward_hello(Forwarding* f) noexcept nogil:
    doorbell_ring(&f.shm.slots[SLOT_COORDINATOR])
