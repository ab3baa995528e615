"""Lists queues of POP with messages that are not acknowledged."""
from mqcore.wire import fastjson

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from mqcore.net.grpc.calls cimport pop_clock
from mqcore.net.grpc.remote_answers cimport reply_close, reply_open, say_remote
from mqcore.net.remoting.reply cimport Reply, reply_body
from mqcore.store.pop.messages cimport committed_of, message_at, message_due
from mqcore.store.pop.queues cimport is_named
from mqcore.store.pop.state cimport READY_AGAIN, PopClock, PopMessage, PopQueue
from mqcore.text cimport literal
from mqcore.wire.codes cimport RESPONSE_SUCCESS, RESPONSE_SYSTEM_ERROR
from mqcore.wire.header cimport Text, field_value


cdef bint is_wanted(const PopQueue* q, const Text* group, const Text* topic) noexcept nogil:
    return is_named(
        q, group.start if group != NULL else q.names,
        group.length if group != NULL else q.group_length,
        topic.start if topic != NULL else q.names + q.group_length,
        topic.length if topic != NULL else q.topic_length)


cdef dict row_of(Grpc* g, const PopQueue* q, const PopClock* clock):
    """Times of the wall clock, ms."""
    cdef int32_t message = q.first, attempts = 0
    cdef int64_t oldest = INT64_MAX, first = INT64_MAX, last = -1, due
    cdef const PopMessage* m
    with nogil:
        while message >= 0:
            m = message_at(&g.pops, message)
            oldest = min(oldest, m.pop_ms)
            attempts = max(attempts, <int32_t>m.attempts)
            if m.place != READY_AGAIN:
                due = message_due(&g.pops, message)
                first = min(first, due)
                last = max(last, due)
            message = m.next
    ahead = clock.wall_ms - clock.steady_ms
    names = (<const char*>q.names)[:q.group_length + q.topic_length]
    return {
        "consumerGroup": names[:q.group_length].decode(errors="replace"),
        "topic": names[q.group_length:].decode(errors="replace"), "queueId": q.queue_id,
        "committedOffset": committed_of(&g.pops, q), "nextOffset": q.next,
        "unacknowledged": q.count, "invisible": q.invisible, "fifo": bool(q.fifo),
        "attemptsMax": attempts, "oldestPopTime": oldest,
        "firstVisibleTime": first + ahead if q.invisible else 0,
        "lastVisibleTime": last + ahead if q.invisible else 0}


cdef bytes listed(Grpc* g, const Text* group, const Text* topic):
    cdef PopClock clock = pop_clock(g)
    cdef int32_t i
    cdef int64_t looks = 0
    cdef PopQueue* q
    rows = []
    more = False
    for i in range(g.pops.queue_room):
        q = g.pops.queues[i]
        if q == NULL or q.count == 0 or not is_wanted(q, group, topic):
            continue
        looks += q.count
        if len(rows) == POP_ROWS_MAX or looks > POP_LOOKS_MAX:
            more = True
            break
        rows.append(row_of(g, q, &clock))
    return fastjson.dumps({
        "queues": rows, "more": more, "queueCount": g.pops.queue_count,
        "unacknowledged": g.pops.count, "waiting": g.remote.held_count,
        "journalError": g.journal_error})


cdef void list_pops(Grpc* g, const RemoteAsker* asker) noexcept nogil:
    cdef const Text* group = field_value(&g.remote.fields, literal("consumerGroup"))
    cdef const Text* topic = field_value(&g.remote.fields, literal("topic"))
    with gil:
        say_list(g, asker, group, topic)


cdef void say_list(Grpc* g, const RemoteAsker* asker, const Text* group, const Text* topic) noexcept:
    cdef Reply r
    cdef bytes body
    cdef uint8_t* place
    try:
        body = listed(g, group, topic)
    except MemoryError:
        say_remote(g, asker, RESPONSE_SYSTEM_ERROR, "no memory for the list")
        return
    if not reply_open(g, asker, &r, RESPONSE_SUCCESS, NULL, len(body) + 64):
        return
    r.plain = True
    place = reply_body(&r, <int32_t>len(body))
    memcpy(place, <const char*>body, len(body))
    reply_close(g, &r, <int32_t>len(body))
