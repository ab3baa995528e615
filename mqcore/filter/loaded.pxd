# One process's own copies of the filters in shared memory (mqcore/shm/filters.pxd), ready to run.
#
#   FC1  A loaded filter never changes; a changed entry has another version and is loaded anew.
#   FC2  Who took a filter gives it back; the cache itself holds each once, until another one needs
#        its place. What is held stays, also when its entry has changed or gone.
#   FC3  All copies together stay below FILTER_BYTES_MAX. Where a further one has no room, those go
#        that nobody but the cache holds; if that is not enough, filter_take says NULL.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.filter.sql92_program cimport FilterProgram
from mqcore.layout cimport FILTER_POSITIONS_MAX
from mqcore.shm.filters cimport FilterView
from mqcore.shm.segment cimport Shm

cdef enum:
    FILTER_CACHE_PLACES = 1024         # a power of two
    FILTER_BYTES_MAX = 64 << 20

cdef struct LoadedFilter:
    int32_t place
    int32_t kind                       # FILTER_
    int64_t version
    int32_t holders
    int32_t code_count
    int64_t size
    uint8_t* chunk
    const int32_t* codes               # ascending
    FilterProgram program
    int64_t bits_from_ms               # bloom: as in FilterView
    int32_t bloom_bit_count
    int32_t bloom_position_count
    int32_t bloom_positions[FILTER_POSITIONS_MAX]

cdef struct FilterCache:
    LoadedFilter* places[FILTER_CACHE_PLACES]
    int64_t bytes                      # of all that are held, in the cache or not

# The filter of a place, from the cache if it is there, and what its entry says. NULL: there is none,
# or its bytes are no sound program, or there is no memory for it (FC3).
cdef LoadedFilter* filter_take(FilterCache* cache, Shm* shm, int32_t place,
                               FilterView* view) noexcept nogil
cdef void filter_keep(LoadedFilter* loaded) noexcept nogil                   # one holder more
cdef void filter_drop(FilterCache* cache, LoadedFilter* loaded) noexcept nogil
cdef void filter_cache_clear(FilterCache* cache) noexcept nogil
cdef bint filter_has_code(const LoadedFilter* loaded, int32_t code) noexcept nogil
# Whether a message with these property bytes passes (FILTER_PROGRAM, FILTER_ALL). *work grows by what
# it took, in units of about a nanosecond.
cdef bint filter_passes(const LoadedFilter* loaded, const uint8_t* properties,
                        int32_t length, int64_t* work) noexcept nogil
