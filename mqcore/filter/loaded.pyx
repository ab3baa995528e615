"""Filters of shared memory, copied, checked and kept until nobody holds them (loaded.pxd)."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from mqcore.atomics cimport load_i32_acquire
from mqcore.filter.sql92 cimport filter_matches
from mqcore.filter.sql92_program cimport filter_load
from mqcore.layout cimport FILTER_ALL, FILTER_CODES, FILTER_PROGRAM
from mqcore.shm.filters cimport filter_copy, filter_look
from mqcore.shm.segment cimport Segment
from mqcore.shm.tables cimport subscription_place

cdef enum:
    TAKE_LOOKS_MAX = 100               # at an entry that changes while it is copied


cdef inline LoadedFilter** place_of(FilterCache* cache, int32_t place) noexcept nogil:
    return &cache.places[(<uint32_t>place * <uint32_t>0x9E3779B1) >> 22]


cdef void filter_keep(LoadedFilter* loaded) noexcept nogil:
    loaded.holders += 1


cdef void filter_drop(FilterCache* cache, LoadedFilter* loaded) noexcept nogil:
    if loaded == NULL:
        return
    loaded.holders -= 1
    if loaded.holders == 0:
        cache.bytes -= loaded.size
        free(loaded.chunk)
        free(loaded)


cdef bint make_ready(LoadedFilter* loaded) noexcept nogil:
    """Check the copied chunk (sql92_program FP1, FP2)."""
    if loaded.kind == FILTER_PROGRAM:
        return filter_load(loaded.chunk, loaded.size, &loaded.program) == NULL
    if loaded.kind == FILTER_CODES:
        loaded.codes = <const int32_t*>loaded.chunk
        loaded.code_count = <int32_t>(loaded.size // 4)
        return True
    return loaded.kind == FILTER_ALL


cdef LoadedFilter* filter_take(FilterCache* cache, Shm* shm, int32_t place,
                               FilterView* view) noexcept nogil:
    cdef LoadedFilter* loaded
    cdef int32_t look
    for look in range(TAKE_LOOKS_MAX):
        if not filter_look(shm, place, view):
            return NULL
        loaded = take_version(cache, shm, view)
        if loaded != NULL:
            return loaded
        if load_i32_acquire(&shm.filters[place].sequence) == view.sequence:
            return NULL                # it has not changed meanwhile: it cannot be had
    return NULL


cdef void forget_idle(FilterCache* cache) noexcept nogil:
    cdef int32_t i
    for i in range(FILTER_CACHE_PLACES):
        if cache.places[i] != NULL and cache.places[i].holders == 1:
            filter_drop(cache, cache.places[i])
            cache.places[i] = NULL


cdef LoadedFilter* take_version(FilterCache* cache, Shm* shm, const FilterView* view) noexcept nogil:
    cdef LoadedFilter** place = place_of(cache, view.place)
    cdef LoadedFilter* loaded = place[0]
    if loaded != NULL and loaded.place == view.place and loaded.version == view.version:   # FC1
        loaded.holders += 1
        return loaded
    if cache.bytes + view.chunk_size > FILTER_BYTES_MAX:                 # FC3
        forget_idle(cache)
        if cache.bytes + view.chunk_size > FILTER_BYTES_MAX:
            return NULL
    loaded = <LoadedFilter*>calloc(1, sizeof(LoadedFilter))
    if loaded == NULL:
        return NULL
    loaded.chunk = <uint8_t*>malloc(view.chunk_size + 8)
    if loaded.chunk == NULL:
        free(loaded)
        return NULL
    loaded.place = view.place
    loaded.kind = view.kind
    loaded.version = view.version
    loaded.size = view.chunk_size
    loaded.bits_from_ms = view.bits_from_ms
    loaded.bloom_bit_count = view.bloom_bit_count
    loaded.bloom_position_count = view.bloom_position_count
    memcpy(loaded.bloom_positions, view.bloom_positions, sizeof(view.bloom_positions))
    if not filter_copy(shm, view, loaded.chunk) or not make_ready(loaded):
        free(loaded.chunk)
        free(loaded)
        return NULL
    cache.bytes += loaded.size
    filter_drop(cache, place[0])
    place[0] = loaded
    loaded.holders = 2                 # the cache and the caller (FC2)
    return loaded


cdef void filter_cache_clear(FilterCache* cache) noexcept nogil:
    cdef int32_t i
    for i in range(FILTER_CACHE_PLACES):
        filter_drop(cache, cache.places[i])
        cache.places[i] = NULL


cdef bint filter_has_code(const LoadedFilter* loaded, int32_t code) noexcept nogil:
    cdef int32_t low = 0, high = loaded.code_count, middle
    while low < high:
        middle = (low + high) // 2
        if loaded.codes[middle] < code:
            low = middle + 1
        else:
            high = middle
    return low < loaded.code_count and loaded.codes[low] == code


cdef bint filter_passes(const LoadedFilter* loaded, const uint8_t* properties,
                        int32_t length, int64_t* work) noexcept nogil:
    if loaded.kind == FILTER_PROGRAM:
        return filter_matches(&loaded.program, properties, length, work) == 1
    return loaded.kind == FILTER_ALL


cdef class LoadedFilters:
    """A cache for tests and tools: what a serving process would say of a message."""
    cdef Segment segment
    cdef FilterCache cache
    cdef list kept

    def __init__(self, Segment segment):
        self.segment = segment
        self.kept = []

    def __dealloc__(self):
        filter_cache_clear(&self.cache)

    def passes(self, str group, str topic, bytes properties):
        """Whether a message passes the group's SQL92 filter; None when there is none to be had."""
        cdef FilterView view
        cdef LoadedFilter* loaded
        cdef int64_t work = 0
        loaded = filter_take(&self.cache, &self.segment.shm,
                             subscription_place(&self.segment.shm, group, topic), &view)
        if loaded == NULL:
            return None
        try:
            return bool(filter_passes(loaded, <const uint8_t*><const char*>properties,
                                      <int32_t>len(properties), &work))
        finally:
            filter_drop(&self.cache, loaded)

    def acquire(self, str group, str topic) -> bool:
        """Takes the group's filter until `let_go`; False: none is to be had."""
        cdef FilterView view
        cdef LoadedFilter* loaded = filter_take(
            &self.cache, &self.segment.shm,
            subscription_place(&self.segment.shm, group, topic), &view)
        if loaded != NULL:
            self.kept.append(<uintptr_t>loaded)
        return loaded != NULL

    def release(self) -> None:
        """Gives back what was kept."""
        for loaded in self.kept:
            filter_drop(&self.cache, <LoadedFilter*><uintptr_t>loaded)
        self.kept.clear()

    @property
    def bytes(self) -> int:
        """Of all copies."""
        return self.cache.bytes
