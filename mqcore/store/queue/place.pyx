"""Which queue a message may go to (place.pxd has the rule)."""
from libc.stdint cimport int32_t, uint8_t, uint64_t

from mqcore.layout cimport AppendHead
from mqcore.names cimport is_folder_name, is_queue_place
from mqcore.shm.segment cimport Segment, Shm
from mqcore.shm.tables cimport (
    QUEUE_REFUSED,
    TopicView,
    name_hash,
    queue_find,
    queue_find_or_add,
    queue_hash,
    topic_find,
)
from mqcore.store.topic_names cimport is_schedule_topic


cdef bint queue_may_open(Shm* shm, const uint8_t* topic, int32_t length,
                         int32_t queue_id) noexcept nogil:
    cdef TopicView view
    if not is_queue_place(topic, length, queue_id):
        return False
    if queue_id == 0 or is_schedule_topic(topic, length):       # its queues are the delay levels
        return True
    if not topic_find(shm, topic, length, name_hash(topic, length, 0), &view):
        return True                    # it is gone, or is none of the topic table
    return queue_id < max(view.read_queues, view.write_queues)


cdef int32_t queue_of(Shm* shm, const AppendHead* head, const uint8_t* topic) noexcept nogil:
    cdef int32_t queue = queue_find(shm, topic, head.topic_length, head.queue_id, head.queue_hash)
    if queue >= 0:
        return queue
    if not queue_may_open(shm, topic, head.topic_length, head.queue_id):
        return QUEUE_REFUSED
    return queue_find_or_add(shm, topic, head.topic_length, head.queue_id, head.queue_hash)


cdef int32_t queue_id_of_late(Shm* shm, const uint8_t* topic, int32_t length,
                              int32_t queue_id) noexcept nogil:
    cdef uint64_t hash = name_hash(topic, length, 0)
    cdef TopicView view
    if not is_folder_name(topic, length) or queue_id < 0:
        return -1
    if queue_id == 0 or queue_find(shm, topic, length, queue_id,
                                   queue_hash(hash, queue_id)) >= 0:
        return queue_id
    if topic_find(shm, topic, length, hash, &view) and (
            queue_id >= max(view.read_queues, view.write_queues)):
        queue_id %= max(view.write_queues, 1)
    return queue_id if is_queue_place(topic, length, queue_id) else -1


def may_open(Segment segment not None, bytes topic, int32_t queue_id) -> bool:
    """Whether a message may open a queue of that topic and number; for tests."""
    return queue_may_open(&segment.shm, <const uint8_t*><const char*>topic, <int32_t>len(topic),
                          queue_id)


def late_queue_id(Segment segment not None, bytes topic, int32_t queue_id) -> int:
    """Where a message goes that waited elsewhere, -1: nowhere; for tests."""
    return queue_id_of_late(&segment.shm, <const uint8_t*><const char*>topic, <int32_t>len(topic),
                            queue_id)
