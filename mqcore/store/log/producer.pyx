"""Appends of the broker's own messages, for the Python processes that have some."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

import socket

from mqcore.atomics cimport load_i32_acquire
from mqcore.layout cimport (
    HOST_V6_EXTRA,
    PROPERTIES_LENGTH_MAX,
    PUT_OK,
    PUT_SLAVE_NOT_AVAILABLE,
    RECORD_FIXED_SIZE,
    REQUEST_WAITS,
    SLOT_WRITER,
    SYS_FLAG_TRANSACTION_MASK,
    TOPIC_LENGTH_MAX,
    AppendHead,
    AppendResult,
)
from mqcore.shm.leadership cimport leadership_is_safe
from mqcore.shm.ring cimport ring_is_empty, ring_next, ring_release
from mqcore.shm.segment cimport Segment, doorbell_ring, log_refuses
from mqcore.shm.tables cimport name_hash
from mqcore.store.log.append_end cimport (
    AppendEnd,
    append_bytes_max,
    append_claim,
    append_finish,
    append_end_open,
    append_push,
    append_records,
    append_to,
)
from mqcore.store.record cimport RecordHead, record_begin, record_end


cdef bytes host_bytes(tuple address):
    """A record's form of (ip, port) (store.md 2.1)."""
    ip, port = address
    return (socket.inet_pton(socket.AF_INET6 if ":" in ip else socket.AF_INET, ip)
            + int(port).to_bytes(4, "big"))


cdef class LogProducer:
    """
    One end of an `appends` ring and of its results.

    producer: which, by the table of participants;
    store_address: (ip, port) that records carry as store host and born host unless told otherwise.
    """
    cdef Segment segment
    cdef AppendEnd end
    cdef bytes host

    def __init__(self, Segment segment, int producer, tuple store_address, int incarnation):
        self.segment = segment
        append_end_open(&self.end, &segment.shm, producer, incarnation)
        self.host = host_bytes(store_address)

    def append(self, str topic, int queue_id, bytes body, bytes properties, *, int64_t born_ms,
               int flag=0, int sys_flag=0, int reconsume_times=0, int64_t prepared_position=0,
               int tag=0, tuple born_host=None, tuple store_host=None, bint waits=False) -> bool:
        """
        Hand one message to the writer; properties in their stored form; tag: comes back with its
        result; born_host, store_host: (ip, port) of a message that somebody else made or stored
        first; waits: its result comes only when the flush mode's promise is kept. False: the ring
        is full, try again later. Raises ValueError for what fits no record.
        """
        raw = topic.encode()
        if not 1 <= len(raw) <= TOPIC_LENGTH_MAX:
            raise ValueError(f"topic: expected 1 to {TOPIC_LENGTH_MAX} bytes, got {len(raw)}")
        if len(properties) > PROPERTIES_LENGTH_MAX:
            raise ValueError(f"properties: {len(properties)} bytes, at most {PROPERTIES_LENGTH_MAX}")
        cdef int64_t size = (RECORD_FIXED_SIZE + 2 * HOST_V6_EXTRA + len(body) + len(raw)
                             + len(properties))
        cdef bytes born = self.host if born_host is None else host_bytes(born_host)
        cdef bytes stored = self.host if store_host is None else host_bytes(store_host)
        cdef RecordHead record
        cdef AppendHead* head
        cdef uint8_t* at
        cdef uint8_t* end
        cdef const uint8_t* name = raw
        if size > append_bytes_max(&self.end):
            raise ValueError(f"message: {size} bytes, at most {append_bytes_max(&self.end)}")
        head = append_claim(&self.end, <int32_t>size)
        if head == NULL:
            return False
        at = append_records(head)
        record.queue_id = queue_id
        record.flag = flag
        record.sys_flag = sys_flag
        record.born_time_ms = born_ms
        record.born_host = born
        record.born_host_size = <int32_t>len(born)
        record.store_host = stored
        record.store_host_size = <int32_t>len(stored)
        record.reconsume_times = reconsume_times
        record.prepared_position = prepared_position
        end = record_begin(at, &record, <const uint8_t*><const char*>body, <int32_t>len(body), name,
                           <int32_t>len(raw))
        memcpy(end + 2, <const char*>properties, len(properties))
        head.topic_start = <int32_t>(end - len(raw) - at)
        head.bytes_total = record_end(at, end, <int32_t>len(properties))
        head.opaque = tag
        append_to(head, name_hash(name, <int32_t>len(raw), 0), <int32_t>len(raw), queue_id)
        head.request_flags = REQUEST_WAITS if waits else 0
        head.transaction_type = sys_flag & SYS_FLAG_TRANSACTION_MASK
        append_finish(&self.end, head)
        append_push(&self.end)
        return True

    def refused(self) -> bool:
        """
        Whether the store takes no writes now (LogState.refusal): producers' sends are answered
        PUT_SERVICE_NOT_AVAILABLE then, and whoever appends by himself does as much.
        """
        return (log_refuses(self.segment.shm.log)
                or load_i32_acquire(&self.segment.shm.log.queue_error) != 0)

    def has_results(self) -> bool:
        """Whether take_results has something: to be asked again before the process sleeps."""
        return not ring_is_empty(&self.end.results)

    def take_results(self) -> list[tuple[int, int, int, int]]:
        """(tag, PutStatus, queue offset, log position) of appends that are settled."""
        cdef uint8_t* record
        cdef int32_t kind
        cdef AppendResult* result
        cdef int32_t status
        cdef bint safe = leadership_is_safe(&self.segment.shm)               # leadership FO5
        settled = []
        while ring_next(&self.end.results, &record, &kind) >= 0:
            result = <AppendResult*>record
            if result.producer_incarnation == self.end.incarnation:
                status = result.status
                if status == PUT_OK and not safe:
                    status = PUT_SLAVE_NOT_AVAILABLE
                settled.append((result.opaque, status, result.queue_offset, result.log_position))
        if ring_release(&self.end.results):
            doorbell_ring(&self.segment.shm.slots[SLOT_WRITER])
        return settled
