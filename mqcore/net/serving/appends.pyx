"""Turns the results of appends into answers."""
from libc.errno cimport ENOSPC
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdio cimport snprintf

from mqcore.atomics cimport load_i32_acquire
from mqcore.clock cimport steady_us
from mqcore.layout cimport (
    FIGURE_REFUSED,
    PUT_CREATE_FILE_FAILED,
    PUT_DISK_FAILED,
    PUT_FLUSH_TIMEOUT,
    PUT_LIGHT_QUEUES_FULL,
    PUT_MESSAGE_ILLEGAL,
    PUT_OK,
    PUT_POOL_EXHAUSTED,
    PUT_QUEUE_TABLE_FULL,
    PUT_SERVICE_NOT_AVAILABLE,
    PUT_SLAVE_NOT_AVAILABLE,
    PUT_SLAVE_TIMEOUT,
    PUT_WRITER_RESTARTED,
    REFUSAL_DISK_FULL,
    REFUSAL_FLUSH_FAILED,
    REQUEST_BINARY,
    REQUEST_ONEWAY,
    REQUEST_TIMED,
    REQUEST_TRANSACTION,
    SLOT_WRITER,
    TRACE_SEND,
    AppendResult,
    TraceEntry,
)
from mqcore.net.requests cimport SendAnswer
from mqcore.net.serving.limits cimport limits_answered
from mqcore.net.serving.peer cimport peer_of
from mqcore.net.serving.recall_handles cimport (
    HANDLE_MAX,
    TimedSend,
    recall_handle,
    timed_send_take,
)
from mqcore.net.transport.transport cimport Connection, connection_find
from mqcore.shm.latency cimport latency_add
from mqcore.shm.leadership cimport leadership_is_safe
from mqcore.shm.ring cimport ring_next, ring_release
from mqcore.shm.segment cimport doorbell_ring
from mqcore.shm.trace cimport Tracer, trace_add
from mqcore.store.log.put_results cimport put_is_stored
from mqcore.wire.codes cimport (
    RESPONSE_FLUSH_DISK_TIMEOUT,
    RESPONSE_FLUSH_SLAVE_TIMEOUT,
    RESPONSE_MESSAGE_ILLEGAL,
    RESPONSE_SERVICE_NOT_AVAILABLE,
    RESPONSE_SLAVE_NOT_AVAILABLE,
    RESPONSE_SYSTEM_BUSY,
    RESPONSE_SYSTEM_ERROR,
)

cdef enum:
    DISK_FULL_REMARK_MAX = 96

cdef char[DISK_FULL_REMARK_MAX] disk_full_remark       # one thread a process


cdef int32_t put_code(Appends* a, int32_t status, const char** remark) noexcept nogil:
    if status == PUT_OK:
        return 0
    if status == PUT_FLUSH_TIMEOUT:
        return RESPONSE_FLUSH_DISK_TIMEOUT
    if status == PUT_SLAVE_NOT_AVAILABLE:
        return RESPONSE_SLAVE_NOT_AVAILABLE
    if status == PUT_SLAVE_TIMEOUT:
        return RESPONSE_FLUSH_SLAVE_TIMEOUT
    a.transport.slot.figures[FIGURE_REFUSED] += 1
    if status == PUT_MESSAGE_ILLEGAL:
        remark[0] = <const char*>a.identity.illegal
        return RESPONSE_MESSAGE_ILLEGAL
    if status == PUT_SERVICE_NOT_AVAILABLE:
        if a.slave:
            remark[0] = "service not available now: this broker is a slave, its master takes messages"
        elif load_i32_acquire(&a.to_writer.shm.log.elsewhere):
            remark[0] = ("service not available now: the path of the store does not lead to the "
                         "folder that this broker has opened")
        elif load_i32_acquire(&a.to_writer.shm.log.refusal) == REFUSAL_FLUSH_FAILED:
            remark[0] = ("service not available now: a flush to disk has failed; the broker takes "
                         "no writes until it is restarted")
        elif load_i32_acquire(&a.to_writer.shm.log.disk_full_percent):
            snprintf(disk_full_remark, sizeof(disk_full_remark), "service not available now: the disk "
                     "of the store is %d %% full",
                     load_i32_acquire(&a.to_writer.shm.log.disk_full_percent))
            remark[0] = disk_full_remark
        elif load_i32_acquire(&a.to_writer.shm.log.unreadable):
            remark[0] = ("service not available now: what is stored cannot be made readable, the "
                         "dispatcher is behind")
        elif (load_i32_acquire(&a.to_writer.shm.log.refusal) == REFUSAL_DISK_FULL
                or load_i32_acquire(&a.to_writer.shm.log.queue_error) == ENOSPC):
            remark[0] = "service not available now: the disk of the store is full"
        elif load_i32_acquire(&a.to_writer.shm.log.queue_error) != 0:
            remark[0] = "service not available now: consume queues or index cannot be written"
        else:
            remark[0] = "service not available now: a write to the store has failed"
        return RESPONSE_SERVICE_NOT_AVAILABLE
    if status == PUT_WRITER_RESTARTED:
        remark[0] = "[WRITER_RESTARTED]unknown error: whether the message is stored is not known"
        return RESPONSE_SYSTEM_ERROR
    if status == PUT_DISK_FAILED:
        remark[0] = "[DISK_FAILED]unknown error: whether the message is stored is not known"
        return RESPONSE_SYSTEM_ERROR
    if status == PUT_POOL_EXHAUSTED:
        remark[0] = "[REJECTREQUEST]broker busy: the transient pool has no room, the disk is behind"
        return RESPONSE_SYSTEM_BUSY
    if status == PUT_QUEUE_TABLE_FULL:
        remark[0] = ("no room for another queue: raise processes.queue_count_max"
                     if a.to_writer.shm.head.queue_count >= a.to_writer.shm.head.queue_capacity
                     else "no room for another queue: /dev/shm is full")
    elif status == PUT_LIGHT_QUEUES_FULL:
        remark[0] = ("[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]no more light queues than "
                     "store.light_queue_count_max")
    elif status == PUT_CREATE_FILE_FAILED:
        remark[0] = "create mapped file failed, server is busy or broken."
    else:
        remark[0] = "unknown error"
    return RESPONSE_SYSTEM_ERROR


cdef void answer(Appends* a, Connection* c, const AppendResult* result,
                 const int64_t* positions, bint safe) noexcept nogil:
    """Of a send or the end of a transaction whose result is here; safe: see leadership FO5."""
    cdef SendAnswer said
    cdef uint8_t[HANDLE_MAX] handle
    cdef const TimedSend* sent
    said.remark = NULL
    said.code = put_code(a, PUT_SLAVE_NOT_AVAILABLE if result.status == PUT_OK and not safe
                         else result.status, &said.remark)
    said.asker.opaque = result.opaque
    said.asker.binary = result.request_flags & REQUEST_BINARY != 0
    said.asker.oneway = False
    if result.request_flags & REQUEST_TRANSACTION:
        peer_of(c).front.say(peer_of(c).front.self, c, &said.asker, said.code, said.remark)
        return
    said.stored = put_is_stored(result.status)
    said.queue_id = result.queue_id
    said.queue_offset = result.queue_offset
    said.message_count = result.record_count
    said.log_positions = positions
    said.recall_handle_length = 0
    if result.request_flags & REQUEST_TIMED and said.stored:
        sent = timed_send_take(&a.timed, result.connection, result.opaque)
        if sent != NULL:
            said.recall_handle = handle
            said.recall_handle_length = recall_handle(sent, a.identity.broker_name,
                                                      a.identity.broker_name_length, handle)
    peer_of(c).front.say_sent(peer_of(c).front.self, c, &said)


cdef void trace_send(Tracer* t, const AppendResult* result, int64_t now_us) noexcept nogil:
    cdef int64_t took_us = <uint32_t>now_us - result.taken_us
    cdef TraceEntry* entry
    if took_us < t.over_us:
        return
    entry = trace_add(t, TRACE_SEND, result.queue_id, result.log_position, result.queue_offset)
    if entry != NULL:
        entry.at_us[0] = now_us - took_us
        entry.at_us[2] = now_us


cdef void take_results(Appends* a) noexcept nogil:
    cdef uint8_t* record
    cdef int32_t kind
    cdef AppendResult* result
    cdef Connection* c
    cdef int64_t now_us = 0
    cdef bint safe = True
    while ring_next(&a.to_writer.results, &record, &kind) >= 0:
        if now_us == 0:
            safe = leadership_is_safe(a.to_writer.shm)
            now_us = steady_us()
        result = <AppendResult*>record
        if result.producer_incarnation != a.to_writer.incarnation:
            continue                   # asked for by a predecessor of this process
        a.in_flight -= 1
        if put_is_stored(result.status):
            latency_add(a.send_times, <uint32_t>now_us - result.taken_us, 1)
        if a.tracer.on:
            trace_send(a.tracer, result, now_us)
        if result.request_flags & REQUEST_ONEWAY:
            continue
        c = connection_find(a.transport, result.connection)
        if c != NULL:
            if not result.request_flags & REQUEST_TRANSACTION:
                limits_answered(a.limits, c)
            answer(a, c, result, <const int64_t*>(record + sizeof(AppendResult))
                   if result.record_count > 1 else &result.log_position, safe)
    if ring_release(&a.to_writer.results):
        doorbell_ring(&a.to_writer.shm.slots[SLOT_WRITER])
