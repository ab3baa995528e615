"""Serves acks and changes of invisible time over remoting."""
import base64
import binascii

import msgspec

from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.net.grpc.calls cimport pop_clock
from mqcore.net.grpc.remote cimport REMOTE_ACKS_MAX, Remote, RemoteAck
from mqcore.net.grpc.remote_answers cimport (
    REMOTE_FIELDS_ROOM,
    reply_close,
    reply_open,
    say_remote,
)
from mqcore.net.remoting.reply cimport Reply, reply_body, reply_number
from mqcore.shm.tables cimport TopicView, name_hash, topic_find
from mqcore.store.pop.handles cimport Receipt, receipt_parse
from mqcore.store.pop.journal cimport pop_flush
from mqcore.store.pop.pop cimport (
    POP_ILLEGAL,
    POP_OK,
    POP_UNKNOWN,
    PopClaim,
    pop_ack,
    pop_change,
)
from mqcore.store.pop.queues cimport pop_find
from mqcore.store.pop.state cimport POP_INVISIBLE_MAX_MS, PopClock, PopQueue
from mqcore.text cimport literal
from mqcore.wire.codes cimport (
    RESPONSE_INVALID_PARAMETER,
    RESPONSE_MESSAGE_ILLEGAL,
    RESPONSE_NO_MESSAGE,
    RESPONSE_SUCCESS,
    RESPONSE_SYSTEM_ERROR,
    RESPONSE_TOPIC_NOT_EXIST,
)
from mqcore.wire.header cimport Text, field_value, text_i64

cdef enum:
    BATCH_ACKS_MAX = 4096              # entries of a batch
    BATCH_BITS_MAX = 1024              # offsets of an entry


cdef RemoteAck* new_ack(Grpc* g, const RemoteAsker* asker) noexcept nogil:
    cdef PopClock clock
    cdef RemoteAck* one
    if g.remote.ack_count == REMOTE_ACKS_MAX:
        clock = pop_clock(g)
        g.journal_error = pop_flush(&g.pops, &clock)
        remote_settled(g)
    one = &g.remote.acks[g.remote.ack_count]
    g.remote.ack_count += 1
    one.asker = asker[0]
    one.code = RESPONSE_SUCCESS
    one.remark = NULL
    one.changes = False
    return one


cdef void fails(RemoteAck* one, int32_t code, const char* remark) noexcept nogil:
    one.code = code
    one.remark = remark


cdef void no_queue(Grpc* g, RemoteAck* one, const uint8_t* topic, int32_t length) noexcept nogil:
    cdef TopicView view
    if topic_find(g.shm, topic, length, name_hash(topic, length, 0), &view):
        fails(one, RESPONSE_NO_MESSAGE, "nothing of that queue was delivered to the group")
    else:
        fails(one, RESPONSE_TOPIC_NOT_EXIST, "the topic does not exist, apply first please!")


cdef void serve_remote_ack(Grpc* g, const RemoteAsker* asker, bint changes) noexcept nogil:
    cdef RemoteAck* one = new_ack(g, asker)
    cdef const Text* group = field_value(&g.remote.fields, literal("consumerGroup"))
    cdef const Text* topic = field_value(&g.remote.fields, literal("topic"))
    cdef const Text* handle = field_value(&g.remote.fields, literal("extraInfo"))
    cdef const Text* queue_text = field_value(&g.remote.fields, literal("queueId"))
    cdef const Text* offset_text = field_value(&g.remote.fields, literal("offset"))
    cdef const Text* invisible_text = field_value(&g.remote.fields, literal("invisibleTime"))
    cdef int64_t queue_id, offset, invisible_ms = 0
    cdef Receipt receipt
    cdef PopQueue* q
    cdef PopClaim claim
    cdef PopClock clock = pop_clock(g)
    cdef int outcome
    if group == NULL or topic == NULL or group.escaped or topic.escaped:
        fails(one, RESPONSE_INVALID_PARAMETER, "consumerGroup, topic: expected names")
    elif queue_text == NULL or offset_text == NULL or not (
            text_i64(queue_text, &queue_id) and text_i64(offset_text, &offset)):
        fails(one, RESPONSE_INVALID_PARAMETER, "queueId, offset: expected numbers")
    elif changes and (invisible_text == NULL or not text_i64(invisible_text, &invisible_ms)):
        fails(one, RESPONSE_INVALID_PARAMETER, "invisibleTime: expected a number")
    elif handle == NULL or handle.escaped or not receipt_parse(
            handle.start, handle.length, &receipt):
        fails(one, RESPONSE_INVALID_PARAMETER, "extraInfo: it is no handle of a delivery")
    elif receipt.offset != offset or receipt.queue_id != queue_id:
        fails(one, RESPONSE_INVALID_PARAMETER, "extraInfo: it is the handle of another message")
    else:
        q = pop_find(&g.pops, group.start, group.length, topic.start, topic.length,
                     receipt.queue_id)
        if q == NULL:
            no_queue(g, one, topic.start, topic.length)
            return
        if not changes:
            if pop_ack(&g.pops, q, offset, receipt.pop_ms, receipt.invisible_ms,
                       &clock) == POP_UNKNOWN:
                fails(one, RESPONSE_NO_MESSAGE, "offset: it was not delivered to the group")
            return
        claim.offset, claim.pop_ms, claim.invisible_ms = (offset, receipt.pop_ms,
                                                          receipt.invisible_ms)
        outcome = pop_change(&g.pops, q, &claim, invisible_ms, &clock)
        if outcome == POP_OK:
            one.changes = True
            one.pop_ms = claim.pop_ms
            one.invisible_ms = claim.invisible_ms
            one.revive_queue = receipt.revive_queue
        elif outcome == POP_ILLEGAL:
            fails(one, RESPONSE_INVALID_PARAMETER, "invisibleTime: expected 0 to 43200000 ms")
        elif outcome == POP_UNKNOWN:
            fails(one, RESPONSE_NO_MESSAGE, "offset: it was not delivered to the group")
        else:
            fails(one, RESPONSE_MESSAGE_ILLEGAL,
                  "extraInfo: its time is over, or a later delivery has replaced it")


cdef void serve_remote_acks(Grpc* g, const RemoteAsker* asker, const uint8_t* body,
                            int32_t length) noexcept nogil:
    cdef RemoteAck* one
    cdef bint legible
    with gil:
        legible = take_acks(g, (<const char*>body)[:length])
    one = new_ack(g, asker)
    if not legible:
        fails(one, RESPONSE_INVALID_PARAMETER,
              "body: expected {acks: [{c, t, rt, so, q, rq, pt, it, b}]}")


class _Entry(msgspec.Struct):
    """BatchAck: acks of one delivered batch."""

    c: str                             # the group
    t: str                             # the topic
    q: int
    so: int                            # the batch's first offset
    pt: int                            # its pop time
    it: int                            # its invisible time
    b: str = ""                        # base64 of a bit for each offset from `so` on
    rt: str = "0"                      # the topic's kind
    rq: int = 0


class _Entries(msgspec.Struct):
    acks: list[_Entry] = []


_entries = msgspec.json.Decoder(_Entries)


cdef bint take_acks(Grpc* g, bytes body) noexcept:
    """False: it is illegible, and nothing was acknowledged."""
    try:
        acks = _entries.decode(body).acks
        bits = [base64.b64decode(ack.b, validate=True) for ack in acks]
    except (msgspec.MsgspecError, ValueError, binascii.Error):
        return False
    if len(acks) > BATCH_ACKS_MAX or any(len(one) > BATCH_BITS_MAX // 8 for one in bits):
        return False
    cdef PopClock clock = pop_clock(g)
    cdef PopQueue* q
    cdef bytes group, topic
    for ack, one in zip(acks, bits):
        numbers = ack.so, ack.pt
        if not (0 <= ack.q < 1 << 31 and 0 <= ack.it <= POP_INVISIBLE_MAX_MS
                and all(0 <= number < 1 << 53 for number in numbers)):
            return False
        group = ack.c.encode()
        topic = {"0": ack.t, "1": f"%RETRY%{ack.c}_{ack.t}",
                 "2": f"%RETRY%{ack.c}+{ack.t}"}.get(ack.rt, "").encode()
        q = pop_find(&g.pops, group, <int32_t>len(group), topic, <int32_t>len(topic), ack.q)
        if q == NULL:
            continue
        for place in range(8 * len(one)):
            if one[place >> 3] >> (place & 7) & 1:
                pop_ack(&g.pops, q, ack.so + place, ack.pt, <int32_t>ack.it, &clock)
    return True


cdef void remote_settled(Grpc* g) noexcept nogil:
    cdef Remote* m = &g.remote
    cdef RemoteAck* one
    cdef Reply r
    cdef int32_t i
    for i in range(m.ack_count):
        one = &m.acks[i]
        if g.journal_error and one.code == RESPONSE_SUCCESS:
            say_remote(g, &one.asker, RESPONSE_SYSTEM_ERROR,
                       "config/popState cannot be written: the message may come again")
        elif one.code != RESPONSE_SUCCESS or not one.changes:
            say_remote(g, &one.asker, one.code, one.remark)
        elif reply_open(g, &one.asker, &r, RESPONSE_SUCCESS, NULL, REMOTE_FIELDS_ROOM):
            reply_number(&r, literal("invisibleTime"), one.invisible_ms)
            reply_number(&r, literal("popTime"), one.pop_ms)
            reply_number(&r, literal("reviveQid"), one.revive_queue)
            reply_body(&r, 0)
            reply_close(g, &r, 0)
    m.ack_count = 0
