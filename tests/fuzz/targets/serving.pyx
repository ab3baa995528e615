"""
A serving process as a peer reaches it: frames cut from any bytes, sends, batches, pulls, ends of
transactions, answers. Its shared memory and its small store are real; sockets and other processes are
not: what it puts into its rings is looked at here.
"""
import os
import socket
import tempfile
from pathlib import Path

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from mqcore.layout cimport RESULT_PUT, AppendHead, AppendResult
from mqcore.net.requests cimport SendRequest
from mqcore.net.serving.offset_commits cimport send_offset_commits
from mqcore.net.serving.loop cimport KIND_MAIN, Server, ServingLoop
from mqcore.net.serving.appends cimport take_results
from mqcore.net.serving.parked cimport answer_old_parked
from mqcore.net.serving.peer cimport peer_of
from mqcore.net.serving.send cimport serve_send
from mqcore.net.transport.close_reasons cimport CLOSE_PEER
from mqcore.net.transport.connections cimport connection_close
from mqcore.net.transport.loop cimport transport_end_turn
from mqcore.net.transport.transport cimport Connection, Transport, connection_find
from mqcore.net.transport.work cimport work_begin_turn
from mqcore.shm.ring cimport Ring, ring_claim, ring_finish, ring_next, ring_publish, ring_release
from mqcore.shm.segment cimport Segment, shm_consumer, shm_producer
from mqcore.store.record cimport PARSE_RECORD, RecordView, record_parse

from tests.fuzz.targets.input cimport Input, hold, input_of, take_byte, take_i32, take_part

from mqcore.net.serving.loop import ServingLoop as Loop
from mqcore.participants import SERVING
from mqcore.shm.tables import TableWriter
from mqcore.wire.codes import RequestCode
from mqcore.wire.command import encode, request
from tests.store.harness import TURN_MS_MAX, Run
from tests.wire_live.peer import send_fields

cdef enum:
    LATER_MS = 20_000                  # parked requests are given up by then

cdef Server* server
cdef Ring appends, results, requests
cdef object kept = None


cdef Connection* connect_nobody() noexcept nogil:
    """A connection as accepting one makes it, but for its socket."""
    cdef Transport* t = &server.transport
    cdef Connection* c = <Connection*>calloc(1, t.size_each)
    t.free_count -= 1
    c.slot = t.free_slots[t.free_count]
    t.generation = (t.generation + 1) & 0xFFFFFF
    c.fd = -1
    c.id = t.id_base | (<uint64_t>t.generation << 24) | <uint64_t>c.slot
    c.kind = KIND_MAIN
    c.active_ms = t.steady_ms
    memcpy(c.address, b"\x7f\x00\x00\x01", 4)
    t.connections[c.slot] = c
    t.connection_count += 1
    t.above.opened(t.above.top, c)
    return c


cdef void look_at_records(const AppendHead* head) noexcept nogil:
    """What the writer gets are whole records, and nothing behind them."""
    cdef const uint8_t* at = <const uint8_t*>head + sizeof(AppendHead)
    cdef int64_t left = head.bytes_total
    cdef int32_t count = 0
    cdef RecordView record
    while left > 0:
        hold(record_parse(at, left, &record) == PARSE_RECORD, "what the writer gets are records")
        if count == 0:
            hold(record.topic == at + head.topic_start
                 and record.topic_length == head.topic_length, "a head knows its topic")
        at += record.size
        left -= record.size
        count += 1
    hold(count == head.record_count, "a head counts its records")


cdef void take_appends(int32_t status) noexcept nogil:
    """As the writer: each gets a result."""
    cdef uint8_t* record
    cdef int32_t kind, i, size
    cdef AppendHead* head
    cdef AppendResult* result
    while ring_next(&appends, &record, &kind) >= 0:
        head = <AppendHead*>record
        look_at_records(head)
        size = <int32_t>sizeof(AppendResult) + (8 * head.record_count if head.record_count > 1 else 0)
        result = <AppendResult*>ring_claim(&results, size)
        if result == NULL:
            continue
        memset(result, 0, size)
        result.connection = head.connection
        result.opaque = head.opaque
        result.producer_incarnation = head.producer_incarnation
        result.record_count = head.record_count
        result.queue_id = head.answer_queue_id
        result.request_flags = head.request_flags
        result.status = status
        ring_finish(&results, RESULT_PUT, size)
    ring_release(&appends)
    ring_publish(&results)
    take_results(&server.appends)


cdef void end_turn(uint64_t id, int32_t status) noexcept nogil:
    """What was asked is answered, the peer goes, and time passes."""
    cdef Transport* t = &server.transport
    cdef Connection* c
    cdef uint8_t* record
    cdef int32_t kind
    ring_publish(&server.appends.to_writer.appends)
    take_appends(status)
    transport_end_turn(t)
    c = connection_find(t, id)
    if c != NULL:
        connection_close(t, c, CLOSE_PEER, 0)
    t.event_count = 0
    t.steady_us += LATER_MS * 1000
    t.steady_ms += LATER_MS
    send_offset_commits(&server.offset_commits)
    answer_old_parked(&server.parking)
    while ring_next(&requests, &record, &kind) >= 0:
        pass
    ring_release(&requests)
    hold(t.connection_count == 0 and t.memory_used == 0, "nothing stays of who is gone")
    hold(server.held.count == 0, "no pull is held for who is gone")


cdef int frames(const uint8_t* data, size_t size) noexcept nogil:
    """| what comes on a connection | where it is cut in two, a byte | what the writer says, a byte |"""
    cdef Transport* t = &server.transport
    cdef Connection* c = connect_nobody()
    cdef uint64_t id = c.id
    cdef Input left = input_of(data, size)
    cdef int32_t status = take_byte(&left) % 12
    cdef int64_t cut = take_part(&left), handled = 0
    cdef uint8_t* bytes = <uint8_t*>malloc(left.left)
    memcpy(bytes, data, left.left)
    work_begin_turn(t)
    if cut:
        handled = t.above.bytes_came(t.above.top, c, bytes, cut)
    if handled >= 0 and connection_find(t, id) != NULL and left.left > handled:
        hold(handled <= cut, "no more is handled than came")
        handled = t.above.bytes_came(t.above.top, c, bytes + handled, left.left - handled)
        hold(handled <= left.left, "no more is handled than came")
    free(bytes)
    end_turn(id, status)
    return 0


cdef int send(const uint8_t* data, size_t size) noexcept nogil:
    """| body | properties | numbers |: one message, or a batch."""
    cdef Transport* t = &server.transport
    cdef Connection* c = connect_nobody()
    cdef uint64_t id = c.id
    cdef Input left = input_of(data, size)
    cdef SendRequest request
    cdef uint8_t word
    memset(&request, 0, sizeof(request))
    word = take_byte(&left)
    request.batch = word & 1
    request.asker.oneway = word & 2
    request.asker.binary = word & 4
    request.properties.escaped = word & 8
    request.sys_flag = take_i32(&left) if word & 16 else 0
    request.queue_id = take_i32(&left) if word & 32 else 0
    request.topic_length = 1
    memcpy(request.topic, b"T", 1)
    if word & 64:
        request.topic_length = 6
        memcpy(request.topic, b"%LMQ%a", 6)
    request.born_host = peer_of(c).host
    request.born_host_size = peer_of(c).host_size
    request.properties.length = <int32_t>take_part(&left)
    left.left -= request.properties.length
    request.properties.start = data + left.left
    request.body = data
    request.body_length = <int32_t>left.left
    work_begin_turn(t)
    serve_send(&server.sends, c, &request, word & 128)
    end_turn(id, word % 12)
    return 0


class Served:
    """A store with three messages in queue 0 of topic T, and the process that serves it."""

    def __init__(self, root: Path) -> None:
        self.run = Run(root)
        self.run.recover(clean=True)
        self.run.segment.begin_incarnation(SERVING.slot)
        tables = TableWriter(self.run.segment)
        tables.publish_topic("T", read_queues=1, write_queues=1, perm=6)
        tables.publish_group("G")
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.loop = Loop(
            self.run.segment, 0, [(self.listener, False)], os.fsencode(self.run.log_folder),
            os.fsencode(self.run.queue_folder), store_address=("127.0.0.1", 10911), cluster="C",
            file_entries=self.run.file_entries, connection_max=8, held_max=8, body_bytes_max=4096,
            seed=1, region="R", trace_on=True, idle_ms_max=60_000, memory_bytes=1 << 30,
            memory_count_max=32, memory_bytes_max=1 << 18, disk_count_max=32,
            disk_bytes_max=1 << 18, replay_count_max=32, replay_bytes_max=1 << 18, long_polling=True,
            short_polling_ms=1000, light_queues=True)
        self.writer, self.dispatcher = self.run.writer("async", 0), self.run.dispatcher()

    def store(self) -> None:
        for body in (b"one", b"two", b"three"):
            came(encode(request(RequestCode.SEND_MESSAGE_V2, send_fields("T"), body)))
        for service in (self.writer, self.dispatcher):
            service.run(TURN_MS_MAX)                 # it ends when nothing waits
        self.writer.finish()
        self.dispatcher.close()
        assert self.run.queue_ranges() == {("T", 0): (0, 3)}


cdef void came(bytes frame):
    cdef Transport* t = &server.transport
    cdef Connection* c = connect_nobody()
    cdef bytearray copied = bytearray(frame)
    work_begin_turn(t)
    t.above.bytes_came(t.above.top, c, copied, len(copied))
    connection_close(t, c, CLOSE_PEER, 0)


def begin() -> None:
    """What the targets need; once."""
    global server, kept
    cdef ServingLoop loop
    cdef Segment segment
    folder = tempfile.TemporaryDirectory(prefix="mqcore-fuzz-")
    made = Served(Path(folder.name))
    kept = folder, made
    loop, segment = made.loop, made.run.segment
    server = loop.s
    made.store()
    shm_consumer(&segment.shm, &segment.shm.head.appends[0], &appends)
    shm_producer(&segment.shm, &segment.shm.head.append_results[0], &results)
    shm_consumer(&segment.shm, &segment.shm.head.requests[0], &requests)
    take_results(&server.appends)


TARGETS = {"frames": <size_t>&frames, "send": <size_t>&send}
