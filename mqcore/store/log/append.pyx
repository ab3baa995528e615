"""The append service (append.pxd has its rules)."""
from libc.errno cimport EAGAIN, ENOMEM, errno
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset, strdup

from mqcore.atomics cimport load_i32_acquire, store_i64_release
from mqcore.clock cimport clocks, clocks_ms
from mqcore.endian cimport load_i32, store_i32
from mqcore.invariants cimport invariant
from mqcore.layout cimport (
    APPEND_RAW,
    APPEND_RECORDS,
    BLANK_SIZE_MIN,
    MAGIC_BLANK,
    PRODUCER_COUNT,
    PROPERTIES_LENGTH_MAX,
    PUT_CREATE_FILE_FAILED,
    PUT_DISK_FAILED,
    PUT_MESSAGE_ILLEGAL,
    PUT_NOT_AT_END,
    PUT_OK,
    PUT_POOL_EXHAUSTED,
    PUT_QUEUE_TABLE_FULL,
    PUT_RAW_DAMAGED,
    PUT_SERVICE_NOT_AVAILABLE,
    REFUSAL_DISK_FULL,
    REFUSAL_FLUSH_FAILED,
    REFUSAL_NONE,
    REFUSAL_WRITE_FAILED,
    REQUEST_AFTER_PREVIOUS,
    REQUEST_ONEWAY,
    REQUEST_WAITS,
    RESULT_PUT,
    SLOT_WRITER,
    SYS_FLAG_COMMIT,
    TRACE_APPENDED,
    AppendHead,
    AppendResult,
    QueueEntry,
)
from mqcore.shm.leadership cimport leadership_follows, leadership_leads
from mqcore.shm.ring cimport (
    Ring,
    ring_claim_or_ask,
    ring_finish,
    ring_has_room,
    ring_is_empty,
    ring_next,
    ring_release,
)
from mqcore.shm.segment cimport Shm, log_refuses, shm_consumer, shm_producer
from mqcore.shm.store_clock cimport store_clock_begin, store_clock_turn
from mqcore.shm.tables cimport QUEUE_REFUSED
from mqcore.shm.trace cimport TRACER_WRITER, trace_begin, trace_stamp, trace_turn, tracer_open
from mqcore.store.io cimport store_io, write_all_at
from mqcore.store.log.appender cimport FLUSH_SYNC, TURN_BYTES_MAX, QueueLook, RawRecord, UsedOffset
from mqcore.store.log.awaited cimport tell_followers
from mqcore.store.log.checksums cimport (
    ChecksumFile,
    checksums_close,
    checksums_open,
    checksums_put,
    checksums_replace,
)
from mqcore.store.log.failed_write cimport disk_probe, disk_refuses, leftovers_wipe, write_staged
from mqcore.store.log.flush cimport FlushService, flush_hand_over
from mqcore.store.log.group_commit cimport group_sync
from mqcore.store.log.log_folders cimport log_create, log_folder_open
from mqcore.store.log.pool_append cimport (
    fits_segment,
    has_pool_room,
    pool_keeps_waiting,
    roll_in_pool,
)
from mqcore.store.log.prepare cimport prepare_give_way
from mqcore.store.log.put_results cimport producer_wake, results_mark, results_publish
from mqcore.store.log.queue_offsets cimport give_back_offsets, use_offset
from mqcore.store.log.raw cimport RAW_RECORDS_MAX, RawBytes, may_begin, raw_look, raw_use_offsets
from mqcore.store.log.replica_gate cimport gate_end, gate_give_up, gate_ring, gate_turn, gate_wait_ms
from mqcore.store.log.transient_pool cimport pool_at, pool_has_room, pool_put, pool_drain
from mqcore.store.queue.lives cimport is_lives_topic, is_marker, lives_end, lives_tell
from mqcore.store.queue.multi_dispatch cimport MULTI_NAMES_MAX, multi_prepare
from mqcore.store.queue.place cimport queue_of
from mqcore.store.record cimport (
    PARSE_RECORD,
    RecordView,
    record_parse,
    record_place,
    record_store_time,
)

cdef enum:
    RING_BYTES_MAX = 1 << 18          # ... from one producer, so that no other waits long
    AS_IT_CAME_BYTES = 32 << 10       # raw requests from here on are not gathered in staging
    USED_CAPACITY = 65536
    DRAIN_MS_MAX = 1000


cdef int appender_open(Appender* a, Shm* shm, FlushService* service, GroupCommit* group,
                       TransientPool* pool, const char* folders, int flush_mode,
                       int64_t end) noexcept nogil:
    cdef int i
    cdef int64_t wall, steady
    memset(a, 0, sizeof(Appender))
    a.shm = shm
    a.service = service
    a.group = group
    a.pool = pool
    a.flush_mode = flush_mode
    a.segment_size = shm.head.segment_size
    a.fd = a.folder_fd = a.checksums.fd = a.checksums.folder_fd = -1
    a.base = -1
    a.position = end
    tracer_open(&a.tracer, shm, TRACER_WRITER)
    a.last_store_time_ms = a.stored_ms = shm.log.last_store_time_ms
    clocks_ms(&wall, &steady)
    store_clock_begin(shm.clock, wall, steady, a.last_store_time_ms)
    a.staging_capacity = 2 * TURN_BYTES_MAX + 2 * <int64_t>shm.head.message_size_max
    a.staging = <uint8_t*>malloc(a.staging_capacity if pool == NULL else 1)
    a.used_capacity = USED_CAPACITY
    a.used = <UsedOffset*>malloc(sizeof(UsedOffset) * (USED_CAPACITY + MULTI_NAMES_MAX))
    a.raw_records = <RawRecord*>malloc(sizeof(RawRecord) * RAW_RECORDS_MAX)
    a.looks = <QueueLook*>calloc(shm.head.queue_capacity, sizeof(QueueLook))
    a.folders = strdup(folders)
    if (a.staging == NULL or a.used == NULL or a.raw_records == NULL or a.looks == NULL
            or a.folders == NULL):
        return ENOMEM
    for i in range(PRODUCER_COUNT):
        if shm.head.appends[i].start == 0:
            continue
        a.producer[a.producers] = i
        shm_consumer(shm, &shm.head.appends[i], &a.appends[a.producers])
        shm_producer(shm, &shm.head.append_results[i], &a.results[a.producers])
        a.result_kept[a.producers] = a.results[a.producers].position
        a.producers += 1
    if end % a.segment_size == 0:
        return 0
    if pool == NULL:
        return open_segment(a, end // a.segment_size * a.segment_size)
    a.base = end // a.segment_size * a.segment_size              # the commit thread opens it
    return 0


cdef void appender_close(Appender* a) noexcept nogil:
    if a.fd >= 0:
        store_io().close_file(a.fd)
    if a.folder_fd >= 0:
        store_io().close_file(a.folder_fd)
    checksums_close(&a.checksums)
    free(a.staging)
    free(a.used)
    free(a.raw_records)
    free(a.looks)
    free(a.folders)


cdef int open_segment(Appender* a, int64_t base) noexcept nogil:
    """Make or open the segment at base and write there from now on; 0 or errno."""
    cdef int error = 0, folder = -1
    cdef ChecksumFile checksums
    cdef int fd = log_create(a.folders, base, a.segment_size)
    if fd < 0:
        return errno
    checksums.fd = checksums.folder_fd = -1
    if a.flush_mode == FLUSH_SYNC:
        folder = log_folder_open(a.folders, base)
        error = errno if folder < 0 else 0
    if error == 0:
        error = checksums_open(&checksums, a.folders, base, a.segment_size, max(a.position, base),
                               a.flush_mode == FLUSH_SYNC)
    if error == 0 and a.service != NULL:
        error = flush_hand_over(a.service, fd, checksums.fd, base)
    if error:
        checksums_close(&checksums)
        if folder >= 0:
            store_io().close_file(folder)
        store_io().close_file(fd)
        return error
    checksums_replace(&a.checksums, &checksums)
    if a.fd >= 0:
        store_io().close_file(a.fd)
    a.fd = fd
    a.folder_fd = folder
    a.base = base
    return 0


cdef int sync_segment(Appender* a) noexcept nogil:
    """Sync mode: what is in the segment reaches the disk, a new one's name too; 0 or errno."""
    cdef int error
    if a.folder_fd >= 0:
        error = group_sync(a.group, a.folder_fd, NULL)
        if error:
            return error
        store_io().close_file(a.folder_fd)
        a.folder_fd = -1
    return group_sync(a.group, a.fd, &a.checksums)


cdef void fail_results(Appender* a, int status) noexcept nogil:
    """Results of records that are not known to be where they are to be: say so (A1, A4)."""
    cdef int p
    for p in range(a.producers):
        a.last_status[p] = status
        results_mark(&a.results[p], a.result_kept[p], a.results[p].position, status, False)
        a.result_kept[p] = a.results[p].position


cdef bint append_staged(Appender* a) noexcept nogil:
    """Write what is staged. On failure the staged records of this turn never were."""
    cdef int error, p
    if a.staged == 0:
        return True
    if a.pool != NULL:
        a.position += a.staged
        a.staged = 0
        pool_put(a.pool, a.position, a.stored_ms)
        return True
    if a.prepare != NULL:
        prepare_give_way(a.prepare, a.position + a.staged)
    error = write_staged(a)
    a.in_ring = NULL
    if error:
        disk_refuses(a, error, REFUSAL_WRITE_FAILED)
        a.unwiped = max(a.unwiped, a.position + a.staged)
        leftovers_wipe(a)
        give_back_offsets(a)
        fail_results(a, PUT_DISK_FAILED if a.unwiped else PUT_SERVICE_NOT_AVAILABLE)
        a.staged = 0
        return False
    a.position += a.staged
    a.staged = 0
    a.used_count = 0
    for p in range(a.producers):
        a.result_kept[p] = a.results[p].position
    return True


cdef bint roll(Appender* a) noexcept nogil:
    """Close the segment with a blank record and begin the next one (A3)."""
    cdef uint8_t blank[BLANK_SIZE_MIN]
    cdef int64_t rest = a.base + a.segment_size - a.position
    cdef int error = 0
    if not append_staged(a):
        return False
    if a.pool != NULL:
        return roll_in_pool(a)
    if a.fd >= 0:
        rest = a.base + a.segment_size - a.position
        if rest > 0:
            store_i32(blank, <int32_t>rest)
            store_i32(blank + 4, MAGIC_BLANK)
            if a.prepare != NULL:
                prepare_give_way(a.prepare, a.base + a.segment_size)
            error = checksums_put(&a.checksums, blank, BLANK_SIZE_MIN, a.position)
            if error == 0:
                error = write_all_at(a.fd, blank, BLANK_SIZE_MIN, a.position - a.base)
            if error == 0 and a.flush_mode == FLUSH_SYNC:
                error = sync_segment(a)
                if error:
                    disk_refuses(a, error, REFUSAL_FLUSH_FAILED)
                    return False
    if error == 0:
        error = open_segment(a, a.base + a.segment_size if a.fd >= 0
                             else a.position // a.segment_size * a.segment_size)
    if error:
        if error != EAGAIN:                  # the flush service has to catch up: ask again
            disk_refuses(a, error, REFUSAL_WRITE_FAILED)
        return False
    a.position = a.base if a.position < a.base else a.position
    return True


cdef int roll_status(Appender* a) noexcept nogil:
    return (PUT_SERVICE_NOT_AVAILABLE if load_i32_acquire(&a.shm.log.refusal)
            in (REFUSAL_DISK_FULL, REFUSAL_FLUSH_FAILED) else PUT_CREATE_FILE_FAILED)


cdef int end_lives(Appender* a, const uint8_t* bytes, int64_t size) noexcept nogil:
    """End the lives that staged records end: they are in the file now (lives QL3); PutStatus."""
    cdef RecordView record
    cdef int64_t done = 0
    if not append_staged(a):
        return PUT_DISK_FAILED if a.unwiped else PUT_SERVICE_NOT_AVAILABLE
    while done < size and record_parse(bytes + done, size - done, &record) == PARSE_RECORD:
        if is_marker(&record) and lives_end(a.shm, &record, True, False):
            lives_tell(a.shm)
        done += record.size
    return PUT_OK


cdef int stage(Appender* a, const AppendHead* head, const uint8_t* records, AppendResult* result,
               int64_t* positions) noexcept nogil:
    """Give the records of one request their places; PutStatus."""
    cdef uint8_t* target
    cdef int32_t number, i, size, queue
    cdef int64_t done = 0, offset
    cdef QueueEntry* entry
    cdef int status
    cdef bint ends_lives
    if log_refuses(a.shm.log):
        return PUT_SERVICE_NOT_AVAILABLE
    status = multi_prepare(a.multi, &head, &records)
    if status != PUT_OK:
        return status
    ends_lives = is_lives_topic(records + head.topic_start, head.topic_length)
    if ends_lives and not append_staged(a):
        return PUT_SERVICE_NOT_AVAILABLE
    if head.bytes_total + BLANK_SIZE_MIN > a.segment_size or head.record_count < 1:
        return PUT_MESSAGE_ILLEGAL
    if (a.pool == NULL and (a.staged + head.bytes_total > a.staging_capacity or a.in_ring != NULL)
            and not append_staged(a)):
        return PUT_SERVICE_NOT_AVAILABLE
    if not fits_segment(a, head.bytes_total) and not roll(a):
        return roll_status(a)
    queue = queue_of(a.shm, head, records + head.topic_start)
    if queue < 0:
        return PUT_MESSAGE_ILLEGAL if queue == QUEUE_REFUSED else PUT_QUEUE_TABLE_FULL
    entry = &a.shm.queues[queue]
    invariant("A3", fits_segment(a, head.bytes_total))
    invariant("staging's end", (a.pool != NULL)
              | (a.staged + head.bytes_total <= a.staging_capacity))
    target = a.staging + a.staged if a.pool == NULL else pool_at(a.pool, a.position + a.staged)
    memcpy(target, records, head.bytes_total)
    # who encoded it may have seen a later clock than this turn: no delivery seems early
    a.last_store_time_ms = max(a.last_store_time_ms, record_store_time(records))
    a.stored_ms = a.last_store_time_ms
    offset = entry.next_offset if head.transaction_type in (0, SYS_FLAG_COMMIT) else 0
    result.queue_offset = offset
    result.log_position = a.position + a.staged
    for i in range(head.record_count):
        size = load_i32(target + done)
        record_place(target + done, offset + i, a.position + a.staged + done, a.last_store_time_ms)
        if positions != NULL:
            positions[i] = a.position + a.staged + done
        done += size
    if head.transaction_type in (0, SYS_FLAG_COMMIT):
        use_offset(a, queue, offset + head.record_count)
        entry.puts += 1
        for i in range(a.multi.named_count):
            use_offset(a, a.multi.named[i].queue, a.multi.named[i].offset + 1)
    invariant("records lie end to end", done == head.bytes_total)
    a.staged += done
    a.appends_count += head.record_count
    a.bytes_count += done
    return end_lives(a, target, done) if ends_lives else PUT_OK


cdef int stage_raw(Appender* a, const AppendHead* head, const uint8_t* bytes,
                   AppendResult* result) noexcept nogil:
    """Bytes of a log as they are (raw A7, A8); PutStatus."""
    cdef int64_t position = a.position + a.staged
    cdef bint as_it_came = a.pool == NULL and head.bytes_total >= AS_IT_CAME_BYTES
    cdef RawBytes raw
    cdef int status
    if log_refuses(a.shm.log):
        return PUT_SERVICE_NOT_AVAILABLE
    if <int64_t>head.queue_hash != position:
        if not may_begin(a, head.queue_hash):
            return PUT_NOT_AT_END
        position = head.queue_hash
    status = raw_look(a, bytes, head.bytes_total, position, &raw)
    if status != PUT_OK:
        return status
    if raw.uses > a.used_capacity:
        return PUT_RAW_DAMAGED
    if a.position + a.staged != position:                                # raw A9
        a.position = position
        store_i64_release(&a.shm.log.first, position)
    if a.pool == NULL and (a.staged + raw.size > a.staging_capacity or as_it_came
                           or a.in_ring != NULL
                           or a.used_count + raw.uses > a.used_capacity) and not append_staged(a):
        return PUT_SERVICE_NOT_AVAILABLE
    if a.base < 0 and not roll(a):
        return roll_status(a)
    if as_it_came:                       # the request stays in its ring until the end of the turn
        a.in_ring = bytes
    else:
        memcpy(a.staging + a.staged if a.pool == NULL else pool_at(a.pool, position), bytes,
               raw.size)
    if not raw.ends_lives:
        raw_use_offsets(a, bytes, &raw)
    a.stored_ms = max(a.stored_ms, raw.store_time_ms)
    a.last_store_time_ms = max(a.last_store_time_ms, a.stored_ms)
    a.staged += raw.size
    a.appends_count += raw.count
    a.bytes_count += raw.size
    result.log_position = position
    result.record_count = raw.count
    if raw.ends_lives:                                                                   # lives QL3
        if not append_staged(a):
            return PUT_DISK_FAILED if a.unwiped else PUT_SERVICE_NOT_AVAILABLE
        raw_use_offsets(a, bytes, &raw)
        a.used_count = 0
    if raw.ends_segment:
        if not roll(a):
            return PUT_DISK_FAILED if a.position > position or a.unwiped else roll_status(a)
        if a.pool != NULL:                   # what it closed gets into the file without a next record
            pool_put(a.pool, a.position, a.stored_ms)
    return PUT_OK


cdef int64_t take(Appender* a, int p) noexcept nogil:
    """Stage what one producer has, within limits; requests taken."""
    cdef Ring* ring = &a.appends[p]
    cdef AppendHead* head
    cdef AppendResult* result
    cdef uint8_t* record
    cdef uint8_t* place
    cdef int32_t length, kind, result_length
    cdef int64_t before, taken = 0, bytes = 0
    cdef bint exhausted
    while a.staged < TURN_BYTES_MAX and bytes < RING_BYTES_MAX and a.used_count < a.used_capacity:
        before = ring.position
        length = ring_next(ring, &record, &kind)
        if length < 0:
            break
        head = <AppendHead*>record
        exhausted = (a.pool != NULL and load_i32_acquire(&a.shm.log.refusal) == REFUSAL_NONE
                     and not has_pool_room(a, head.bytes_total + (
                         PROPERTIES_LENGTH_MAX if a.multi.enabled else 0)))
        if exhausted and pool_keeps_waiting(a):
            ring.position = before
            break
        result_length = sizeof(AppendResult)
        if head.record_count > 1 and kind == APPEND_RECORDS:
            result_length += 8 * head.record_count
        place = ring_claim_or_ask(&a.results[p], result_length)
        if place == NULL:
            ring.position = before                           # the producer is slow: not our wait
            a.result_wanted[p] = result_length
            break
        a.result_wanted[p] = 0
        result = <AppendResult*>place
        result.connection = head.connection
        result.opaque = head.opaque
        result.producer_incarnation = head.producer_incarnation
        result.queue_id = head.answer_queue_id
        result.record_count = head.record_count
        result.request_flags = head.request_flags
        result.taken_us = head.taken_us
        a.waiting += (head.request_flags & (REQUEST_WAITS | REQUEST_ONEWAY)) == REQUEST_WAITS
        result.queue_offset = 0
        result.log_position = 0
        if head.request_flags & REQUEST_AFTER_PREVIOUS and a.last_status[p] != PUT_OK:   # A6
            result.status = a.last_status[p]
        elif exhausted:
            result.status = PUT_POOL_EXHAUSTED
        elif (leadership_follows(a.shm, a.follows_only) if kind != APPEND_RAW        # raw A10
                else leadership_leads(a.shm)):                                       # raw A11
            result.status = PUT_SERVICE_NOT_AVAILABLE
        elif kind == APPEND_RAW:
            result.status = stage_raw(a, head, record + sizeof(AppendHead), result)
        else:
            result.status = stage(a, head, record + sizeof(AppendHead), result,
                                  <int64_t*>(place + sizeof(AppendResult)) if head.record_count > 1
                                  else NULL)
        a.last_status[p] = result.status
        ring_finish(&a.results[p], RESULT_PUT, result_length)
        if a.staged == 0:
            a.result_kept[p] = a.results[p].position         # already says what it is
        taken += 1
        bytes += length
    return taken


cdef bint make_durable(Appender* a) noexcept nogil:
    """Sync mode: the file reaches the disk before anybody who waits hears of it (A1)."""
    cdef bint failed
    cdef int error, p
    a.flushes_count += 1
    # the sync of the segment before, in roll, may have failed in this very turn (A5)
    failed = load_i32_acquire(&a.shm.log.refusal) == REFUSAL_FLUSH_FAILED
    if not failed:
        error = sync_segment(a)
        if error:
            disk_refuses(a, error, REFUSAL_FLUSH_FAILED)
            failed = True
    if failed:
        for p in range(a.producers):
            a.result_kept[p] = (a.results[p].cursors.tail if a.gate == NULL
                                else gate_end(a.gate, p, &a.results[p]))
        fail_results(a, PUT_DISK_FAILED)
        return False
    store_i64_release(&a.shm.log.flushed_store_time_ms, a.stored_ms)
    store_i64_release(&a.shm.log.flushed, a.position)
    return True


cdef void publish_results(Appender* a) noexcept nogil:
    cdef int p
    for p in range(a.producers):
        a.result_kept[p] = a.results[p].position
        results_publish(a.shm, &a.results[p], a.producer[p])


cdef void answer_all(Appender* a) noexcept nogil:
    """Results of the turn go out, then their requests leave their rings."""
    cdef int p
    publish_results(a)
    for p in range(a.producers):
        if ring_release(&a.appends[p]):
            producer_wake(a.shm, a.producer[p])


cdef void publish(Appender* a) noexcept nogil:
    invariant("A2", a.position >= a.shm.log.published)
    if a.shm.log.published != a.position:
        store_i64_release(&a.shm.log.published_us, a.steady_us if a.group == NULL
                          else max(a.steady_us, a.group.synced_us))
        store_i64_release(&a.shm.log.published, a.position)             # A2
        store_i64_release(&a.shm.log.last_store_time_ms, a.stored_ms)   # flush F3


cdef int64_t appender_turn(Appender* a) noexcept nogil:
    cdef int64_t taken = 0, position = a.position
    cdef int p
    a.waiting = 0
    clocks(&a.wall_ms, &a.steady_us)
    a.steady_ms = a.steady_us // 1000
    trace_begin(&a.tracer, a.steady_us)
    store_i64_release(&a.shm.slots[SLOT_WRITER].beat_ms, a.wall_ms)
    a.last_store_time_ms = max(a.last_store_time_ms,         # never back, as store.md 2.7 has it
                               store_clock_turn(a.shm.clock, a.wall_ms, a.steady_ms))
    if load_i32_acquire(&a.shm.log.refusal) and a.pool == NULL and a.steady_ms >= a.probe_ms:
        disk_probe(a)
    for p in range(a.producers):
        taken += take(a, p)
    trace_stamp(&a.tracer, 1)
    gate_ring(a.gate, a.waiting)                                        # replica_gate G11
    append_staged(a)
    trace_stamp(&a.tracer, 2)
    if a.flush_mode == FLUSH_SYNC and a.position != position:
        if a.waiting == 0 and a.gate == NULL:
            publish_results(a)                               # A1: nobody waits for the disk
        if a.shows_unflushed:
            publish(a)
            tell_followers(a)
        if not make_durable(a) and not a.shows_unflushed:
            a.position = position                            # nothing of it was published
        trace_stamp(&a.tracer, 3)
    if a.pool == NULL:
        publish(a)
    a.batches_count += taken > 0
    if a.gate == NULL:
        answer_all(a)
    else:
        for p in range(a.producers):
            a.result_kept[p] = a.results[p].position
            # replica_gate G5
            gate_turn(a.gate, p, a.producer[p], &a.results[p], &a.appends[p], a.position)
    if a.position != position and a.pool == NULL:
        tell_followers(a)
    if a.tracer.on and a.position != position:
        trace_turn(&a.tracer, TRACE_APPENDED, position, a.position)
    return taken


cdef bint appender_drain(Appender* a) noexcept nogil:
    return append_staged(a) and (a.pool == NULL or pool_drain(a.pool, DRAIN_MS_MAX))


cdef bint appender_has_work(Appender* a) noexcept nogil:
    cdef int p
    if a.pool_wanted and a.pool_full_ms and not (
            load_i32_acquire(&a.shm.log.refusal) or not pool_keeps_waiting(a)
            or pool_has_room(a.pool, a.pool_wanted)):
        return False
    if a.gate != NULL and gate_wait_ms(a.gate, a.producers, 1) == 0:
        return True
    for p in range(a.producers):
        if not ring_is_empty(&a.appends[p]) and (
                a.result_wanted[p] == 0 or ring_has_room(&a.results[p], a.result_wanted[p])):
            return True
    return False


cdef void appender_finish(Appender* a) noexcept nogil:
    cdef int64_t position = a.position
    cdef int p
    append_staged(a)
    if a.fd >= 0 and a.position != position and a.flush_mode == FLUSH_SYNC:
        make_durable(a)
    if a.pool == NULL:
        publish(a)
        tell_followers(a)
    if a.gate != NULL:
        for p in range(a.producers):
            gate_give_up(a.gate, p, &a.results[p])
        answer_all(a)
