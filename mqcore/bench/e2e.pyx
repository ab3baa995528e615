"""
The end-to-end load: messages sent at a rate, received by held pulls, in one loop and on one clock.

A message's body starts with the run's id and the time at which it was due, and its latency is
from then to its receipt. One pull per queue is always held at the broker.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from mqcore.endian cimport load_i64, store_i64
from mqcore.bench.engine cimport NEVER, LoadConnection, LoadEngine, epoch_ms, monotonic_ns
from mqcore.bench.frames cimport (
    BORN_DIGITS,
    NOWHERE,
    OPAQUE_BASE,
    RecordView,
    RequestTemplate,
    Response,
    digits_store,
    hex_store,
    opaque_store,
    pull_render,
    record_view,
    response_number,
    template_load,
)
from mqcore.bench.histogram cimport histogram_record
from mqcore.bench.signing cimport request_sign
from mqcore.text cimport literal
from mqcore.wire.codes cimport RESPONSE_PULL_NOT_FOUND, RESPONSE_PULL_OFFSET_MOVED
from mqcore.wire.digits cimport NUMBER_LENGTH_MAX

cdef enum:
    STAMP_DUE = 8                         # in the body: run id i64, due time i64
    STAMP_SIZE = 16
    UNANSWERED_MAX = 65_536               # sends without an answer in all; then new ones wait
    SEND_SLOT = 1 << 20                   # sends need no slot of their own: only the sum counts

RATE_MAX = 5_000_000


cdef struct HeldPull:
    int64_t next_offset
    int64_t since_ns                      # 0: none in flight


cdef class EndToEndLoad(LoadEngine):
    """
    Sends on the first `producer_count` sockets, pulls on the others.

    send_templates and pull_templates: one per queue. offsets: where each queue's pull starts.
    rate: messages/s. run_id: marks this run's bodies.
    """

    cdef RequestTemplate* send_templates
    cdef RequestTemplate* pull_templates
    cdef HeldPull* pulls
    cdef int32_t queue_count
    cdef int32_t producer_count
    cdef int32_t next_queue
    cdef int32_t next_producer
    cdef uint32_t sequence
    cdef int64_t run_id
    cdef int64_t allowance
    cdef int64_t sent
    cdef int64_t unanswered
    cdef int64_t foreign                  # records of somebody else
    cdef int64_t bad_records
    cdef int64_t gaps
    cdef int64_t start_ns
    cdef double interval_ns
    cdef bint is_primed
    cdef list kept

    def __cinit__(self, list sockets, int64_t output_limit, list send_templates,
                  list pull_templates, list offsets, int producer_count, double rate,
                  int64_t run_id):
        cdef int32_t i
        if not 0 < rate <= RATE_MAX:
            raise ValueError(f"rate {rate}: expected more than 0 and at most {RATE_MAX}")
        if not 1 <= producer_count < len(sockets):
            raise ValueError("sockets: expected some for producers and some for consumers")
        if not len(send_templates) == len(pull_templates) == len(offsets) >= 1:
            raise ValueError("templates and offsets: expected one for each queue")
        self.queue_count = <int32_t>len(offsets)
        self.producer_count = producer_count
        self.interval_ns = 1e9 / rate
        self.run_id = run_id
        self.send_templates = <RequestTemplate*>calloc(self.queue_count, sizeof(RequestTemplate))
        self.pull_templates = <RequestTemplate*>calloc(self.queue_count, sizeof(RequestTemplate))
        self.pulls = <HeldPull*>calloc(self.queue_count, sizeof(HeldPull))
        if self.send_templates == NULL or self.pull_templates == NULL or self.pulls == NULL:
            raise MemoryError
        self.kept = send_templates + pull_templates
        for i in range(self.queue_count):
            template_load(&self.send_templates[i], send_templates[i])
            template_load(&self.pull_templates[i], pull_templates[i])
            self.pulls[i].next_offset = offsets[i]
            if (self.send_templates[i].body_at < 0
                    or self.send_templates[i].size - self.send_templates[i].body_at < STAMP_SIZE):
                raise ValueError(f"body size: expected at least {STAMP_SIZE} bytes for the stamp")

    def __dealloc__(self):
        free(self.send_templates)
        free(self.pull_templates)
        free(self.pulls)

    def allow(self, int64_t count) -> None:
        """Let `count` more messages be sent; 0: only receive what is on its way."""
        self.allowance = self.sent + count

    @property
    def sent_count(self) -> int:
        return self.sent

    def results(self) -> dict:
        return LoadEngine.results(self) | {
            "sent": self.sent, "foreign": self.foreign, "gaps": self.gaps,
            "bad_records": self.bad_records, "unanswered": self.unanswered}

    cdef int64_t turn(self, int64_t now_ns) noexcept nogil:
        cdef int32_t index, queue
        cdef int64_t due_ns = NEVER
        if not self.is_primed:
            self.is_primed = True
            self.start_ns = monotonic_ns()
            for queue in range(self.queue_count):
                self._hold(queue, now_ns)
        while self.sent < self.allowance and self.unanswered < UNANSWERED_MAX:
            due_ns = self.start_ns + <int64_t>(self.sent * self.interval_ns)
            if due_ns > now_ns or not self._send(due_ns):
                break
            due_ns = NEVER
        for index in range(self.connection_count):
            if not self.connections[index].wants_write:
                self.flush(index)
        return due_ns

    cdef bint _send(self, int64_t due_ns) noexcept nogil:
        cdef LoadConnection* connection = &self.connections[self.next_producer]
        cdef const RequestTemplate* template = &self.send_templates[self.next_queue]
        cdef uint8_t* frame
        self.next_producer = (self.next_producer + 1) % self.producer_count
        if not connection.is_open:
            return False
        frame = self.output_room(connection, template.size)
        if frame == NULL:
            return False
        self.next_queue = (self.next_queue + 1) % self.queue_count
        memcpy(frame, template.bytes, template.size)
        digits_store(frame + template.born_at, epoch_ms(), BORN_DIGITS)
        hex_store(frame + template.unique_at, self.sequence)
        opaque_store(template, frame, SEND_SLOT)
        store_i64(frame + template.body_at, self.run_id)
        store_i64(frame + template.body_at + STAMP_DUE, due_ns)
        if template.signed_as != NULL:
            request_sign(template.signed_as, frame, NOWHERE, 0)
        self.sequence += 1
        connection.output_end += template.size
        self.sent += 1
        self.unanswered += 1
        self.counters.begun += 1
        return True

    cdef void _hold(self, int32_t queue, int64_t now_ns) noexcept nogil:
        """Send the pull that waits for the queue's next message."""
        cdef int32_t index = (
            self.producer_count + queue % (self.connection_count - self.producer_count))
        cdef LoadConnection* connection = &self.connections[index]
        cdef const RequestTemplate* template = &self.pull_templates[queue]
        cdef uint8_t* frame
        if not connection.is_open:
            return
        frame = self.output_room(connection, template.size + NUMBER_LENGTH_MAX)
        if frame == NULL:
            self.close_connection(index)
            return
        connection.output_end += pull_render(
            template, frame, self.pulls[queue].next_offset, queue)
        self.pulls[queue].since_ns = now_ns

    cdef void _take_records(
            self, int32_t queue, const Response* response, int64_t now_ns) noexcept nogil:
        cdef HeldPull* pull = &self.pulls[queue]
        cdef RecordView view
        cdef int64_t position = 0
        while position < response.body_size:
            if not record_view(response.body + position, response.body_size - position, &view):
                self.bad_records += 1
                return
            position += view.size
            if view.queue_id != queue or view.offset != pull.next_offset:
                self.gaps += 1
            pull.next_offset = view.offset + 1
            if view.body_size < STAMP_SIZE or load_i64(view.body) != self.run_id:
                self.foreign += 1
                continue
            histogram_record(&self.latency, now_ns - load_i64(view.body + STAMP_DUE))
            self.counters.completed += 1

    cdef void on_response(
            self, int32_t index, const Response* response, int64_t now_ns) noexcept nogil:
        cdef int32_t slot = response.opaque - OPAQUE_BASE
        if slot == SEND_SLOT and index < self.producer_count:
            self.unanswered -= 1
            if response.code:
                self.count_error(response)
            return
        if slot >= self.queue_count or self.pulls[slot].since_ns == 0:
            self.counters.unexpected += 1
            return
        self.pulls[slot].since_ns = 0
        if response.code == 0:
            self._take_records(slot, response, now_ns)
        elif RESPONSE_PULL_NOT_FOUND <= response.code <= RESPONSE_PULL_OFFSET_MOVED:
            self.pulls[slot].next_offset = response_number(
                response, literal("nextBeginOffset"), self.pulls[slot].next_offset)
        else:
            self.count_error(response)
            return                                      # not held again: the run stalls and says so
        self._hold(slot, now_ns)
