# What a pull selects by: the subscription that it brings, or that of its group's heartbeats.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.filter.loaded cimport FilterCache, LoadedFilter
from mqcore.net.requests cimport PullRequest
from mqcore.shm.segment cimport Shm
from mqcore.shm.tables cimport SubscriptionView

cdef struct Wants:
    Shm* shm
    FilterCache filters
    bint filters_enabled               # enablePropertyFilter
    bint filter_retry                  # filterSupportRetry

cdef struct Match:                     # which messages a pull wants
    int32_t kind                       # SUBSCRIPTION_
    int32_t code_count
    int32_t* codes                     # SUBSCRIPTION_TAGS
    LoadedFilter* filter               # SUBSCRIPTION_CODES, SUBSCRIPTION_OTHER: taken
    bint by_origin                     # of a retry topic: the filter of the topic they came from, too

cdef struct Wanted:
    Match match
    SubscriptionView view             # whose codes match.codes are; number -1: the pull brought it

# Both fill `wanted`, whose match.filter has to be given back; False: the coordinator has to look at it.
cdef bint wanted_by(Wants* w, const PullRequest* request, Wanted* wanted) noexcept nogil
# What subscription `number` says now, in that life (tables T4).
cdef bint wanted_again(Wants* w, int32_t number, int32_t life, Wanted* wanted) noexcept nogil
