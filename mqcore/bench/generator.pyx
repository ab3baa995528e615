"""
The produce load: SEND_MESSAGE_V2 frames from templates, as fast as answers come or at a rate.

Closed loop: every connection keeps `depth` requests in flight. Open loop (rate > 0): message i is
due at start + i / rate, whatever the broker does, and its latency counts from then, so that a
stall costs every message that it delays (no coordinated omission).

Transactions: the templates are half messages; when one is stored, its END_TRANSACTION (commit) goes
out one-way on the same connection, as clients send it.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, memcpy

from mqcore.bench.engine cimport NEVER, LoadConnection, LoadEngine, epoch_ms, monotonic_ns
from mqcore.bench.frames cimport (
    BORN_DIGITS,
    LONG_DIGITS,
    NOWHERE,
    OPAQUE_BASE,
    RequestTemplate,
    Response,
    digits_store,
    hex_store,
    opaque_store,
    response_number,
    template_load,
)
from mqcore.bench.histogram cimport histogram_record
from mqcore.bench.signing cimport request_sign
from mqcore.text cimport SMALL_LETTER, Literal, is_digit, literal

cdef extern from "<string.h>" nogil:
    void* memmem(const void* haystack, size_t size, const void* needle, size_t needle_size) noexcept

cdef enum:
    OUTPUT_LIMIT_MIN = 1 << 20
    ONEWAY_SLOT = 1 << 24                 # no request in flight has it: an answer is unexpected
    POSITION_DIGITS = 16                  # the end of an offset message id, hexadecimal

SENDS_MAX = 65_536
TEMPLATES_MAX = 1024


cdef struct SendSlots:                    # the requests in flight of one connection
    int64_t* since_ns                     # when slot i's message was due; 0: free
    int32_t* free_slots
    int32_t free_count
    int32_t next_template
    uint32_t sequence                     # counts the unique keys of this connection


cdef class ProduceLoad(LoadEngine):
    """
    One engine for all produce loads.

    templates: for each connection, one Template per queue; they are taken in turn.
    oneway_templates: the same frames with the one-way flag, or None for answered sends.
    rate: messages/s in open loop, 0 for closed loop.
    commit: of END_TRANSACTION; JSON answers only. None: ordinary messages.
    """

    cdef SendSlots* slots
    cdef RequestTemplate* templates
    cdef RequestTemplate* oneway_templates
    cdef int32_t template_count           # per connection
    cdef int32_t depth
    cdef int32_t next_connection
    cdef int64_t allowance                # messages that may be begun in all
    cdef int64_t next_message             # open loop: index of the next due message
    cdef int64_t start_ns
    cdef double interval_ns
    cdef bint is_primed
    cdef bint is_oneway
    cdef list kept                        # what the templates point into
    cdef uint8_t born_text[BORN_DIGITS]
    cdef int64_t born_ns                  # when born_text was made
    cdef RequestTemplate commit           # without bytes: no transactions

    def __cinit__(self, list sockets, int64_t output_limit, list templates, int depth,
                  double rate=0.0, list oneway_templates=None, object commit=None):
        cdef int32_t i, slot
        if not 1 <= depth <= SENDS_MAX:
            raise ValueError(f"depth {depth}: expected 1 to {SENDS_MAX}")
        if rate < 0:
            raise ValueError(f"rate {rate}: expected messages per second, or 0 for closed loop")
        if len(templates) != len(sockets) or not 1 <= len(templates[0]) <= TEMPLATES_MAX:
            raise ValueError("templates: expected one list for each connection, not empty")
        self.depth = depth
        self.interval_ns = 1e9 / rate if rate else 0.0
        self.template_count = <int32_t>len(templates[0])
        self.kept = []
        self.templates = self._load(templates)
        self.is_oneway = oneway_templates is not None
        if self.is_oneway:
            self.oneway_templates = self._load(oneway_templates)
        if commit is not None:
            template_load(&self.commit, commit)
            self.kept.append(commit)
            if not (0 < self.commit.half_at <= self.commit.size - LONG_DIGITS
                    and 0 < self.commit.position_at <= self.commit.size - LONG_DIGITS):
                raise ValueError("commit: its places lie outside of the frame")
        largest = self.commit.size + max(
            [len(template[0]) for row in templates for template in row])
        self.output_limit = max(output_limit, OUTPUT_LIMIT_MIN, 2 * largest * depth)
        self.slots = <SendSlots*>calloc(self.connection_count, sizeof(SendSlots))
        if self.slots == NULL:
            raise MemoryError
        for i in range(self.connection_count):
            self.slots[i].since_ns = <int64_t*>calloc(depth, sizeof(int64_t))
            self.slots[i].free_slots = <int32_t*>calloc(depth, sizeof(int32_t))
            if self.slots[i].since_ns == NULL or self.slots[i].free_slots == NULL:
                raise MemoryError
            for slot in range(depth):
                self.slots[i].free_slots[slot] = depth - 1 - slot
            self.slots[i].free_count = depth
            self.slots[i].next_template = i % self.template_count

    def __dealloc__(self):
        cdef int32_t i
        if self.slots != NULL:
            for i in range(self.connection_count):
                free(self.slots[i].since_ns)
                free(self.slots[i].free_slots)
            free(self.slots)
        free(self.templates)
        free(self.oneway_templates)

    cdef RequestTemplate* _load(self, list rows) except NULL:
        cdef RequestTemplate* result
        cdef int32_t at = 0
        result = <RequestTemplate*>calloc(
            self.connection_count * self.template_count, sizeof(RequestTemplate))
        if result == NULL:
            raise MemoryError
        for row in rows:
            for template in row:
                template_load(&result[at], template)
                self.kept.append(template)
                at += 1
        return result

    # -- called between runs ----------------------------------------------------------------------

    def allow(self, int64_t count) -> None:
        """Let `count` more messages begin; 0 stops the load, what is in flight still ends."""
        self.allowance = self.counters.begun + count
        self.is_primed = False
        if self.start_ns == 0:
            self.start_ns = monotonic_ns()

    def finish_oneway(self) -> None:
        """From now on send answered messages: one on each connection shows that all have arrived."""
        self.is_oneway = False
        self.depth = 1
        self.interval_ns = 0
        self.allow(self.open_count)

    # -- the load ---------------------------------------------------------------------------------

    cdef bint _begin(self, int32_t index, int64_t since_ns, int64_t now_ns) noexcept nogil:
        """Write one message; False when the connection has no free slot or no room."""
        cdef LoadConnection* connection = &self.connections[index]
        cdef SendSlots* slots = &self.slots[index]
        cdef RequestTemplate* template
        cdef uint8_t* frame
        cdef int32_t slot
        if slots.free_count == 0 or not connection.is_open:
            return False
        template = self.oneway_templates if self.is_oneway else self.templates
        template += index * self.template_count + slots.next_template
        frame = self.output_room(connection, template.size)
        if frame == NULL:
            return False
        memcpy(frame, template.bytes, template.size)
        if now_ns - self.born_ns > 500_000:                   # ms text: half a ms is close enough
            digits_store(self.born_text, epoch_ms(), BORN_DIGITS)
            self.born_ns = now_ns
        if template.born_at != NOWHERE:
            memcpy(frame + template.born_at, self.born_text, BORN_DIGITS)
        if template.unique_at != NOWHERE:
            hex_store(frame + template.unique_at, slots.sequence)
        if template.keys_at != NOWHERE:
            hex_store(frame + template.keys_at, slots.sequence)
        if template.signed_as != NULL:
            request_sign(template.signed_as, frame, NOWHERE, 0)
        slots.sequence += 1
        slots.next_template += 1
        if slots.next_template == self.template_count:
            slots.next_template = 0
        connection.output_end += template.size
        self.counters.begun += 1
        if self.is_oneway:
            self.counters.completed += 1
            opaque_store(template, frame, ONEWAY_SLOT)
            return True
        slots.free_count -= 1
        slot = slots.free_slots[slots.free_count]
        slots.since_ns[slot] = since_ns
        opaque_store(template, frame, slot)
        connection.inflight += 1
        self.inflight += 1
        return True

    cdef int64_t turn(self, int64_t now_ns) noexcept nogil:
        if self.interval_ns > 0:
            return self._turn_open(now_ns)
        if self.is_oneway:
            return self._turn_oneway(now_ns)
        if not self.is_primed:
            self.is_primed = True
            self._fill(now_ns)
        return NEVER

    cdef void _fill(self, int64_t now_ns) noexcept nogil:
        """Closed loop: bring every connection to its depth, one message each in turn."""
        cdef int32_t index, level
        for level in range(self.depth):
            for index in range(self.connection_count):
                if self.counters.begun >= self.allowance:
                    break
                if self.connections[index].inflight <= level:
                    self._begin(index, now_ns, now_ns)
        for index in range(self.connection_count):
            self.flush(index)

    cdef int64_t _turn_oneway(self, int64_t now_ns) noexcept nogil:
        """Fill the connections that the kernel has emptied; TCP's own flow control is the brake."""
        cdef int32_t index, i
        cdef bint any_free = False
        for index in range(self.connection_count):
            if self.connections[index].output_end or not self.connections[index].is_open:
                continue
            for i in range(self.depth):
                if self.counters.begun >= self.allowance or not self._begin(index, now_ns, now_ns):
                    break
            self.flush(index)
            any_free = any_free or self.connections[index].output_end == 0
        return now_ns if any_free and self.counters.begun < self.allowance else NEVER

    cdef int64_t _turn_open(self, int64_t now_ns) noexcept nogil:
        """Open loop: begin every message that is due; returns when the next one is."""
        cdef int32_t index, tried
        cdef int64_t due_ns
        cdef bint begun
        while self.counters.begun < self.allowance:
            due_ns = self.start_ns + <int64_t>(self.next_message * self.interval_ns)
            if due_ns > now_ns:
                break
            begun = False
            for tried in range(self.connection_count):
                index = self.next_connection
                self.next_connection = index + 1 if index + 1 < self.connection_count else 0
                if self._begin(index, due_ns, now_ns):
                    begun = True
                    break
            if not begun:                                     # no free slot: an answer wakes us
                due_ns = NEVER
                break
            self.next_message += 1
        else:
            due_ns = NEVER
        for index in range(self.connection_count):
            if not self.connections[index].wants_write:
                self.flush(index)
        return due_ns

    cdef bint _commit(self, int32_t index, const Response* response) noexcept nogil:
        """END_TRANSACTION for a half message that is stored; False: its answer cannot be read."""
        cdef LoadConnection* connection = &self.connections[index]
        cdef Literal name = literal('"msgId":"')
        cdef const uint8_t* at = <const uint8_t*>memmem(
            response.header, response.header_size, name.text, name.length)
        cdef const uint8_t* end
        cdef int64_t half_offset = response_number(response, literal("queueOffset"), -1)
        cdef int64_t position = 0
        cdef int32_t i
        cdef uint8_t digit
        cdef uint8_t* frame
        if at == NULL or half_offset < 0:
            return False
        at += name.length
        end = <const uint8_t*>memchr(at, c'"', response.header + response.header_size - at)
        if end == NULL or end - at < POSITION_DIGITS:
            return False
        for i in range(POSITION_DIGITS):
            digit = (end - POSITION_DIGITS)[i]
            position = position * 16 + (
                digit - c'0' if is_digit(digit) else (digit | SMALL_LETTER) - c'a' + 10)
        frame = self.output_room(connection, self.commit.size)
        if frame == NULL:
            return False
        memcpy(frame, self.commit.bytes, self.commit.size)
        digits_store(frame + self.commit.half_at, half_offset, LONG_DIGITS)
        digits_store(frame + self.commit.position_at, position, LONG_DIGITS)
        if self.commit.signed_as != NULL:
            request_sign(self.commit.signed_as, frame, NOWHERE, 0)
        connection.output_end += self.commit.size
        return True

    cdef void on_response(
            self, int32_t index, const Response* response, int64_t now_ns) noexcept nogil:
        cdef SendSlots* slots = &self.slots[index]
        cdef int32_t slot = response.opaque - OPAQUE_BASE
        if slot >= self.depth or slots.since_ns[slot] == 0:
            self.counters.unexpected += 1
            return
        if response.code == 0:
            histogram_record(&self.latency, now_ns - slots.since_ns[slot])
            self.counters.completed += 1
            if self.commit.bytes != NULL and not self._commit(index, response):
                self.counters.errors += 1
        else:
            self.count_error(response)
            self.counters.completed += 1
        slots.since_ns[slot] = 0
        slots.free_slots[slots.free_count] = slot
        slots.free_count += 1
        self.connections[index].inflight -= 1
        self.inflight -= 1
        if self.interval_ns == 0 and self.counters.begun < self.allowance:
            self._begin(index, now_ns, now_ns)
