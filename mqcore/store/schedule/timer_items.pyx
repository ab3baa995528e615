"""Sorted times, recalls and positions of the timer (timer_items.pxd)."""
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free, qsort, realloc

cdef enum:
    FIRST_ROOM = 64
    POSITIONS_MAX = 1 << 24


cdef bint item_before(const TimerItem* one, const TimerItem* other) noexcept nogil:
    if one.due_ms != other.due_ms:
        return one.due_ms < other.due_ms
    return one.log_position < other.log_position


cdef int compare_items(const void* one, const void* other) noexcept nogil:
    return -1 if item_before(<const TimerItem*>one, <const TimerItem*>other) else 1


cdef bint grow(TimerItems* items, int32_t most) noexcept nogil:
    cdef int32_t room
    cdef void* place
    if items.count < items.room:
        return True
    room = min(max(2 * items.room, <int32_t>FIRST_ROOM), most)
    if items.count >= room:
        return False
    place = realloc(items.items, room * sizeof(TimerItem))
    if place == NULL:
        return False
    items.items = <TimerItem*>place
    items.room = room
    return True


cdef bint items_add(TimerItems* items, const TimerItem* item, int32_t most) noexcept nogil:
    if not grow(items, most):
        return False
    items.items[items.count] = item[0]
    items.count += 1
    return True


cdef void items_free(TimerItems* items) noexcept nogil:
    free(items.items)
    items.items = NULL
    items.count = items.room = 0


cdef void items_sort(TimerItems* items) noexcept nogil:
    if items.count > 1:
        qsort(items.items, items.count, sizeof(TimerItem), compare_items)


cdef inline bint above(const TimerItem* one, const TimerItem* other, bint least) noexcept nogil:
    return item_before(one, other) if least else item_before(other, one)


cdef bint heap_push(TimerItems* heap, const TimerItem* item, bint least, int32_t most) noexcept nogil:
    cdef int32_t at = heap.count, parent
    if not items_add(heap, item, most):
        return False
    while at > 0:
        parent = (at - 1) // 2
        if not above(item, &heap.items[parent], least):
            break
        heap.items[at] = heap.items[parent]
        at = parent
    heap.items[at] = item[0]
    return True


cdef void heap_pop(TimerItems* heap, bint least) noexcept nogil:
    cdef int32_t at = 0, child
    cdef TimerItem last
    heap.count -= 1
    last = heap.items[heap.count]
    while True:
        child = 2 * at + 1
        if child >= heap.count:
            break
        if child + 1 < heap.count and above(&heap.items[child + 1], &heap.items[child], least):
            child += 1
        if not above(&heap.items[child], &last, least):
            break
        heap.items[at] = heap.items[child]
        at = child
    if heap.count:
        heap.items[at] = last


# -- recalls ---------------------------------------------------------------------------------------


cdef void put_recall(Recalls* recalls, const Recall* recall) noexcept nogil:
    cdef int32_t mask = recalls.room - 1, at = <int32_t>(recall.key & <uint64_t>mask)
    while recalls.places[at].marker >= 0:
        at = (at + 1) & mask
    recalls.places[at] = recall[0]


cdef bint resize(Recalls* recalls, int32_t room, int64_t from_second) noexcept nogil:
    """The recalls of seconds from from_second on, in a table of another size."""
    cdef Recalls old = recalls[0]
    cdef int32_t i
    recalls.places = <Recall*>calloc(room, sizeof(Recall))
    if recalls.places == NULL:
        recalls.places = old.places
        return False
    recalls.room = room
    recalls.count = 0
    for i in range(room):
        recalls.places[i].marker = -1
    for i in range(old.room):
        if old.places[i].marker >= 0 and old.places[i].second >= from_second:
            put_recall(recalls, &old.places[i])
            recalls.count += 1
    free(old.places)
    return True


cdef bint recalls_add(Recalls* recalls, uint64_t key, int64_t marker, int64_t second, int32_t most) noexcept nogil:
    cdef Recall recall
    if 2 * (recalls.count + 1) > recalls.room:
        if recalls.count >= most or not resize(
                recalls, max(2 * recalls.room, <int32_t>FIRST_ROOM), 0):
            return False
    recall.key, recall.marker, recall.second = key, marker, second
    put_recall(recalls, &recall)
    recalls.count += 1
    recalls.last_second = max(recalls.last_second, second)
    return True


cdef int32_t recalls_find(const Recalls* recalls, uint64_t key, int32_t at) noexcept nogil:
    cdef int32_t mask = recalls.room - 1
    if recalls.count == 0:
        return -1
    at = <int32_t>(key & <uint64_t>mask) if at < 0 else (at + 1) & mask
    while recalls.places[at].marker >= 0:
        if recalls.places[at].key == key:
            return at
        at = (at + 1) & mask
    return -1


cdef void recalls_expire(Recalls* recalls, int64_t second) noexcept nogil:
    if recalls.count == 0:
        return
    if recalls.last_second < second:
        recalls_free(recalls)
    elif recalls.count > FIRST_ROOM:
        resize(recalls, recalls.room, second)


cdef void recalls_free(Recalls* recalls) noexcept nogil:
    free(recalls.places)
    recalls.places = NULL
    recalls.room = recalls.count = 0
    recalls.last_second = 0


# -- positions -------------------------------------------------------------------------------------


cdef int compare_positions(const void* one, const void* other) noexcept nogil:
    return -1 if (<const int64_t*>one)[0] < (<const int64_t*>other)[0] else 1


cdef bint positions_add(Positions* positions, int64_t position) noexcept nogil:
    cdef int32_t room
    cdef void* place
    if positions.count == positions.room:
        room = max(2 * positions.room, <int32_t>FIRST_ROOM)
        if room > POSITIONS_MAX:
            return False
        place = realloc(positions.at, room * sizeof(int64_t))
        if place == NULL:
            return False
        positions.at = <int64_t*>place
        positions.room = room
    positions.at[positions.count] = position
    positions.count += 1
    return True


cdef void positions_sort(Positions* positions) noexcept nogil:
    if positions.count > 1:
        qsort(positions.at, positions.count, sizeof(int64_t), compare_positions)


cdef bint positions_have(const Positions* positions, int64_t position) noexcept nogil:
    cdef int32_t low = 0, high = positions.count, middle
    while low < high:
        middle = (low + high) // 2
        if positions.at[middle] < position:
            low = middle + 1
        else:
            high = middle
    return low < positions.count and positions.at[low] == position


cdef void positions_free(Positions* positions) noexcept nogil:
    free(positions.at)
    positions.at = NULL
    positions.count = positions.room = 0
