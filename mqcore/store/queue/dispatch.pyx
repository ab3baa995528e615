"""Dispatch (dispatch.pxd has its rules), and the process's native loop around it."""
import os

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from mqcore.atomics cimport (
    full_fence,
    load_i32_acquire,
    load_i64_acquire,
    load_u8_acquire,
    store_i32_release,
    store_i64_release,
)
from mqcore.clock cimport steady_ms, steady_us, wall_ms
from mqcore.invariants cimport invariant
from mqcore.layout cimport (
    ARRIVAL_QUEUE,
    FIGURE_DISPATCHED,
    FIGURE_KEYS,
    LATENCY_DISPATCH,
    LISTENER_COUNT,
    SLOT_DISPATCHER,
    SYS_FLAG_COMMIT,
    SYS_FLAG_ROLLBACK,
    SYS_FLAG_TRANSACTION_MASK,
    TRACE_DISPATCHED,
    Arrival,
    WorkerSlot,
)
from mqcore.names cimport is_queue_place
from mqcore.shm.replica_gate cimport shown_end
from mqcore.shm.latency cimport latency_add, latency_of
from mqcore.shm.ring cimport Ring, ring_claim, ring_finish, ring_publish
from mqcore.shm.segment cimport (
    Segment,
    Shm,
    doorbell_arm,
    doorbell_disarm,
    doorbell_hurried,
    doorbell_rest,
    doorbell_ring,
    doorbell_take_hurry,
    interest_byte,
    shm_producer,
)
from mqcore.shm.trace cimport (
    TRACER_DISPATCHER,
    trace_begin,
    trace_stamp,
    trace_turn,
    tracer_open,
)
from mqcore.shm.waiter cimport Waiter, waiter_close, waiter_open, waiter_sleep
from mqcore.store.queue.bit_source cimport BitSource
from mqcore.store.queue.consume_queue cimport queue_distrust, queue_files_sync, queue_forget
from mqcore.store.schedule.delivery_time cimport delay_levels_set, delivery_time_ms
from mqcore.store.queue.dispatch_queues cimport (
    BATCH_RECORDS_MAX,
    OFFSET_NONSENSE,
    batch_clear,
    batch_close,
    batch_extend,
    batch_next,
    batch_note,
    batch_note_at,
    batch_open,
    batch_write,
)
from mqcore.store.index.file cimport (
    index_close,
    index_end,
    index_hash,
    index_note,
    index_open,
    index_add_noted,
    index_sync,
    index_use,
)
from mqcore.store.log.view cimport (
    log_at,
    log_next_use,
    log_view_close,
    log_view_forget,
    log_view_open,
)
from mqcore.store.queue.multi_dispatch cimport (
    MULTI_NAMES_MAX,
    MultiReader,
    NamedQueue,
    multi_queues,
)
from mqcore.store.queue.extension cimport (
    extension_close,
    extension_forget,
    extension_open,
    extension_sync,
)
from mqcore.store.record cimport (
    PARSE_BLANK,
    PARSE_RECORD,
    PropertyItem,
    RecordView,
    item_is,
    property_next,
    record_parse,
    tag_code,
)

cdef enum:
    BATCH_BYTES_MAX = 4 << 20
    REST_MS = 1
    REST_BYTES_MAX = 256 << 10        # with as much to do there is no rest


cdef int add_keys(Dispatcher* d, RecordView* record, const uint8_t* keys, int32_t length,
                  bint maybe_there) noexcept nogil:
    """Each word of KEYS, split at single blanks."""
    cdef int32_t start = 0, i
    cdef int error
    for i in range(length + 1):
        if i < length and keys[i] != c' ':
            continue
        if i > start:
            error = index_note(
                &d.index, index_hash(record.topic, record.topic_length, keys + start, i - start),
                record.log_position, record.store_time_ms, maybe_there)
            if error:
                return error
        start = i + 1
    return 0


cdef int index_record(Dispatcher* d, RecordView* record, const PropertyItem* unique,
                      const PropertyItem* keys) noexcept nogil:
    cdef int64_t end = index_end(&d.index)
    cdef bint maybe_there = record.log_position == end                   # file I2
    cdef int error
    if record.log_position < end:
        return 0
    if record.sys_flag & SYS_FLAG_TRANSACTION_MASK == SYS_FLAG_ROLLBACK:
        return 0
    if unique.value_length > 0:
        error = index_note(
            &d.index, index_hash(record.topic, record.topic_length, unique.value,
                                 unique.value_length),
            record.log_position, record.store_time_ms, maybe_there)
        if error:
            return error
    if keys.value_length > 0:
        return add_keys(d, record, keys.value, keys.value_length, maybe_there)
    return 0


cdef void tell(Dispatcher* d) noexcept nogil:
    """Arrivals to whoever holds pulls on a queue that grew (D3)."""
    cdef int i
    cdef int32_t t, queue
    cdef Ring* arrivals
    cdef Arrival* arrival
    full_fence()
    for i in range(LISTENER_COUNT):
        arrivals = &d.arrivals[i]
        if arrivals.cursors == NULL:
            continue
        for t in range(d.batch.touched_count):
            queue = d.batch.touched[t].queue
            if not d.batch.touched[t].born and not load_u8_acquire(
                    interest_byte(d.shm, i, queue)):
                continue
            arrival = <Arrival*>ring_claim(arrivals, sizeof(Arrival))
            if arrival == NULL:        # that process looks at all it holds once a second itself
                break
            arrival.queue = queue
            arrival.pad = 0
            arrival.max_offset = d.shm.queues[queue].max_offset
            ring_finish(arrivals, ARRIVAL_QUEUE, sizeof(Arrival))
        if ring_publish(arrivals):
            doorbell_ring(&d.shm.slots[d.shm.head.listener_slot[i]])


cdef int end_batch(Dispatcher* d) noexcept nogil:
    cdef int keys_error = index_add_noted(&d.index)
    cdef int error = batch_write(&d.batch)
    if error == 0:
        error = keys_error
    if error == 0:
        invariant("D1", d.shm.log.dispatched <= d.position)
        invariant("D1", d.position <= load_i64_acquire(&d.shm.log.published))
        store_i64_release(&d.last_store_time_ms, d.batch_store_time_ms)
        store_i64_release(&d.shm.log.dispatched, d.position)             # D1
        tell(d)
    batch_clear(&d.batch)
    return error


cdef void named_queues(Dispatcher* d, RecordView* record, int64_t tags) noexcept nogil:
    """The record's entries in queues besides its own (multi_dispatch.pxd)."""
    cdef bint impossible = False
    cdef int32_t count = multi_queues(&d.multi, record, d.named, &impossible)
    cdef int32_t i
    if impossible:
        note_odd(&d.forged, record)
    for i in range(count):
        batch_note_at(&d.batch, record, d.named[i].queue, d.named[i].offset, tags)


cdef void note_odd(OddRecords* odd, const RecordView* record) noexcept nogil:
    """Whoever wrote it, it cannot be what it says; a turn that is repeated counts it once."""
    if record.log_position < odd.end:
        return
    if odd.count == 0:
        odd.position = record.log_position
    odd.count += 1
    odd.end = record.log_position + record.size


cdef int one_record(Dispatcher* d, RecordView* record) noexcept nogil:
    """Its keys and its queue entry are noted; 0 or a DispatchFailure."""
    cdef PropertyItem item, unique, keys, delay
    cdef const uint8_t* at = record.properties
    cdef const uint8_t* end = record.properties + record.properties_length
    cdef const uint8_t* bits = NULL
    cdef int32_t bits_length = 0
    cdef int64_t tags = 0, delivery_ms
    cdef int32_t kind = record.sys_flag & SYS_FLAG_TRANSACTION_MASK
    unique.value_length = 0
    keys.value_length = 0
    delay.value_length = 0
    while property_next(&at, end, &item):
        if item_is(&item, "TAGS"):
            tags = tag_code(item.value, item.value_length)
        elif item_is(&item, "UNIQ_KEY"):
            unique = item
        elif item_is(&item, "KEYS"):
            keys = item
        elif item_is(&item, "DELAY"):
            delay = item
    if delay.value_length:
        delivery_ms = delivery_time_ms(&d.delays, record, &delay)
        if delivery_ms >= 0:
            tags = delivery_ms
    if kind == 0 or kind == SYS_FLAG_COMMIT:
        if d.bits != NULL:
            bits = d.bits.of_record(d.bits.context, record, &bits_length)
        if not batch_note(&d.batch, record, tags, bits, bits_length):
            if is_queue_place(record.topic, record.topic_length, record.queue_id):
                d.failure_position = record.log_position
                return DISPATCH_UNKNOWN_QUEUE
            note_odd(&d.odd, record)                                     # names O3
        named_queues(d, record, tags)
    if d.index_enabled:
        d.failure_detail = index_record(d, record, &unique, &keys)
        if d.failure_detail:
            return DISPATCH_IO
    d.batch_store_time_ms = record.store_time_ms
    return 0


cdef int64_t readable_end(Dispatcher* d) noexcept nogil:
    """Up to where records may have entries."""
    cdef int64_t published = load_i64_acquire(&d.shm.log.published)
    return shown_end(d.shm, published) if d.replicated_only else published                   # D5


cdef int64_t dispatch_turn(Dispatcher* d) noexcept nogil:
    cdef int64_t published = readable_end(d)
    cdef int64_t began = d.position, available, count = 0
    cdef const uint8_t* slice
    cdef RecordView record
    cdef int result
    log_next_use(&d.log)
    if load_i32_acquire(&d.shm.log.removals_begun) != d.removals_seen:                   # D4
        d.failure = DISPATCH_REMOVAL
        return -1
    if d.bits != NULL:
        d.bits.begin(d.bits.context)
    if d.position < published:         # an empty log may begin anywhere (raw.pxd, A9)
        d.position = max(d.position, load_i64_acquire(&d.shm.log.first))
    d.failure = DISPATCH_WELL
    d.batch_store_time_ms = d.last_store_time_ms
    while (d.position < published and d.batch.pending_count < BATCH_RECORDS_MAX
           and d.position - began < BATCH_BYTES_MAX):
        available = min(published,
                        (d.position // d.log.segment_size + 1) * d.log.segment_size) - d.position
        slice = log_at(&d.log, d.position, available, published)
        if slice == NULL:
            d.failure = DISPATCH_LOG_UNREADABLE
            d.failure_detail = d.log.failure
            break
        result = record_parse(slice, available, &record)
        if result == PARSE_BLANK:
            d.position = (d.position // d.log.segment_size + 1) * d.log.segment_size
            continue
        if result != PARSE_RECORD or record.log_position != d.position:
            d.failure = DISPATCH_BAD_RECORD
            d.failure_detail = result
            break
        d.failure = one_record(d, &record)
        if d.failure:
            break
        if count == 0:
            d.first_store_time_ms = record.store_time_ms
        d.position += record.size
        count += 1
    if d.failure == DISPATCH_BAD_RECORD or d.failure == DISPATCH_LOG_UNREADABLE:
        d.failure_position = d.position
    result = end_batch(d)
    if result:
        d.failure = DISPATCH_BAD_RECORD if result == OFFSET_NONSENSE else DISPATCH_IO
        d.failure_detail = result
        d.failure_position = began
        d.position = began             # entries that did get into the file are written once more
        return -1
    d.records_count += count
    return -1 if d.failure else count


cdef bint dispatch_has_work(Dispatcher* d) noexcept nogil:
    return (readable_end(d) > d.position
            or load_i32_acquire(&d.shm.log.removals_begun) != d.removals_seen)


cdef void note_times(Dispatcher* d, int64_t count, int64_t now_us) noexcept nogil:
    """
    How long the records of a turn waited, all as long as the first: since the writer last
    published, and the milliseconds by which the first is older than the last published record.
    """
    cdef int64_t older_ms = load_i64_acquire(&d.shm.log.last_store_time_ms) - d.first_store_time_ms
    latency_add(latency_of(d.shm.latencies, SLOT_DISPATCHER, LATENCY_DISPATCH),
                now_us - load_i64_acquire(&d.shm.log.published_us) + 1000 * max(older_ms, 0), count)


cdef bint may_rest(Dispatcher* d, int64_t now_ms) noexcept nogil:
    """Behind work: whether it came soon behind the work before, and little has come meanwhile (D6)."""
    cdef bint soon = now_ms - d.worked_ms <= REST_MS
    d.worked_ms = now_ms
    return soon and not d.replicated_only and readable_end(d) - d.position < REST_BYTES_MAX


# Linux tells the caller of syncfs what went wrong since 5.8.
_LINUX = os.uname().release.split("-")[0].split(".")[:2]
SYNCFS_REPORTS = [int(part) for part in _LINUX] >= [5, 8]


cdef class DispatchLoop:
    """
    The dispatcher process's work, without the GIL.

    segment: the run's shared memory; log_folder, queue_folder, index_folder: where the files are;
    file_entries: entries of a consume queue file; index_slots, index_entries: of an index file;
    delay_levels_ms: the delays of level 1, 2, ... (mqcore/broker/settings/delay_levels.py);
    extension_folder: None: entries have no extension, extension_file_bytes: size of its files;
    multi_dispatch, light_queues: records go into the queues that they name, %LMQ%... into queue 0;
    bits: of the extension's units, None: they have none; replicated_only: D5.
    """
    cdef Segment segment
    cdef Dispatcher d
    cdef Waiter waiter
    cdef readonly int64_t rests        # how often it slept behind work although there might be more (D6)
    cdef bint opened
    cdef BitSource bits

    def __cinit__(self, Segment segment not None, bytes log_folder, bytes queue_folder,
                  bytes index_folder, *, int64_t file_entries, int32_t index_slots,
                  int32_t index_entries, bint index_enabled=True, newest_index=None,
                  int32_t open_files_max=4096, delay_levels_ms=(),
                  extension_folder=None, int64_t extension_file_bytes=0,
                  bint multi_dispatch=False, bint light_queues=False, BitSource bits=None,
                  bint replicated_only=False):
        cdef Shm* shm = &segment.shm
        cdef int i
        self.segment = segment
        memset(&self.d, 0, sizeof(Dispatcher))
        self.d.shm = shm
        tracer_open(&self.d.tracer, shm, TRACER_DISPATCHER)
        self.d.index_enabled = index_enabled
        self.d.replicated_only = replicated_only
        delay_levels_set(&self.d.delays, delay_levels_ms)
        log_view_open(&self.d.log, shm.log, log_folder, shm.head.segment_size)
        if batch_open(&self.d.batch, shm, queue_folder, file_entries, open_files_max):
            raise MemoryError
        self.d.multi = MultiReader(shm=shm, enabled=multi_dispatch, light_queues=light_queues,
                                   adds=False, next_offset=batch_next, context=&self.d.batch)
        self.d.named = <NamedQueue*>malloc(MULTI_NAMES_MAX * sizeof(NamedQueue))
        if self.d.named == NULL:
            raise MemoryError
        if extension_folder is not None:
            if extension_open(&self.d.extension, shm.queues, shm.head.queue_capacity,
                              extension_folder, queue_folder, file_entries, extension_file_bytes,
                              open_files_max, True):
                raise MemoryError
            if batch_extend(&self.d.batch, &self.d.extension,
                            bits.map_size if bits is not None else 0):
                raise MemoryError
            if bits is not None:
                self.bits = bits
                self.d.bits = &bits.calls
        index_open(&self.d.index, index_folder, index_slots, index_entries)
        if newest_index is not None and index_enabled:
            error = index_use(&self.d.index, newest_index)
            if error:
                raise OSError(error, "index file cannot be used", newest_index)
        for i in range(LISTENER_COUNT):
            if shm.head.arrivals[i].start:
                shm_producer(shm, &shm.head.arrivals[i], &self.d.arrivals[i])
        self.d.position = load_i64_acquire(&shm.log.dispatched)
        if shm.slots[SLOT_DISPATCHER].incarnation > 1:
            self.distrust_files()
        error = waiter_open(&self.waiter, shm.slots[SLOT_DISPATCHER].bell)
        if error:
            raise OSError(error, "epoll")
        self.opened = True

    def set_delays(self, delay_levels_ms) -> None:
        """Other delay levels from now on: what is dispatched later is delivered by them."""
        delay_levels_set(&self.d.delays, delay_levels_ms)

    def __dealloc__(self):
        if self.opened:
            self.let_go()
            waiter_close(&self.waiter)

    cdef void let_go(self) noexcept:
        index_close(&self.d.index)
        if self.d.batch.extension != NULL:
            extension_close(&self.d.extension)
        batch_close(&self.d.batch)
        free(self.d.named)
        self.d.named = NULL
        log_view_close(&self.d.log)

    cdef void distrust_files(self):
        """A predecessor died in this run: what it wrote and did not sync counts as not synced."""
        cdef int32_t queue
        cdef int64_t most
        for queue in range(load_i32_acquire(&self.d.shm.head.queue_count)):
            most = load_i64_acquire(&self.d.shm.queues[queue].max_offset)
            if most > 0:
                queue_distrust(&self.d.batch.files, queue, most)

    def run(self, int64_t slice_ms) -> int:
        """
        Dispatch and sleep for `slice_ms`, or until a stop is asked for or something fails; returns
        a DispatchFailure (0: none). After 4 (I/O) it may be called again, after 5 when the queues
        that the writer ended are removed (`removals_done`); after the others not.
        """
        cdef int64_t end_ms = steady_ms() + slice_ms
        cdef int64_t count = 0, began, now_us
        cdef WorkerSlot* slot = &self.d.shm.slots[SLOT_DISPATCHER]
        log_view_forget(&self.d.log)
        with nogil:
            while steady_ms() < end_ms:
                doorbell_take_hurry(slot)                                # D6
                trace_begin(&self.d.tracer, 0)
                began = self.d.position
                count = dispatch_turn(&self.d)
                if count < 0:
                    break
                if self.d.shm.log.queue_error:         # sends are refused for no longer than needed
                    store_i32_release(&self.d.shm.log.queue_error, 0)
                self.report()
                if count > 0:
                    now_us = steady_us()
                    note_times(&self.d, count, now_us)
                    if self.d.tracer.on:
                        trace_stamp(&self.d.tracer, 1)
                        trace_turn(&self.d.tracer, TRACE_DISPATCHED, began, self.d.position)
                    if not may_rest(&self.d, now_us // 1000):
                        continue
                if load_i32_acquire(&slot.stop_requested):
                    break
                if count > 0:
                    doorbell_rest(slot)
                    if not doorbell_hurried(slot):
                        self.rests += 1
                        waiter_sleep(&self.waiter, REST_MS)
                else:
                    doorbell_arm(slot)
                    if not dispatch_has_work(&self.d):
                        waiter_sleep(&self.waiter, <int>(end_ms - steady_ms()))
                doorbell_disarm(slot)
        store_i32_release(&self.d.shm.log.queue_error,
                          self.d.failure_detail if self.d.failure == DISPATCH_IO else 0)
        return self.d.failure

    cdef void report(self) noexcept nogil:
        self.d.shm.slots[SLOT_DISPATCHER].figures[FIGURE_DISPATCHED] = self.d.records_count
        self.d.shm.slots[SLOT_DISPATCHER].figures[FIGURE_KEYS] = self.d.index.keys_count
        self.d.shm.slots[SLOT_DISPATCHER].beat_ms = wall_ms()

    def failure(self) -> tuple[int, int, int]:
        """(DispatchFailure, detail, position in bytes) of the last run."""
        return (self.d.failure, self.d.failure_detail, self.d.failure_position)

    def odd(self) -> tuple[int, int]:
        """Records of this process's life that can have no queue: how many, where the first lies."""
        return (self.d.odd.count, self.d.odd.position)

    def forged(self) -> tuple[int, int]:
        """Records that say they are in queues where they cannot be: how many, where the first lies."""
        return (self.d.forged.count, self.d.forged.position)

    def removals_begun(self) -> int:
        """How often the writer has called for a removal; to be given to `removals_done`."""
        return load_i32_acquire(&self.d.shm.log.removals_begun)

    def removals_done(self, int32_t begun) -> None:
        """All that was begun up to that call is removed: `run` goes on."""
        self.d.removals_seen = begun

    def forget_queue(self, int32_t queue) -> None:
        """Close what is open of a queue whose files are about to go."""
        queue_forget(&self.d.batch.files, queue)
        if self.d.batch.extension != NULL:
            extension_forget(&self.d.extension, queue)

    def has_work(self) -> bool:
        """Whether published records wait."""
        return dispatch_has_work(&self.d)

    def sync(self) -> tuple[int, int]:
        """
        Bring queues and index to disk; for a thread beside `run`. Returns (position, store time in
        ms) up to which everything dispatched is on disk now. Raises OSError.
        """
        cdef int64_t position = load_i64_acquire(&self.d.shm.log.dispatched)
        cdef int64_t time_ms = load_i64_acquire(&self.d.last_store_time_ms)
        cdef int32_t count = load_i32_acquire(&self.d.shm.head.queue_count)
        cdef int error = 0
        cdef bint together = SYNCFS_REPORTS
        with nogil:
            if self.d.batch.extension != NULL:
                error = extension_sync(&self.d.extension, count, together)
            if error == 0:
                error = queue_files_sync(&self.d.batch.files, count, together)
        if error:
            raise OSError(error, f"{os.strerror(error)}: consume queues cannot be synced" + (
                ", which is final: they are written again from the log at the next start"
                if self.sync_failed() else ""))
        return (position, time_ms)

    def sync_failed(self) -> bool:
        """Whether a sync of queue files has failed: no checkpoint may be written any more."""
        return self.d.batch.files.open.sync_failure != 0 or (
            self.d.batch.extension != NULL and self.d.extension.open.sync_failure != 0)

    def close(self) -> None:
        """Sync the index and let go of all files."""
        error = index_sync(&self.d.index)
        self.let_go()
        if error:
            raise OSError(error, "sync of the key index failed")
