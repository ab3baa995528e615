"""For tests of the append service: a producer that sends anything, and a disk that fails when told."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from mqcore.atomics cimport load_i64_acquire
from mqcore.layout cimport (
    APPEND_RAW,
    APPEND_RECORDS,
    HOST_V4_SIZE,
    PUT_OK,
    RECORD_FIXED_SIZE,
    REQUEST_AFTER_PREVIOUS,
    REQUEST_ONEWAY,
    REQUEST_WAITS,
    SYS_FLAG_TRANSACTION_MASK,
    AppendHead,
    AppendResult,
    RingCursors,
)
from mqcore.shm.ring cimport Ring, ring_claim, ring_finish, ring_next, ring_publish, ring_release
from mqcore.shm.segment cimport Segment, shm_consumer, shm_producer
from mqcore.shm.tables cimport name_hash, queue_hash
from mqcore.store.io cimport StoreIo, io_replace, store_io
from mqcore.store.probes.fd_path cimport fd_path
from mqcore.store.record cimport RecordHead, record_begin, record_end

cdef extern from "<unistd.h>" nogil:
    int usleep(unsigned int microseconds)

cdef extern from "<string.h>" nogil:
    char* strstr(const char* text, const char* part)

cdef extern from *:
    """
    #include <errno.h>
    #define mq_set_errno(value) (errno = (value))
    """
    void set_errno "mq_set_errno"(int value) noexcept nogil


cdef class AppendProbe:
    """
    A serving process as the writer sees it: one producer's end of `appends` and of its results.

    producer: number of the ring pair; incarnation: what its requests and results carry.
    """
    cdef Segment segment
    cdef Ring appends
    cdef Ring results
    cdef int32_t incarnation
    cdef uint8_t* last                 # the request that was sent last
    cdef int32_t last_length

    def __dealloc__(self):
        free(self.last)

    def __init__(self, Segment segment, int producer=0, int incarnation=1):
        self.segment = segment
        self.incarnation = incarnation
        shm_producer(&segment.shm, &segment.shm.head.appends[producer], &self.appends)
        shm_consumer(&segment.shm, &segment.shm.head.append_results[producer], &self.results)

    def send(self, str topic, int queue_id, list bodies, *, int opaque, bytes properties=b"",
             int sys_flag=0, int flag=0, int64_t born_ms=1, bint waits=True, bint oneway=False,
             bint after_previous=False) -> bool:
        """
        Ask for one request of len(bodies) records (2 and more: a batch); False: the ring is full.
        waits: its WAIT is not false; oneway: nobody is told of its result; after_previous: stored only
        if the one before was.
        """
        raw = topic.encode()
        cdef int64_t most = sizeof(AppendHead) + sum(
            [RECORD_FIXED_SIZE + len(raw) + len(properties) + len(body) for body in bodies])
        cdef uint8_t* place = ring_claim(&self.appends, <int32_t>most)
        cdef AppendHead* head = <AppendHead*>place
        cdef uint8_t* at = place + sizeof(AppendHead)
        cdef uint8_t* end = at
        cdef uint8_t[HOST_V4_SIZE] host
        cdef RecordHead record
        if place == NULL:
            return False
        memset(host, 1, HOST_V4_SIZE)
        memset(head, 0, sizeof(AppendHead))
        record.queue_id = queue_id
        record.flag = flag
        record.sys_flag = sys_flag
        record.born_time_ms = born_ms
        record.born_host = record.store_host = host
        record.born_host_size = record.store_host_size = HOST_V4_SIZE
        record.reconsume_times = 0
        record.prepared_position = 0
        for number, body in enumerate(bodies):
            end = record_begin(at, &record, <const uint8_t*><const char*>body, <int32_t>len(body),
                               <const uint8_t*><const char*>raw, <int32_t>len(raw))
            if number == 0:
                head.topic_start = <int32_t>(end - len(raw) - at)
            memcpy(end + 2, <const char*>properties, len(properties))
            at += record_end(at, end, <int32_t>len(properties))
        head.connection = <uint64_t>opaque * 3
        head.opaque = opaque
        head.producer_incarnation = self.incarnation
        head.queue_hash = queue_hash(name_hash(<const uint8_t*><const char*>raw, <int32_t>len(raw), 0),
                                     queue_id)
        head.queue_id = queue_id
        head.record_count = <int32_t>len(bodies)
        head.bytes_total = <int32_t>(at - place - sizeof(AppendHead))
        head.request_flags = ((REQUEST_WAITS if waits else 0) | (REQUEST_ONEWAY if oneway else 0)
                              | (REQUEST_AFTER_PREVIOUS if after_previous else 0))
        head.transaction_type = sys_flag & SYS_FLAG_TRANSACTION_MASK
        head.topic_length = <uint8_t>len(raw)
        ring_finish(&self.appends, APPEND_RECORDS, <int32_t>sizeof(AppendHead) + head.bytes_total)
        self.last_length = <int32_t>sizeof(AppendHead) + head.bytes_total
        self.last = <uint8_t*>realloc(self.last, self.last_length)
        if self.last == NULL:
            raise MemoryError
        memcpy(self.last, place, self.last_length)
        ring_publish(&self.appends)
        return True

    def send_raw(self, const uint8_t[::1] data, int64_t position, *, int opaque,
                 bint waits=True) -> bool:
        """Ask for bytes of another log, as they are, at `position`; False: the ring is full."""
        cdef int32_t length = <int32_t>(sizeof(AppendHead) + len(data))
        cdef uint8_t* place = ring_claim(&self.appends, length)
        cdef AppendHead* head = <AppendHead*>place
        if place == NULL:
            return False
        memset(head, 0, sizeof(AppendHead))
        if len(data):
            memcpy(place + sizeof(AppendHead), &data[0], len(data))
        head.connection = <uint64_t>opaque * 3
        head.opaque = opaque
        head.producer_incarnation = self.incarnation
        head.queue_hash = <uint64_t>position
        head.bytes_total = <int32_t>len(data)
        head.request_flags = REQUEST_WAITS if waits else 0
        ring_finish(&self.appends, APPEND_RAW, length)
        ring_publish(&self.appends)
        return True

    def repeat(self, int64_t count, int64_t spread=1) -> int:
        """
        For benchmarks: the last request that was sent, up to `count` times more, in queue ids 0 to
        spread - 1 in turn, seen by the writer as one batch. Returns how many the ring has room for.
        """
        cdef uint8_t* place
        cdef AppendHead* head
        cdef uint64_t topic
        cdef int64_t i, done = 0
        if self.last == NULL:
            raise ValueError("send one request first")
        head = <AppendHead*>self.last
        topic = name_hash(self.last + sizeof(AppendHead) + head.topic_start, head.topic_length, 0)
        for i in range(count):
            place = ring_claim(&self.appends, self.last_length)
            if place == NULL:
                break
            memcpy(place, self.last, self.last_length)
            head = <AppendHead*>place
            head.queue_id = head.answer_queue_id = <int32_t>(i % spread)
            head.queue_hash = queue_hash(topic, head.queue_id)
            ring_finish(&self.appends, APPEND_RECORDS, self.last_length)
            done += 1
        ring_publish(&self.appends)
        return done

    def drain(self) -> int:
        """How many results there are; raises AssertionError unless all say PUT_OK."""
        cdef uint8_t* record
        cdef int32_t kind
        cdef int64_t found = 0, refused = 0
        while ring_next(&self.results, &record, &kind) >= 0:
            refused += (<AppendResult*>record).status != PUT_OK
            found += 1
        ring_release(&self.results)
        if refused:
            raise AssertionError(f"{refused} of {found} requests were refused")
        return found

    def take(self) -> list[tuple[int, int, int, int, list[int]]]:
        """(opaque, PutStatus, queue offset, log position, positions of a batch) of each result."""
        cdef uint8_t* record
        cdef int32_t kind, length
        cdef AppendResult* result
        cdef int64_t* positions
        taken = []
        while True:
            length = ring_next(&self.results, &record, &kind)
            if length < 0:
                break
            result = <AppendResult*>record
            if result.connection != <uint64_t>result.opaque * 3:
                raise AssertionError(f"result {result.opaque} came back with another connection")
            positions = <int64_t*>(record + sizeof(AppendResult))
            taken.append((
                result.opaque, result.status, result.queue_offset, result.log_position,
                [positions[i] for i in range((length - <int32_t>sizeof(AppendResult)) // 8)]))
        ring_release(&self.results)
        return taken


# -- the disk ---------------------------------------------------------------------------------------
cdef enum:
    EVENTS_MAX = 8192
    PATH_BYTES = 1024
    CALL_OPEN = 0
    CALL_WRITE = 1
    CALL_SYNC = 2
    CALL_TRUNCATE = 3
    CALL_OF_CHECKSUMS = 4              # the same calls on files of checksums; theirs are told apart
    CALL_PUSH = 8
    CALL_COUNT = 9

CALLS = ("open", "write", "sync", "truncate", "checksums open", "checksums write", "checksums sync",
         "checksums truncate", "checksums push")
LOG_CALLS = CALL_OF_CHECKSUMS

cdef struct Event:
    int call
    int64_t results_tail               # what the watched producer could see by then
    int64_t offset
    int64_t size

cdef struct Plan:
    int error                          # errno; 0: none
    int after                          # calls that still go well
    int times                          # calls that then fail
    int64_t first_bytes                # of a write: so many are written before it fails or ends

cdef StoreIo probing
cdef StoreIo* real = NULL
cdef RingCursors* watched = NULL
cdef Event[EVENTS_MAX] recorded
cdef int recorded_count = 0
cdef Plan[CALL_COUNT] plans
cdef unsigned int sync_takes_us = 0


cdef bint goes_wrong(int call, int64_t offset, int64_t size) noexcept nogil:
    global recorded_count
    cdef Plan* plan = &plans[call]
    cdef Event* event
    if recorded_count < EVENTS_MAX:
        event = &recorded[recorded_count]
        event.call = call
        event.results_tail = load_i64_acquire(&watched.tail)
        event.offset = offset
        event.size = size
        recorded_count += 1
    if plan.times == 0:
        return False
    if plan.after > 0:
        plan.after -= 1
        return False
    plan.times -= 1
    return True


cdef int kind_of(int call, int fd) noexcept nogil:
    cdef char path[PATH_BYTES]
    fd_path(fd, path, PATH_BYTES)
    return call + (CALL_OF_CHECKSUMS if strstr(path, "/checksums") != NULL else 0)


cdef int probe_open(const char* path, int flags, int mode) noexcept nogil:
    cdef int call = CALL_OPEN
    if strstr(path, "/checksums") != NULL:
        call += CALL_OF_CHECKSUMS
    if goes_wrong(call, 0, 0):
        set_errno(plans[call].error)
        return -1
    return real.open_file(path, flags, mode)


cdef ssize_t probe_write(int fd, const void* data, size_t size, int64_t offset) noexcept nogil:
    cdef int call = kind_of(CALL_WRITE, fd)
    cdef ssize_t first = min(<ssize_t>plans[call].first_bytes, <ssize_t>size)
    if goes_wrong(call, offset, size):
        if first > 0:
            plans[call].first_bytes = 0
            if plans[call].error:
                plans[call].times += 1               # what is left of it fails
            return real.write_at(fd, data, first, offset)
        set_errno(plans[call].error)
        return -1
    return real.write_at(fd, data, size, offset)


cdef int probe_sync(int fd) noexcept nogil:
    cdef int call = kind_of(CALL_SYNC, fd)
    if sync_takes_us > 0:
        usleep(sync_takes_us)
    if goes_wrong(call, 0, 0):
        set_errno(plans[call].error)
        return -1
    return real.sync_data(fd)


cdef int probe_push(int fd, int64_t offset, int64_t size) noexcept nogil:
    if goes_wrong(CALL_PUSH, offset, size):
        set_errno(plans[CALL_PUSH].error)
        return -1
    return real.push_data(fd, offset, size)


cdef int probe_truncate(int fd, int64_t size) noexcept nogil:
    if goes_wrong(CALL_TRUNCATE, 0, size):
        set_errno(plans[CALL_TRUNCATE].error)
        return -1
    return real.truncate(fd, size)


def watch(Segment segment not None, int producer=0) -> None:
    """Record every call to the store's disk from now on, with what `producer` could see by then."""
    global real, watched, recorded_count, probing
    if real != NULL:
        raise RuntimeError("the disk is watched already")
    real = store_io()
    watched = <RingCursors*>(segment.shm.base + segment.shm.head.append_results[producer].start)
    recorded_count = 0
    memset(plans, 0, sizeof(plans))
    probing = real[0]
    probing.open_file = probe_open
    probing.write_at = probe_write
    probing.sync_data = probe_sync
    probing.push_data = probe_push
    probing.truncate = probe_truncate
    io_replace(&probing)


def fail(str call, int error, *, int after=0, int times=1, int64_t first_bytes=0) -> None:
    """
    Let `times` calls of a kind fail with `error` after `after` good ones. first_bytes: a write
    writes so many bytes before (error 0: a short write that can be carried on).
    """
    cdef Plan* plan = &plans[CALLS.index(call)]
    plan.error = error
    plan.after = after
    plan.times = times
    plan.first_bytes = first_bytes


def hang(str call, int64_t took_ms) -> None:
    """Let every call of a kind take so long at least; only "sync" can."""
    global sync_takes_us
    if call != "sync":
        raise ValueError(f"call: expected sync, got {call}")
    sync_takes_us = <unsigned int>(took_ms * 1000)


def events(*, bint checksums=False) -> list[tuple[str, int, int, int]]:
    """
    (call, tail of the watched results, offset, size) of each call so far on others than the files
    of checksums; checksums: on these instead.
    """
    return [(CALLS[recorded[i].call], recorded[i].results_tail, recorded[i].offset, recorded[i].size)
            for i in range(recorded_count) if (recorded[i].call >= LOG_CALLS) == checksums]


def unwatch() -> None:
    """The real disk again."""
    global real, sync_takes_us
    sync_takes_us = 0
    io_replace(NULL)
    real = NULL
