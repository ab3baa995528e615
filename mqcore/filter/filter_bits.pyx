"""
The bits of SQL92 filters in extension units: every registered filter of a record's topic is
evaluated, and sets its bits in the record's map when the record passes.

broker.md 7.7, store.md 3.6 (RocketMQ 4.9.8: CommitLogDispatcherCalcBitMap). Each record of a topic
with filters has a map, be it all zeros; one of a topic without filters has none. A filter that
cannot be loaded leaves its topic without maps: a pull then evaluates the message itself.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memset

from mqcore.atomics cimport load_i32_acquire, load_i64_acquire
from mqcore.filter.bitmap cimport bitmap_set
from mqcore.filter.loaded cimport (
    FilterCache,
    LoadedFilter,
    filter_cache_clear,
    filter_drop,
    filter_passes,
    filter_take,
)
from mqcore.layout cimport FILTER_PROGRAM, SubscriptionEntry
from mqcore.shm.filters cimport FilterView, filter_look
from mqcore.shm.segment cimport Segment, Shm
from mqcore.shm.tables cimport name_hash
from mqcore.store.queue.bit_source cimport BitSource
from mqcore.store.record cimport RecordView

cdef enum:
    RECORD_WORK_MAX = 50_000               # of all filters for one message; then they count as passed
    MAP_SIZE_MAX = 4096
    TOPIC_PLACES = 1024                # chains of filters by topic; a power of two

cdef struct Registered:
    LoadedFilter* filter               # NULL: it cannot be loaded
    const SubscriptionEntry* name      # its topic never changes (tables.pxd)
    uint64_t hash                      # of the topic
    int32_t next                       # of the chain, number + 1

cdef struct Filters:
    Shm* shm
    FilterCache cache
    int64_t changes                    # that were seen
    Registered* registered
    int32_t count
    int32_t capacity
    int32_t[TOPIC_PLACES] first        # by topic hash, number + 1
    int32_t map_size
    bint incomplete                    # no memory for all of them: no maps at all
    uint8_t[MAP_SIZE_MAX] map


cdef inline int32_t* chain_of(Filters* f, uint64_t hash) noexcept nogil:
    return &f.first[hash & (TOPIC_PLACES - 1)]


cdef void add(Filters* f, int32_t place) noexcept nogil:
    """The filter of a subscription, if it has one with bits."""
    cdef FilterView view
    cdef Registered* registered
    cdef Registered* more
    cdef int32_t* chain
    if not filter_look(f.shm, place, &view) or view.kind != FILTER_PROGRAM:
        return
    if f.count == f.capacity:
        more = <Registered*>realloc(f.registered, (2 * f.capacity + 64) * sizeof(Registered))
        if more == NULL:
            f.incomplete = True
            return
        f.registered = more
        f.capacity = 2 * f.capacity + 64
    registered = &f.registered[f.count]
    f.count += 1
    registered.name = &f.shm.subscriptions[place]
    registered.hash = name_hash(registered.name.topic, registered.name.topic_length, 0)
    registered.filter = filter_take(&f.cache, f.shm, place, &view)
    chain = chain_of(f, registered.hash)
    registered.next = chain[0]
    chain[0] = f.count


cdef void drop_all(Filters* f, Registered* registered, int32_t count) noexcept nogil:
    cdef int32_t i
    for i in range(count):
        filter_drop(&f.cache, registered[i].filter)
    free(registered)


cdef void begin(void* context) noexcept nogil:
    """Take over what has changed since the last batch."""
    cdef Filters* f = <Filters*>context
    cdef int64_t changes = load_i64_acquire(&f.shm.head.filter_changes)
    cdef Registered* before = f.registered
    cdef int32_t before_count = f.count, place
    if changes == f.changes:
        return
    f.changes = changes
    f.registered = NULL
    f.count = f.capacity = 0
    f.incomplete = False
    memset(f.first, 0, sizeof(f.first))
    for place in range(load_i32_acquire(&f.shm.head.subscription_count)):
        add(f, place)
    drop_all(f, before, before_count)          # now: what stays was taken once more


cdef const uint8_t* of_record(void* context, const RecordView* record,
                              int32_t* length) noexcept nogil:
    cdef Filters* f = <Filters*>context
    cdef uint64_t hash
    cdef Registered* registered
    cdef LoadedFilter* filter
    cdef int32_t number
    cdef int64_t work = 0
    length[0] = 0
    if f.count == 0 or f.incomplete:
        return f.map
    hash = name_hash(record.topic, record.topic_length, 0)
    number = chain_of(f, hash)[0]
    while number:
        registered = &f.registered[number - 1]
        number = registered.next
        if (registered.hash != hash or registered.name.topic_length != record.topic_length
                or memcmp(registered.name.topic, record.topic, record.topic_length) != 0):
            continue
        filter = registered.filter
        if filter == NULL or filter.bloom_bit_count != 8 * f.map_size:
            length[0] = 0
            return f.map
        if length[0] == 0:
            length[0] = f.map_size
            memset(f.map, 0, f.map_size)
        # a bit too many only means that pulls look at the message themselves
        if work > RECORD_WORK_MAX or filter_passes(
                filter, record.properties, record.properties_length, &work):
            bitmap_set(f.map, filter.bloom_positions, filter.bloom_position_count)
    return f.map


cdef class FilterBits(BitSource):
    """
    The filters that the coordinator has registered in shared memory.

    map_size: bytes of a map, as mqcore/filter/bloom.py has it for the broker's settings.
    """
    cdef Segment segment
    cdef Filters* filters

    def __cinit__(self, Segment segment not None, int32_t map_size):
        if not 1 <= map_size <= MAP_SIZE_MAX:
            raise ValueError(f"map_size {map_size}: expected 1 to {MAP_SIZE_MAX} bytes")
        self.segment = segment
        self.map_size = map_size
        self.filters = <Filters*>calloc(1, sizeof(Filters))
        if self.filters == NULL:
            raise MemoryError
        self.filters.shm = &segment.shm
        self.filters.changes = -1
        self.filters.map_size = map_size
        self.calls.context = self.filters
        self.calls.begin = begin
        self.calls.of_record = of_record

    def __dealloc__(self):
        if self.filters != NULL:
            drop_all(self.filters, self.filters.registered, self.filters.count)
            filter_cache_clear(&self.filters.cache)
            free(self.filters)
