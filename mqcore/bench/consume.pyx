"""
The consume load: pulls of stored messages, many in flight, each message received once.

The queues are cut into slices; connections x depth readers walk one slice each and take the next
when they are done. Every record is checked: size, magic, queue, and that offsets have no gap.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free

from mqcore.bench.engine cimport NEVER, LoadConnection, LoadEngine
from mqcore.bench.frames cimport (
    OPAQUE_BASE,
    RecordView,
    RequestTemplate,
    Response,
    pull_render,
    record_view,
    response_number,
    template_load,
)
from mqcore.bench.histogram cimport histogram_record
from mqcore.text cimport literal
from mqcore.wire.codes cimport RESPONSE_PULL_NOT_FOUND, RESPONSE_PULL_OFFSET_MOVED
from mqcore.wire.digits cimport NUMBER_LENGTH_MAX

cdef enum:
    FRAME_SPARE = 64

PULLS_MAX = 4096


cdef struct Slice:
    int32_t queue
    int64_t begin
    int64_t end


cdef struct Reader:
    int32_t queue
    int64_t next_offset
    int64_t end
    int64_t since_ns                      # 0: nothing in flight


cdef class ConsumeLoad(LoadEngine):
    """
    One engine for a consume load.

    templates: one of a pull per queue. slices: (queue, begin, end) in reading order.
    repeat: start over with the first slice when the last one is taken.
    """

    cdef RequestTemplate* templates
    cdef Slice* slices
    cdef Reader* readers
    cdef int32_t queue_count
    cdef int32_t slice_count
    cdef int32_t next_slice
    cdef int32_t depth
    cdef bint is_primed
    cdef bint is_stopped
    cdef bint repeats
    cdef int64_t bad_records
    cdef int64_t gaps                     # records that are not the next of their queue
    cdef int64_t short_slices             # slices that ended before their end
    cdef list kept

    def __cinit__(self, list sockets, int64_t output_limit, list templates, list slices, int depth,
                  bint repeat=False):
        cdef int32_t i
        if not 1 <= depth <= PULLS_MAX:
            raise ValueError(f"depth {depth}: expected 1 to {PULLS_MAX}")
        if not templates or not slices:
            raise ValueError("templates and slices: expected at least one of each")
        self.depth = depth
        self.repeats = repeat
        self.queue_count = <int32_t>len(templates)
        self.slice_count = <int32_t>len(slices)
        self.templates = <RequestTemplate*>calloc(self.queue_count, sizeof(RequestTemplate))
        self.slices = <Slice*>calloc(self.slice_count, sizeof(Slice))
        self.readers = <Reader*>calloc(self.connection_count * depth, sizeof(Reader))
        if self.templates == NULL or self.slices == NULL or self.readers == NULL:
            raise MemoryError
        self.kept = templates
        for i in range(self.queue_count):
            template_load(&self.templates[i], templates[i])
        for i in range(self.slice_count):
            queue, begin, end = slices[i]
            if not 0 <= queue < self.queue_count or not 0 <= begin < end:
                raise ValueError(f"slice {slices[i]}: expected a queue and begin < end")
            self.slices[i] = Slice(queue, begin, end)
        largest = max([len(template[0]) for template in templates]) + FRAME_SPARE
        self.output_limit = max(output_limit, 2 * largest * depth)

    def __dealloc__(self):
        free(self.templates)
        free(self.slices)
        free(self.readers)

    def allow(self, int64_t count) -> None:
        """0: begin no more pulls; anything else: begin, or go on."""
        self.is_stopped = count == 0
        self.is_primed = False

    def results(self) -> dict:
        return LoadEngine.results(self) | {
            "bad_records": self.bad_records, "gaps": self.gaps, "short_slices": self.short_slices}

    cdef int64_t turn(self, int64_t now_ns) noexcept nogil:
        cdef int32_t index, slot
        if self.is_primed or self.is_stopped:
            return NEVER
        self.is_primed = True
        for slot in range(self.depth):
            for index in range(self.connection_count):
                if self.readers[index * self.depth + slot].since_ns == 0:
                    self._next_pull(index, slot, now_ns)
        for index in range(self.connection_count):
            self.flush(index)
        return NEVER

    cdef void _next_pull(self, int32_t index, int32_t slot, int64_t now_ns) noexcept nogil:
        """Begin the pull that reader `slot` of a connection needs next, if there is one."""
        cdef LoadConnection* connection = &self.connections[index]
        cdef Reader* reader = &self.readers[index * self.depth + slot]
        cdef Slice* source
        cdef const RequestTemplate* template
        cdef uint8_t* frame
        if self.is_stopped or not connection.is_open:
            return
        if reader.next_offset >= reader.end:
            if self.next_slice == self.slice_count:
                if not self.repeats:
                    return
                self.next_slice = 0
            source = &self.slices[self.next_slice]
            self.next_slice += 1
            reader.queue = source.queue
            reader.next_offset = source.begin
            reader.end = source.end
        template = &self.templates[reader.queue]
        frame = self.output_room(connection, template.size + NUMBER_LENGTH_MAX)
        if frame == NULL:
            self.close_connection(index)
            return
        connection.output_end += pull_render(template, frame, reader.next_offset, slot)
        reader.since_ns = now_ns
        connection.inflight += 1
        self.inflight += 1
        self.counters.begun += 1

    cdef void _take_records(self, Reader* reader, const Response* response) noexcept nogil:
        cdef RecordView view
        cdef int64_t position = 0
        while position < response.body_size:
            if not record_view(response.body + position, response.body_size - position, &view):
                self.bad_records += 1
                reader.next_offset = reader.end
                return
            if view.queue_id != reader.queue or view.offset != reader.next_offset:
                self.gaps += 1
                reader.next_offset = view.offset
            position += view.size
            reader.next_offset += 1
            if view.offset < reader.end:                # a batch may reach into the next slice
                self.counters.completed += 1

    cdef void on_response(
            self, int32_t index, const Response* response, int64_t now_ns) noexcept nogil:
        cdef int32_t slot = response.opaque - OPAQUE_BASE
        cdef Reader* reader
        cdef int64_t next_offset
        if slot >= self.depth or self.readers[index * self.depth + slot].since_ns == 0:
            self.counters.unexpected += 1
            return
        reader = &self.readers[index * self.depth + slot]
        next_offset = reader.next_offset
        histogram_record(&self.latency, now_ns - reader.since_ns)
        reader.since_ns = 0
        self.connections[index].inflight -= 1
        self.inflight -= 1
        if response.code == 0:
            self._take_records(reader, response)
        elif RESPONSE_PULL_NOT_FOUND <= response.code <= RESPONSE_PULL_OFFSET_MOVED:
            reader.next_offset = response_number(
                response, literal("nextBeginOffset"), reader.next_offset)
        else:
            self.count_error(response)
        if reader.next_offset <= next_offset:           # no step forward: nothing to wait for here
            self.short_slices += 1
            reader.next_offset = reader.end
        self._next_pull(index, slot, now_ns)
