"""Writes and reads the offsets of multi-dispatched records (multi_dispatch.pxd has the rules)."""
from libc.errno cimport ENOMEM
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memchr, memcpy, memset

from mqcore.atomics cimport load_i64_acquire
from mqcore.clock cimport steady_ms
from mqcore.layout cimport (
    NAME_SEPARATOR,
    PROPERTIES_LENGTH_MAX,
    PROPERTY_SEPARATOR,
    PUT_LIGHT_QUEUES_FULL,
    PUT_MESSAGE_ILLEGAL,
    PUT_OK,
    PUT_QUEUE_TABLE_FULL,
    PUT_UNKNOWN_ERROR,
    SYS_FLAG_COMMIT,
    AppendHead,
    QueueEntry,
)
from mqcore.names cimport is_folder_name
from mqcore.shm.segment cimport Shm
from mqcore.shm.tables cimport QUEUE_REFUSED, name_hash, queue_find, queue_find_or_add, queue_hash
from mqcore.store.record cimport (
    PARSE_RECORD,
    PropertyItem,
    RecordView,
    item_is,
    property_next,
    property_number,
    record_end,
    record_parse,
)
from mqcore.store.topic_names cimport SCHEDULE_TOPIC, is_light_name
from mqcore.text cimport is_digit, literal_length, put_literal, starts_with
from mqcore.wire.digits cimport NUMBER_LENGTH_MAX, put_number

cdef extern from "mq_find.h" nogil:
    const uint8_t* find_part "mq_find"(const uint8_t* text, size_t length, const char* part,
                                       size_t part_length)

cdef extern from *:
    """
    #define MQ_MULTI_PREFIX "INNER_MULTI_"
    #define MQ_MULTI_OFFSETS "INNER_MULTI_QUEUE_OFFSET"
    """
    const char* PREFIX "MQ_MULTI_PREFIX"
    const char* OFFSETS_KEY "MQ_MULTI_OFFSETS"

cdef extern from *:
    """
    #define MQ_OFFSET_MAX ((int64_t)1 << 50)          /* no queue gets as far */
    """
    const int64_t OFFSET_MAX "MQ_OFFSET_MAX"

cdef enum:
    RECOUNT_MS = 1000
    NO_PLACE = -1
    IMPOSSIBLE = -2


cdef int multi_open(MultiDispatch* m, Shm* shm) noexcept nogil:
    memset(m, 0, sizeof(MultiDispatch))
    m.shm = shm
    m.named = <NamedQueue*>malloc(MULTI_NAMES_MAX * sizeof(NamedQueue))
    return ENOMEM if m.named == NULL else 0


cdef void multi_enable(MultiDispatch* m, bint light_queues, int32_t light_count_max) noexcept nogil:
    m.enabled = True
    m.light_queues = light_queues
    m.light_count_max = light_count_max
    count_light(m)


cdef void multi_close(MultiDispatch* m) noexcept nogil:
    free(m.named)
    free(m.request)
    m.named = NULL
    m.request = NULL
    m.capacity = 0


cdef void count_light(MultiDispatch* m) noexcept nogil:
    """Light queues that hold or held a message in their present life."""
    cdef int32_t i, count = 0
    cdef QueueEntry* queue
    for i in range(m.shm.head.queue_count):
        queue = &m.shm.queues[i]
        if queue.next_offset and is_light_name(queue.topic, queue.topic_length):
            count += 1
    m.light_count = count
    m.counted_ms = steady_ms()


# -- names ----------------------------------------------------------------------------------------

cdef inline int32_t queue_id_of(bint light_queues, const uint8_t* name, int32_t length,
                                int32_t own_id) noexcept nogil:
    return 0 if light_queues and is_light_name(name, length) else own_id


cdef int check_name(MultiDispatch* m, const uint8_t* name, int32_t length,
                    int32_t own_id) noexcept nogil:
    """Whether a record may be put into a queue of that name; counts new light ones. PutStatus."""
    cdef int32_t queue_id = queue_id_of(m.light_queues, name, length, own_id)
    cdef int32_t number
    if not is_folder_name(name, length) or is_for_other_messages(name, length):
        return PUT_MESSAGE_ILLEGAL
    if not m.light_queues or not is_light_name(name, length):
        return PUT_OK
    number = queue_find(m.shm, name, length, queue_id,
                        queue_hash(name_hash(name, length, 0), queue_id))
    if number >= 0 and m.shm.queues[number].next_offset:
        return PUT_OK
    m.light_added += 1
    if m.light_count + m.light_added <= m.light_count_max:
        return PUT_OK
    if steady_ms() - m.counted_ms >= RECOUNT_MS:                     # some may be removed by now
        count_light(m)
    return (PUT_OK if m.light_count + m.light_added <= m.light_count_max
            else PUT_LIGHT_QUEUES_FULL)


cdef int name_queue(MultiDispatch* m, const uint8_t* name, int32_t length,
                    int32_t own_id) noexcept nogil:
    """The next place in a queue, which is entered into the table if it is new; PutStatus."""
    cdef int32_t queue_id = queue_id_of(m.light_queues, name, length, own_id)
    cdef int32_t queue = queue_find_or_add(m.shm, name, length, queue_id,
                                           queue_hash(name_hash(name, length, 0), queue_id))
    if queue < 0:
        return PUT_MESSAGE_ILLEGAL if queue == QUEUE_REFUSED else PUT_QUEUE_TABLE_FULL
    m.named[m.named_count].queue = queue
    m.named[m.named_count].offset = m.shm.queues[queue].next_offset
    m.named_count += 1
    return PUT_OK


cdef bint waits_elsewhere(const RecordView* record) noexcept nogil:
    """Topics of messages that come out of them later, or came out of another (M3)."""
    return is_for_other_messages(record.topic, record.topic_length)


cdef bint is_for_other_messages(const uint8_t* name, int32_t length) noexcept nogil:
    """
    Queues whose messages the broker acts upon, or takes for those of one group: no message may name
    them beside its own, or it would be delivered for ever, or settle others' transactions.
    """
    return (starts_with(name, length, SCHEDULE_TOPIC)
            or starts_with(name, length, "RMQ_SYS_") or starts_with(name, length, "rmq_sys_")
            or starts_with(name, length, "%RETRY%") or starts_with(name, length, "%DLQ%"))


cdef bint is_delivery(const RecordView* record) noexcept nogil:
    """
    Whether it was acknowledged before, in the delay topic or the timer's: sends with a delay go only
    there, and only the broker gives what waited for its time a prepared position.
    """
    cdef const uint8_t* at = record.properties
    cdef PropertyItem item
    cdef int64_t level
    while property_next(&at, record.properties + record.properties_length, &item):
        if item_is(&item, "DELAY") and property_number(&item, &level) and level > 0:
            return True
        if record.prepared_position > 0 and item_is(&item, "TIMER_ENQUEUE_MS"):
            return True
    return False


cdef bint is_blank(const PropertyItem* item) noexcept nogil:
    cdef int32_t i
    for i in range(item.value_length):
        if item.value[i] > c' ':
            return False
    return True


# -- writing --------------------------------------------------------------------------------------

cdef int take_names(MultiDispatch* m, const RecordView* record,
                    const PropertyItem* names) noexcept nogil:
    """The queues of a comma list, with the offsets that come next; PutStatus."""
    cdef const uint8_t* end = names.value + names.value_length
    cdef const uint8_t* name
    cdef const uint8_t* stop
    cdef int32_t count = 0, i
    cdef int status = PUT_OK
    while end > names.value and (end - 1)[0] == c',':    # as stock splits: none at the end
        end -= 1
    for i in range(2):                            # all are looked at before one is entered
        name = names.value
        while name < end and status == PUT_OK:
            stop = <const uint8_t*>memchr(name, c',', end - name)
            if stop == NULL:
                stop = end
            if i:
                status = name_queue(m, name, <int32_t>(stop - name), record.queue_id)
            elif count < MULTI_NAMES_MAX:
                status = check_name(m, name, <int32_t>(stop - name), record.queue_id)
                count += 1
            else:
                status = PUT_MESSAGE_ILLEGAL
            name = stop + 1
    m.light_count += m.light_added if status == PUT_OK else 0
    m.light_added = 0
    return status if count else PUT_UNKNOWN_ERROR


cdef uint8_t* put_item(uint8_t* at, const uint8_t* start, const PropertyItem* item) noexcept nogil:
    if at != start:
        at[0] = PROPERTY_SEPARATOR
        at += 1
    memcpy(at, item.key, item.key_length)
    at[item.key_length] = NAME_SEPARATOR
    memcpy(at + item.key_length + 1, item.value, item.value_length)
    return at + item.key_length + 1 + item.value_length


cdef uint8_t* put_offsets(MultiDispatch* m, uint8_t* at, const uint8_t* start) noexcept nogil:
    cdef int32_t i
    if at != start:
        at[0] = PROPERTY_SEPARATOR
        at += 1
    at = put_literal(at, OFFSETS_KEY)
    at[0] = NAME_SEPARATOR
    at += 1
    for i in range(m.named_count):
        if i:
            at[0] = c','
            at += 1
        at += put_number(at, m.named[i].offset)
    return at


cdef int rewrite(MultiDispatch* m, const uint8_t* at, const RecordView* record, bint single,
                 uint8_t* target, int32_t* size) noexcept nogil:
    """One record with the offsets that are its own, and no others; PutStatus."""
    cdef const uint8_t* from_ = record.properties
    cdef const uint8_t* end = record.properties + record.properties_length
    cdef int32_t before = <int32_t>(record.properties - at)
    cdef uint8_t* start = target + before
    cdef uint8_t* to = start
    cdef PropertyItem item, names
    cdef int status
    names.value_length = 0
    while single and property_next(&from_, end, &item):
        if item_is(&item, "INNER_MULTI_DISPATCH"):
            names = item
    if names.value_length and not is_blank(&names) and not waits_elsewhere(record):
        status = take_names(m, record, &names)
        if status != PUT_OK and not is_delivery(record):
            return status
        if status != PUT_OK:                         # M4
            m.named_count = 0
    memcpy(target, at, before)
    from_ = record.properties
    while property_next(&from_, end, &item):
        if item_is(&item, OFFSETS_KEY) or (
                m.named_count and item_is(&item, "WAIT")):
            continue
        to = put_item(to, start, &item)
    if m.named_count:
        to = put_offsets(m, to, start)
    if to - start > PROPERTIES_LENGTH_MAX:
        if m.named_count == 0 or not is_delivery(record):
            return PUT_MESSAGE_ILLEGAL
        m.named_count = 0                            # M4
        return rewrite(m, at, record, False, target, size)
    size[0] = record_end(target, start - 2, <int32_t>(to - start))
    return PUT_OK


cdef bint concerns(const uint8_t* at, int32_t count, int64_t total, const char* part,
                   size_t part_length) noexcept nogil:
    """Whether one of the records has a property with that in it."""
    cdef RecordView record
    cdef int32_t i
    for i in range(count):
        if record_parse(at, total, &record) != PARSE_RECORD:
            return False                             # what it is will be seen by whoever stages it
        if find_part(record.properties, record.properties_length, part, part_length) != NULL:
            return True
        at += record.size
        total -= record.size
    return False


cdef int multi_prepare(MultiDispatch* m, const AppendHead** head,
                       const uint8_t** records) noexcept nogil:
    cdef const AppendHead* given = head[0]
    cdef const uint8_t* at = records[0]
    cdef int64_t left = given.bytes_total, done = sizeof(AppendHead)
    # at most one record grows: by its offsets, or to properties that are too long
    cdef int64_t wanted = (done + left + MULTI_NAMES_MAX * (NUMBER_LENGTH_MAX + 1)
                           + 2 * literal_length(OFFSETS_KEY))
    cdef uint8_t* memory
    cdef RecordView record
    cdef int32_t i, size
    cdef int status
    m.named_count = m.light_added = 0
    if m.enabled:
        if not concerns(at, given.record_count, left, PREFIX, literal_length(PREFIX)):
            return PUT_OK
    elif not concerns(at, given.record_count, left, OFFSETS_KEY, literal_length(OFFSETS_KEY)):
        return PUT_OK
    if wanted > m.capacity:
        memory = <uint8_t*>realloc(m.request, wanted)
        if memory == NULL:
            return PUT_UNKNOWN_ERROR
        m.request = memory
        m.capacity = wanted
    for i in range(given.record_count):
        if record_parse(at, left, &record) != PARSE_RECORD:
            return PUT_MESSAGE_ILLEGAL
        status = rewrite(m, at, &record, m.enabled and given.record_count == 1, m.request + done,
                         &size)
        if status != PUT_OK:
            m.named_count = 0
            return status
        at += record.size
        left -= record.size
        done += size
    memcpy(m.request, given, sizeof(AppendHead))
    (<AppendHead*>m.request).bytes_total = <int32_t>(done - sizeof(AppendHead))
    head[0] = <const AppendHead*>m.request
    records[0] = m.request + sizeof(AppendHead)
    if given.transaction_type not in (0, SYS_FLAG_COMMIT):
        m.named_count = 0                            # it is in no queue: nothing moves
    return PUT_OK


# -- reading --------------------------------------------------------------------------------------

cdef int64_t table_next(void* shm, int32_t queue) noexcept nogil:
    return (<Shm*>shm).queues[queue].next_offset


cdef bint multi_may_name(const RecordView* record) noexcept nogil:
    return find_part(record.properties, record.properties_length, OFFSETS_KEY,
                     literal_length(OFFSETS_KEY)) != NULL


cdef int32_t multi_names(const RecordView* record, PropertyItem* names,
                         PropertyItem* offsets) noexcept nogil:
    cdef const uint8_t* at = record.properties
    cdef const uint8_t* end = record.properties + record.properties_length
    cdef PropertyItem item
    cdef int32_t count = 1, i
    names.value_length = 0
    offsets.value_length = 0
    if not multi_may_name(record):
        return 0
    while property_next(&at, end, &item):
        if item_is(&item, "INNER_MULTI_DISPATCH"):
            names[0] = item
        elif item_is(&item, OFFSETS_KEY):
            offsets[0] = item
    if names.value_length == 0 or offsets.value_length == 0:
        return 0
    for i in range(names.value_length):
        count += names.value[i] == c','
    return min(count, <int32_t>MULTI_NAMES_MAX)


cdef inline int32_t find(Shm* shm, const uint8_t* name, int32_t length,
                         int32_t queue_id) noexcept nogil:
    return queue_find(shm, name, length, queue_id, queue_hash(name_hash(name, length, 0), queue_id))


cdef inline bint comes_next(const MultiReader* reader, int32_t queue, int64_t offset) noexcept nogil:
    """Of a queue without entries in a log that has lost its beginning nobody knows the first."""
    cdef int64_t expected = reader.next_offset(reader.context, queue)
    return offset == expected or (
        expected == 0 and load_i64_acquire(&reader.shm.log.first) > 0)


cdef int32_t place_of(const MultiReader* reader, const RecordView* record, const uint8_t* name,
                      int32_t length, int64_t offset) noexcept nogil:
    """The number of the queue where a record has an offset; NO_PLACE, or IMPOSSIBLE (M5)."""
    cdef bint light = is_light_name(name, length)
    cdef int32_t queue_id = queue_id_of(reader.light_queues, name, length, record.queue_id)
    cdef int32_t queue = find(reader.shm, name, length, queue_id), other = NO_PLACE
    if not is_folder_name(name, length) or is_for_other_messages(name, length):
        return IMPOSSIBLE
    if not reader.enabled and not light:
        return NO_PLACE
    if queue < 0 and light:                              # M6: as it was when the record was stored
        other = find(reader.shm, name, length, 0 if queue_id else record.queue_id)
    if other >= 0 and (comes_next(reader, other, offset)
                       or offset < reader.next_offset(reader.context, other)):
        queue = other
    if queue < 0:
        if not reader.enabled:
            return NO_PLACE
        if offset > 0 and load_i64_acquire(&reader.shm.log.first) == 0:
            return IMPOSSIBLE
        if not reader.adds:
            return NO_PLACE
        queue = queue_find_or_add(reader.shm, name, length, queue_id,
                                  queue_hash(name_hash(name, length, 0), queue_id))
        if queue < 0:
            return IMPOSSIBLE if queue == QUEUE_REFUSED else NO_PLACE
    if record.log_position < load_i64_acquire(&reader.shm.queues[queue].restart_position):
        return NO_PLACE
    if comes_next(reader, queue, offset) or offset < reader.next_offset(reader.context, queue):
        return queue
    return IMPOSSIBLE


cdef int32_t multi_queues(const MultiReader* reader, const RecordView* record, NamedQueue* named,
                          bint* impossible) noexcept nogil:
    cdef PropertyItem names, offsets
    cdef const uint8_t* name
    cdef const uint8_t* names_end
    cdef const uint8_t* digits
    cdef const uint8_t* digits_end
    cdef const uint8_t* stop
    cdef int32_t queue, count = 0
    cdef int64_t offset
    if multi_names(record, &names, &offsets) == 0:
        return 0
    name = names.value
    names_end = name + names.value_length
    digits = offsets.value
    digits_end = digits + offsets.value_length
    while name < names_end and digits < digits_end and count < MULTI_NAMES_MAX:
        stop = <const uint8_t*>memchr(name, c',', names_end - name)
        if stop == NULL:
            stop = names_end
        offset = 0
        while digits < digits_end and is_digit(digits[0]) and offset <= OFFSET_MAX:
            offset = offset * 10 + digits[0] - c'0'
            digits += 1
        if offset > OFFSET_MAX or (digits < digits_end and digits[0] != c','):
            impossible[0] = True       # not as the writer makes lists: nothing behind it either
            break
        digits += 1
        queue = place_of(reader, record, name, <int32_t>(stop - name), offset)
        if queue >= 0:
            named[count].queue = queue
            named[count].offset = offset
            count += 1
        elif queue == IMPOSSIBLE:
            impossible[0] = True
        name = stop + 1
    return count
