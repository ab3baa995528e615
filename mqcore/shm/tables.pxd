# Topics, groups, subscriptions and queues in shared memory.
#
# Each table is an array of entries in order of creation, and an index: open addressing with linear
# probing, places of i32 holding entry number + 1, 0 = free. Entries are never moved or taken out of
# the index; a removed topic keeps its place with live = 0 and is revived by name.
#
#   T1  One process writes a table: the coordinator topics, groups and subscriptions; the writer queues.
#   T2  An entry is complete before its index place is stored (release).
#   T3  A change of an entry makes `sequence` odd, writes, and makes it even again; a reader that saw
#       an odd or a changed sequence reads again, some thousand times, and then takes the entry for
#       absent: its writer died. Queues have no sequence: their words are single.
#   T4  When the table of subscriptions is full, the place of a pair that is gone, and has no filter,
#       goes to another one: `life` is raised, the key is changed under `sequence`. Who keeps a number
#       keeps the life beside it. A search beside that may miss a pair: then the coordinator is asked.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from mqcore.atomics cimport acquire_fence, cpu_pause, load_i32_acquire
from mqcore.layout cimport SUBSCRIPTION_CODE_COUNT_MAX
from mqcore.shm.segment cimport Shm


cdef enum:                         # of a topic's flags, beside layout's
    TOPIC_KIND_UNIT = 0x100        # the only MessageType that clients of gRPC may send ...
    TOPIC_KIND_MASK = 0xF00        # ... 0: all

cdef struct TopicView:             # a consistent copy
    int32_t read_queues
    int32_t write_queues
    int32_t perm
    int32_t flags

cdef struct SubscriptionView:
    int32_t number                 # of its entry, and of its filter (filters.pxd) ...
    int32_t life                   # ... as long as the entry has this one (T4)
    int32_t sequence               # that it was copied under: another one now says that it changed
    int64_t version
    int32_t kind
    int32_t code_count
    int32_t codes[SUBSCRIPTION_CODE_COUNT_MAX]

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    /* Names are short: eight bytes a step; not for untrusted tables without a bound on probing. */
    static inline uint64_t mq_name_hash(const uint8_t *name, int32_t length, uint64_t seed) {
      uint64_t hash = seed ^ (0x9E3779B97F4A7C15ull * (uint64_t)(length + 1)), word;
      while (length >= 8) {
        memcpy(&word, name, 8);
        hash = (hash ^ word) * 0xff51afd7ed558ccdull;
        hash ^= hash >> 32;
        name += 8;
        length -= 8;
      }
      word = 0;
      memcpy(&word, name, (size_t)length);
      hash = (hash ^ word) * 0xc4ceb9fe1a85ec53ull;
      return hash ^ (hash >> 29);
    }
    """
    uint64_t name_hash "mq_name_hash"(const uint8_t* name, int32_t length, uint64_t seed) noexcept nogil


cdef inline uint64_t queue_hash(uint64_t topic_hash, int32_t queue_id) noexcept nogil:
    cdef uint64_t hash = (topic_hash + <uint64_t>queue_id) * <uint64_t>0x9E3779B97F4A7C15
    return hash ^ (hash >> 32)


# -- a consistent copy of an entry with a `sequence` (T3), here and in filters.pyx:
#        look.count = 0
#        while look_begin(&look, &entry.sequence):
#            ... copy what is needed ...
#            if look_holds(&look, &entry.sequence):
#                return ...
#        ... its writer died in between ...
cdef enum:
    LOOKS_MAX = 10000                  # at an entry that is being written; some hundred microseconds

cdef struct Look:
    int32_t count
    int32_t sequence                   # that the copy is made under

cdef inline bint look_begin(Look* look, const int32_t* sequence) noexcept nogil:
    while look.count < LOOKS_MAX:
        look.count += 1
        look.sequence = load_i32_acquire(sequence)
        if not look.sequence & 1:
            return True
        cpu_pause()
    return False

cdef inline bint look_holds(const Look* look, const int32_t* sequence) noexcept nogil:
    acquire_fence()
    return load_i32_acquire(sequence) == look.sequence


cdef bint topic_find(Shm* shm, const uint8_t* name, int32_t length, uint64_t hash,
                     TopicView* view) noexcept nogil
cdef int32_t group_find(Shm* shm, const uint8_t* name, int32_t length) noexcept nogil  # flags, or -1
# Entry number, or -1; it keeps its number when it is gone (live = 0).
cdef int32_t group_number(Shm* shm, const uint8_t* name, int32_t length, uint64_t hash) noexcept nogil
cdef int32_t subscription_number(Shm* shm, const uint8_t* group, int32_t group_length,
                                 const uint8_t* topic, int32_t topic_length,
                                 uint64_t hash) noexcept nogil
cdef int raise_full(str why) except -1       # a TableFullError
# The entry number of a pair, given one that is not live if need be. Raises TableFullError, ValueError.
cdef int32_t subscription_place(Shm* shm, str group, str topic) except -1
cdef int32_t subscription_known(Shm* shm, str group, str topic) except -2    # -1: it has none
# Group and topic of an entry (GROUP_LENGTH_MAX, TOPIC_LENGTH_MAX bytes) in that life; False: it is over.
cdef bint subscription_names(const Shm* shm, int32_t number, int32_t life, uint8_t* group,
                             int32_t* group_length, uint8_t* topic,
                             int32_t* topic_length) noexcept nogil
cdef bint subscription_find(Shm* shm, const uint8_t* group, int32_t group_length,
                            const uint8_t* topic, int32_t topic_length,
                            SubscriptionView* view) noexcept nogil
cdef int32_t queue_find(Shm* shm, const uint8_t* topic, int32_t length, int32_t queue_id,
                        uint64_t hash) noexcept nogil                       # entry number, or -1
# Writer only. QUEUES_FULL; QUEUE_REFUSED: no queue may be called so, or have that number (names.pxd, O3)
cdef enum:
    QUEUES_FULL = -1
    QUEUE_REFUSED = -2
cdef int32_t queue_find_or_add(Shm* shm, const uint8_t* topic, int32_t length, int32_t queue_id,
                               uint64_t hash) noexcept nogil
