"""What a pull selects by (broker.md 6.1 steps 5 to 6; FilterAPI, ConsumerFilterManager)."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.atomics cimport load_i32_acquire
from mqcore.filter.loaded cimport filter_drop, filter_take
from mqcore.layout cimport (
    FILTER_ALL,
    FILTER_CODES,
    FILTER_PROGRAM,
    GROUP_LENGTH_MAX,
    REQUEST_TEXT_MAX,
    SUBSCRIPTION_ALL,
    SUBSCRIPTION_CODES,
    SUBSCRIPTION_CODE_COUNT_MAX,
    SUBSCRIPTION_OTHER,
    SUBSCRIPTION_TAGS,
    TOPIC_LENGTH_MAX,
)
from mqcore.shm.filters cimport FilterView, filter_codes_place, filter_of_request
from mqcore.shm.tables cimport subscription_find, subscription_names
from mqcore.store.record cimport java_hash
from mqcore.store.topic_names cimport is_retry_topic
from mqcore.text cimport is_literal, put_literal
from mqcore.wire.header cimport Text, text_copy

cdef enum:
    TYPE_LENGTH_MAX = 64


cdef bint read_tags(const uint8_t* text, int32_t length, SubscriptionView* wanted) noexcept nogil:
    """A tag expression `A || B` into codes; False: there are too many, or none."""
    cdef int32_t start = 0, stop, at
    wanted.kind = SUBSCRIPTION_ALL
    wanted.code_count = 0
    if length == 0 or (length == 1 and text[0] == c'*'):
        return True
    at = 0
    while at <= length:
        if at < length and not (text[at] == c'|' and at + 1 < length and text[at + 1] == c'|'):
            at += 1
            continue
        stop = at
        while start < stop and text[start] <= c' ':
            start += 1
        while stop > start and text[stop - 1] <= c' ':
            stop -= 1
        if stop > start:
            if wanted.code_count == SUBSCRIPTION_CODE_COUNT_MAX:
                return False
            wanted.codes[wanted.code_count] = java_hash(text + start, stop - start, 0)
            wanted.code_count += 1
        at += 2
        start = at
    if wanted.code_count == 0:
        return False
    wanted.kind = SUBSCRIPTION_TAGS
    return True


cdef bint take_filter(Wants* w, int32_t place, int32_t kind, int64_t version,
                      Wanted* wanted) noexcept nogil:
    """The filter of a subscription, of that version or a newer one."""
    cdef FilterView view
    cdef LoadedFilter* filter = filter_take(&w.filters, w.shm, place, &view)
    if filter == NULL:
        return False
    if filter.kind != kind or (kind == FILTER_PROGRAM and view.client_version < version):
        filter_drop(&w.filters, filter)
        return False
    wanted.match.filter = filter
    return True


cdef bint take_filter_of(Wants* w, int32_t place, int32_t kind, int64_t version,
                         Wanted* wanted) noexcept nogil:
    """
    The filter of `wanted.view`, unless its place has gone to another pair meanwhile (tables T4).
    """
    if not take_filter(w, place, kind, version, wanted):
        return False
    if load_i32_acquire(&w.shm.subscriptions[wanted.view.number].life) == wanted.view.life:
        return True
    filter_drop(&w.filters, wanted.match.filter)
    wanted.match.filter = NULL
    return False


cdef bint take_request_filter(Wants* w, const uint8_t* text, int32_t length,
                              Wanted* wanted) noexcept nogil:
    """The filter that the coordinator made of an expression that came with a pull."""
    cdef FilterView view
    cdef LoadedFilter* filter = NULL
    if filter_of_request(w.shm, text, length, &view):
        filter = filter_take(&w.filters, w.shm, view.place, &view)
    if filter == NULL:
        return False
    wanted.match.filter = filter
    if filter.kind == FILTER_CODES:
        wanted.match.kind = SUBSCRIPTION_CODES
    elif filter.kind == FILTER_ALL:
        wanted.match.kind = SUBSCRIPTION_ALL
    else:
        wanted.match.kind = SUBSCRIPTION_OTHER
    return True


cdef void begin(Wants* w, const uint8_t* topic, int32_t topic_length, Wanted* wanted) noexcept nogil:
    wanted.match.filter = NULL
    wanted.match.code_count = 0
    wanted.match.codes = wanted.view.codes
    wanted.match.by_origin = w.filter_retry and is_retry_topic(topic, topic_length)
    wanted.view.number = -1


cdef bint wanted_given(Wants* w, const PullRequest* request, Wanted* wanted) noexcept nogil:
    cdef const Text* kind = &request.filter_type
    cdef const Text* expression = &request.filter
    cdef uint8_t text[REQUEST_TEXT_MAX]
    cdef int32_t start, length = 0
    cdef bint tags = kind.length <= 0 or (
        not kind.escaped and is_literal(kind.start, kind.length, "TAG"))
    begin(w, request.topic, request.topic_length, wanted)
    if tags:
        start = <int32_t>(put_literal(text, "TAG") - text)
    else:
        start = text_copy(kind, text, TYPE_LENGTH_MAX)
        if start < 0 or not w.filters_enabled:
            return False
    text[start] = 0
    start += 1
    if expression.length > 0:
        length = text_copy(expression, text + start, REQUEST_TEXT_MAX - start)
        if length < 0:
            return False
    if tags and read_tags(text + start, length, &wanted.view):
        wanted.match.kind = wanted.view.kind
        wanted.match.code_count = wanted.view.code_count
        return True
    return take_request_filter(w, text, start + length, wanted)


cdef bint wanted_known(Wants* w, const uint8_t* group, int32_t group_length, const uint8_t* topic,
                       int32_t topic_length, int64_t version, Wanted* wanted) noexcept nogil:
    cdef SubscriptionView* view = &wanted.view
    begin(w, topic, topic_length, wanted)
    if not subscription_find(w.shm, group, group_length, topic, topic_length, view):
        return False
    if view.version < version:
        return False
    wanted.match.kind = view.kind
    if view.kind == SUBSCRIPTION_OTHER:
        return w.filters_enabled and take_filter_of(w, view.number, FILTER_PROGRAM, version, wanted)
    if view.kind == SUBSCRIPTION_CODES:
        return take_filter_of(w, filter_codes_place(w.shm, view.number), FILTER_CODES, version,
                              wanted)
    wanted.match.code_count = view.code_count
    return True


cdef bint wanted_by(Wants* w, const PullRequest* request, Wanted* wanted) noexcept nogil:
    if request.brings_filter:
        return wanted_given(w, request, wanted)
    return wanted_known(w, request.group, request.group_length, request.topic, request.topic_length,
                        request.version, wanted)


cdef bint wanted_again(Wants* w, int32_t number, int32_t life, Wanted* wanted) noexcept nogil:
    cdef uint8_t[GROUP_LENGTH_MAX] group
    cdef uint8_t[TOPIC_LENGTH_MAX] topic
    cdef int32_t group_length, topic_length
    cdef SubscriptionView now
    # the filter comes after its subscription: it has to be as new
    return (subscription_names(w.shm, number, life, group, &group_length, topic, &topic_length)
            and subscription_find(w.shm, group, group_length, topic, topic_length, &now)
            and wanted_known(w, group, group_length, topic, topic_length, now.version, wanted))
