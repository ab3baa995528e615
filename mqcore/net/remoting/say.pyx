"""Writes the answers of sends and pulls."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from mqcore.net.remoting.frames cimport cut_frames
from mqcore.net.remoting.reply cimport (
    Reply,
    reply_begin,
    reply_body,
    reply_end,
    reply_number,
    reply_plain,
    reply_text,
    reply_value,
)
from mqcore.net.requests cimport Asker, PullAnswer, SendAnswer
from mqcore.net.transport.output cimport output_room, output_used
from mqcore.net.transport.transport cimport Connection, Transport
from mqcore.text cimport Literal, literal
from mqcore.wire.digits cimport put_message_id

cdef enum:
    FIELDS_ROOM = 256                  # of all fields but the ids and the region


cdef void say_sent(void* self, Connection* c, const SendAnswer* answer) noexcept nogil:
    cdef Voice* voice = <Voice*>self
    cdef const Identity* identity = voice.identity
    cdef int32_t id_length = 2 * identity.store_host_size + 16
    cdef int64_t ids = <int64_t>(id_length + 1) * answer.message_count if answer.stored else 0
    cdef int32_t i
    cdef uint8_t* id
    cdef Literal trace
    cdef Reply r
    if not reply_begin(voice.remoting.transport, c, &r, answer.asker.binary, answer.asker.opaque,
                       answer.code, answer.remark, ids + identity.region_length + FIELDS_ROOM
                       + (answer.recall_handle_length if answer.stored else 0)):
        return
    if answer.stored:
        reply_number(&r, literal("queueId"), answer.queue_id)
    trace = literal("true") if identity.trace_on else literal("false")
    reply_text(&r, literal("TRACE_ON"), <const uint8_t*>trace.text, trace.length)
    reply_text(&r, literal("MSG_REGION"), identity.region, identity.region_length)
    if answer.stored:
        id = reply_value(&r, literal("msgId"), <int32_t>ids - 1)
        for i in range(answer.message_count):
            if i > 0:
                id[0] = c','
                id += 1
            put_message_id(id, identity.store_host, identity.store_host_size,
                           answer.log_positions[i])
            id += id_length
        reply_number(&r, literal("queueOffset"), answer.queue_offset)
        if answer.recall_handle_length:
            reply_text(&r, literal("recallHandle"), answer.recall_handle,
                       answer.recall_handle_length)
    reply_body(&r, 0)
    reply_end(voice.remoting.transport, &r, 0)


cdef void say_pulled(void* self, Connection* c, const PullAnswer* answer) noexcept nogil:
    cdef Transport* t = (<Voice*>self).remoting.transport
    cdef Reply r
    cdef uint8_t* body
    cdef int32_t i
    if not reply_begin(t, c, &r, answer.asker.binary, answer.asker.opaque, answer.code,
                       answer.remark, answer.bytes + FIELDS_ROOM):
        return
    reply_number(&r, literal("suggestWhichBrokerId"), answer.broker)
    reply_number(&r, literal("nextBeginOffset"), answer.next_offset)
    reply_number(&r, literal("minOffset"), answer.min_offset)
    reply_number(&r, literal("maxOffset"), answer.max_offset)
    body = reply_body(&r, <int32_t>answer.bytes)
    for i in range(answer.message_count):
        memcpy(body, answer.records[i], answer.sizes[i])
        body += answer.sizes[i]
    reply_end(t, &r, <int32_t>answer.bytes)


cdef void say(void* self, Connection* c, const Asker* asker, int32_t code,
              const char* remark) noexcept nogil:
    reply_plain((<Voice*>self).remoting.transport, c, asker.binary, asker.opaque, code, remark)


cdef void say_frame(void* self, Connection* c, const uint8_t* frame, int64_t length) noexcept nogil:
    cdef Transport* t = (<Voice*>self).remoting.transport
    cdef uint8_t* place = output_room(t, c, length)
    if place == NULL:
        return
    memcpy(place, frame, length)
    output_used(t, c, length)


cdef void remoting_front(Voice* voice, Front* front) noexcept nogil:
    front.self = voice
    front.bytes_came = cut_frames
    front.say_sent = say_sent
    front.say_pulled = say_pulled
    front.say = say
    front.say_frame = say_frame
    front.closing = NULL
    front.turn_ends = NULL
