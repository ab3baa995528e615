# Filters in shared memory: SQL92 programs and long lists of tag codes, for whoever reads messages.
#
# An entry says what kind it is and where its chunk lies in the arena. Places of entries:
#
#   n                    SQL92 filter of subscription entry n (group and topic stand there)
#   capacity + n         tag codes of subscription entry n, when they are too many for the entry
#   2 * capacity + i     an expression that came with a pull: by its hash in one of eight places
#
#   V1  The coordinator alone writes entries and arena.
#   V2  `sequence` as in tables.pxd, T3. The arena bytes of a chunk are used again only after its
#       entry was changed: who copies a chunk and then finds the sequence unchanged has it whole.
#   V3  A version is never given twice in a run: (place, version) names one chunk for ever. A new
#       coordinator takes entries and arena over as they are; a new serving process just reads.
#   V4  `filter_changes` of the head counts, after each change of an entry.
#
# A second reader, such as the dispatcher that sets the bits of queue extension units: keep a
# FilterCache (mqcore/filter/loaded.pxd) of your own; when `filter_changes` differs from what you saw
# last, walk the places 0 to subscription_count - 1 with filter_take, which fills a FilterView too;
# group and topic stand in subscriptions[n]. A message passes when filter_passes says so for its
# properties; its bits are then view.bloom_positions, in a map of view.bloom_bit_count bits. Give
# each back with filter_drop when the next walk is done. Dead ones (dead_ms >= born_ms) count like live ones, as in stock. A
# pull may trust a bit map for messages stored after view.bits_from_ms only: that is a second after
# the entry was shown, time enough to notice it (look once a batch).
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from mqcore.layout cimport FILTER_POSITIONS_MAX, FILTER_REQUEST_COUNT, FILTER_REQUEST_WAYS
from mqcore.shm.segment cimport Shm

cdef struct FilterView:            # a consistent copy
    int32_t place
    int32_t kind                   # FILTER_
    int32_t sequence               # that it was copied under
    int64_t version
    int64_t client_version
    int64_t born_ms
    int64_t dead_ms
    int64_t bits_from_ms
    int64_t chunk_start
    int32_t chunk_size
    int32_t text_size
    int32_t bloom_bit_count
    int32_t bloom_position_count
    int32_t bloom_positions[FILTER_POSITIONS_MAX]

cdef inline int32_t filter_codes_place(const Shm* shm, int32_t subscription) noexcept nogil:
    return shm.head.subscription_capacity + subscription

# False: nothing there, or its writer died while it wrote.
cdef bint filter_look(Shm* shm, int32_t place, FilterView* view) noexcept nogil
# The chunk into `into` (chunk_size bytes); False: the entry has changed since filter_look.
cdef bint filter_copy(Shm* shm, const FilterView* view, uint8_t* into) noexcept nogil
cdef inline int32_t filter_request_place(const Shm* shm, uint64_t hash) noexcept nogil:
    # the first of FILTER_REQUEST_WAYS; the hash's high bits are the well mixed ones
    hash = hash * <uint64_t>0x9E3779B97F4A7C15 >> 32
    return 2 * shm.head.subscription_capacity + FILTER_REQUEST_WAYS * <int32_t>(
        hash % <uint64_t>(FILTER_REQUEST_COUNT // FILTER_REQUEST_WAYS))

# The filter of an expression of a pull (type, a 0 byte, text); False: the coordinator has to make it.
cdef bint filter_of_request(Shm* shm, const uint8_t* text, int32_t length,
                            FilterView* view) noexcept nogil
