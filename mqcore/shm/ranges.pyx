"""Finds the parts of the segment that grow."""
from libc.stdint cimport int32_t, int64_t

from mqcore.layout cimport (
    LIMIT_PLACES,
    FilterEntry,
    GroupEntry,
    LimitPlace,
    PullCount,
    PullCountsHead,
    QueueEntry,
    SubscriptionEntry,
    TopicEntry,
    Trace,
)


cdef list growing(const ShmHead* head):
    cdef int i
    cdef int64_t start
    ranges = [
        (head.topics_start, head.topic_capacity * <int64_t>sizeof(TopicEntry)),
        (head.groups_start, head.group_capacity * <int64_t>sizeof(GroupEntry)),
        (head.subscriptions_start,
         head.subscription_capacity * <int64_t>sizeof(SubscriptionEntry)),
        (head.queues_start, head.queue_capacity * <int64_t>sizeof(QueueEntry)),
        (head.filters_start, 2 * <int64_t>head.subscription_capacity * <int64_t>sizeof(FilterEntry)),
        (head.filter_arena_start, head.filter_arena_size),
    ]
    for i in range(head.serving_count):
        start = (head.pull_counts_start + i * head.pull_counts_size + <int64_t>sizeof(PullCountsHead)
                 + 2 * <int64_t>head.pull_count_capacity * <int64_t>sizeof(int32_t))
        ranges.append((start, head.pull_count_capacity * <int64_t>sizeof(PullCount)))
    ranges.append((head.limits_start, LIMIT_PLACES * <int64_t>sizeof(LimitPlace)))
    ranges.append((head.trace_start + <int64_t>sizeof(Trace), trace_rings_size(head.serving_count)))
    ranges.append((head.access.start, head.access.capacity))
    return [(start, start + size) for start, size in ranges]


cdef list not_growing(const ShmHead* head):
    ranges, at = [], 0
    for start, end in growing(head):
        if start > at:
            ranges.append((at, start))
        at = end
    if head.total_size > at:
        ranges.append((at, head.total_size))
    return ranges
