"""The tables of tables.pxd; their writer for the coordinator; a look at queues for Python parts."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy

from mqcore.atomics cimport (
    load_i32_acquire,
    load_i64_acquire,
    release_fence,
    store_i32_release,
)
from mqcore.invariants cimport invariant
from mqcore.layout cimport (
    FILTER_NONE,
    GROUP_CONSUME_ENABLED,
    GROUP_LENGTH_MAX,
    GROUP_PULL_ASKS,
    SUBSCRIPTION_ALL,
    SUBSCRIPTION_CODES,
    SUBSCRIPTION_CODE_COUNT_MAX,
    SUBSCRIPTION_OTHER,
    SUBSCRIPTION_TAGS,
    TOPIC_LENGTH_MAX,
    TOPIC_MULTI_TAG,
    TOPIC_SEND_ASKS,
    FilterEntry,
    GroupEntry,
    QueueEntry,
    SubscriptionEntry,
    TopicEntry,
)
from mqcore.names cimport is_queue_place
from mqcore.shm.reserve cimport shm_grow
from mqcore.shm.segment cimport Segment, Shm


class TableFullError(RuntimeError):
    """A table in shared memory has no place left; names the setting that gives it more."""


cdef int raise_full(str why) except -1:
    raise TableFullError(why)


cdef struct Key:                   # what an entry is found by; which parts count, its table knows
    uint64_t hash
    const uint8_t* name            # of a topic or group; a subscription's group, a queue's topic
    int32_t name_length
    const uint8_t* topic           # of a subscription
    int32_t topic_length
    int32_t queue_id

ctypedef bint (*HasKey)(const Shm* shm, int32_t number, const Key* key) noexcept nogil


cdef inline int32_t probe(const Shm* shm, const int32_t* index, int32_t capacity, const Key* key,
                          HasKey has_key) noexcept nogil:
    """The number of the entry that has the key, or -1. One loop for each table once it is inlined."""
    cdef int32_t mask = capacity * 2 - 1
    cdef int32_t at = <int32_t>(key.hash & <uint64_t>mask)
    cdef int32_t number
    while True:
        number = load_i32_acquire(&index[at])                            # T2
        if number == 0 or has_key(shm, number - 1, key):
            return number - 1
        at = (at + 1) & mask


cdef void index_add(int32_t* index, int32_t capacity, uint64_t hash, int32_t number) noexcept nogil:
    cdef int32_t mask = capacity * 2 - 1
    cdef int32_t at = <int32_t>(hash & <uint64_t>mask)
    invariant("an index has free places", number < capacity)
    while index[at] != 0:
        at = (at + 1) & mask
    store_i32_release(&index[at], number + 1)                            # T2


cdef inline bint topic_has(const Shm* shm, int32_t number, const Key* key) noexcept nogil:
    cdef const TopicEntry* entry = &shm.topics[number]
    return (entry.hash == key.hash and entry.name_length == key.name_length
            and memcmp(entry.name, key.name, key.name_length) == 0)


cdef inline bint group_has(const Shm* shm, int32_t number, const Key* key) noexcept nogil:
    cdef const GroupEntry* entry = &shm.groups[number]
    return (entry.hash == key.hash and entry.name_length == key.name_length
            and memcmp(entry.name, key.name, key.name_length) == 0)


cdef inline bint subscription_has(const Shm* shm, int32_t number, const Key* key) noexcept nogil:
    cdef const SubscriptionEntry* entry = &shm.subscriptions[number]
    return (entry.hash == key.hash and entry.group_length == key.name_length
            and entry.topic_length == key.topic_length
            and memcmp(entry.group, key.name, key.name_length) == 0
            and memcmp(entry.topic, key.topic, key.topic_length) == 0)


cdef inline bint queue_has(const Shm* shm, int32_t number, const Key* key) noexcept nogil:
    cdef const QueueEntry* entry = &shm.queues[number]
    return (entry.hash == key.hash and entry.queue_id == key.queue_id
            and entry.topic_length == key.name_length
            and memcmp(entry.topic, key.name, key.name_length) == 0)


cdef int32_t topic_number(const Shm* shm, const Key* key) noexcept nogil:
    return probe(shm, shm.topic_index, shm.head.topic_capacity, key, topic_has)


cdef int32_t group_at(const Shm* shm, const Key* key) noexcept nogil:
    return probe(shm, shm.group_index, shm.head.group_capacity, key, group_has)


cdef int32_t subscription_at(const Shm* shm, const Key* key) noexcept nogil:
    return probe(shm, shm.subscription_index, shm.head.subscription_capacity, key,
                 subscription_has)


cdef inline Key name_key(const uint8_t* name, int32_t length, uint64_t hash) noexcept nogil:
    return Key(hash=hash, name=name, name_length=length, topic=NULL, topic_length=0, queue_id=0)


cdef inline Key pair_key(const uint8_t* group, int32_t group_length, const uint8_t* topic,
                         int32_t topic_length, uint64_t hash) noexcept nogil:
    return Key(hash=hash, name=group, name_length=group_length, topic=topic,
               topic_length=topic_length, queue_id=0)


cdef bint topic_find(Shm* shm, const uint8_t* name, int32_t length, uint64_t hash,
                     TopicView* view) noexcept nogil:
    cdef Key key = name_key(name, length, hash)
    cdef int32_t number = topic_number(shm, &key)
    cdef TopicEntry* entry
    cdef int32_t live
    cdef Look look
    if number < 0:
        return False
    entry = &shm.topics[number]
    look.count = 0
    while look_begin(&look, &entry.sequence):                            # T3
        live = entry.live
        view.read_queues = entry.read_queues
        view.write_queues = entry.write_queues
        view.perm = entry.perm
        view.flags = entry.flags
        if look_holds(&look, &entry.sequence):
            return live
    return False                       # its writer died in between: ask the coordinator


cdef int32_t group_number(Shm* shm, const uint8_t* name, int32_t length, uint64_t hash) noexcept nogil:
    cdef Key key = name_key(name, length, hash)
    return group_at(shm, &key)


cdef int32_t group_find(Shm* shm, const uint8_t* name, int32_t length) noexcept nogil:
    cdef int32_t number = group_number(shm, name, length, name_hash(name, length, 0))
    if number < 0 or not load_i32_acquire(&shm.groups[number].live):
        return -1
    return load_i32_acquire(&shm.groups[number].flags)


cdef int32_t subscription_number(Shm* shm, const uint8_t* group, int32_t group_length,
                                 const uint8_t* topic, int32_t topic_length,
                                 uint64_t hash) noexcept nogil:
    cdef Key key = pair_key(group, group_length, topic, topic_length, hash)
    return subscription_at(shm, &key)


cdef bint subscription_find(Shm* shm, const uint8_t* group, int32_t group_length,
                            const uint8_t* topic, int32_t topic_length,
                            SubscriptionView* view) noexcept nogil:
    cdef uint64_t hash = name_hash(topic, topic_length, name_hash(group, group_length, 0))
    cdef Key key = pair_key(group, group_length, topic, topic_length, hash)
    cdef int32_t number = subscription_at(shm, &key)
    cdef SubscriptionEntry* entry
    cdef int32_t live
    cdef Look look
    if number < 0:
        return False
    entry = &shm.subscriptions[number]
    look.count = 0
    while look_begin(&look, &entry.sequence):                            # T3
        live = entry.live and subscription_has(shm, number, &key)        # T4
        view.number = number
        view.life = entry.life
        view.sequence = look.sequence
        view.version = entry.version
        view.kind = entry.kind
        view.code_count = min(max(entry.code_count, 0), SUBSCRIPTION_CODE_COUNT_MAX)
        memcpy(view.codes, entry.codes, view.code_count * sizeof(int32_t))
        if look_holds(&look, &entry.sequence):
            return live
    return False                       # its writer died in between: ask the coordinator


cdef bint subscription_names(const Shm* shm, int32_t number, int32_t life, uint8_t* group,
                             int32_t* group_length, uint8_t* topic,
                             int32_t* topic_length) noexcept nogil:
    cdef const SubscriptionEntry* entry = &shm.subscriptions[number]
    cdef Look look
    look.count = 0
    while look_begin(&look, &entry.sequence):                            # T3
        if entry.life != life:
            return False
        group_length[0] = entry.group_length
        topic_length[0] = min(<int32_t>entry.topic_length, <int32_t>TOPIC_LENGTH_MAX)
        memcpy(group, entry.group, group_length[0])
        memcpy(topic, entry.topic, topic_length[0])
        if look_holds(&look, &entry.sequence):
            return True
    return False


cdef int32_t queue_find(Shm* shm, const uint8_t* topic, int32_t length, int32_t queue_id,
                        uint64_t hash) noexcept nogil:
    cdef Key key = name_key(topic, length, hash)
    key.queue_id = queue_id
    return probe(shm, shm.queue_index, shm.head.queue_capacity, &key, queue_has)


cdef int32_t queue_find_or_add(Shm* shm, const uint8_t* topic, int32_t length, int32_t queue_id,
                               uint64_t hash) noexcept nogil:
    cdef int32_t number = queue_find(shm, topic, length, queue_id, hash)
    cdef QueueEntry* entry
    if number >= 0:
        return number
    if not is_queue_place(topic, length, queue_id):
        return QUEUE_REFUSED
    number = shm.head.queue_count
    if (number >= shm.head.queue_capacity
            or not shm_grow(shm, shm.queues, sizeof(QueueEntry), number)):
        return QUEUES_FULL
    entry = &shm.queues[number]
    entry.hash = hash
    entry.queue_id = queue_id
    entry.topic_length = <uint8_t>length
    memcpy(entry.topic, topic, length)
    entry.next_offset = 0
    store_i32_release(&shm.head.queue_count, number + 1)
    index_add(shm.queue_index, shm.head.queue_capacity, hash, number)                    # T2
    return number


cdef bytes name_bytes(str what, str name, int length_max):
    raw = name.encode()
    if not 1 <= len(raw) <= length_max:
        raise ValueError(f"{what}: expected 1 to {length_max} bytes, got {len(raw)}")
    return raw


cdef void open_entry(int32_t* sequence) noexcept nogil:
    store_i32_release(sequence, sequence[0] | 1)     # a writer that died in between left it odd
    release_fence()


cdef void close_entry(int32_t* sequence) noexcept nogil:
    invariant("T3", sequence[0] & 1)
    store_i32_release(sequence, (sequence[0] | 1) + 1)


cdef Key key_of(bytes name):
    """Of a topic or group; points into `name`."""
    cdef const uint8_t* text = name
    cdef int32_t length = <int32_t>len(name)
    return name_key(text, length, name_hash(text, length, 0))


cdef Key key_of_pair(bytes group, bytes topic):
    """Of a subscription; points into both."""
    cdef const uint8_t* g = group
    cdef const uint8_t* t = topic
    cdef int32_t glen = <int32_t>len(group), tlen = <int32_t>len(topic)
    return pair_key(g, glen, t, tlen, name_hash(t, tlen, name_hash(g, glen, 0)))


cdef int32_t free_place(int32_t count, int32_t capacity, str what) except -1:
    """The number that the next entry of a table gets. Raises TableFullError."""
    if count >= capacity:
        raise TableFullError(
            f"no room for another {what}: raise processes.{what}_count_max")
    return count


cdef int32_t granted(bint room, int32_t number, str what) except -1:
    """`number`, if its entry has memory. Raises TableFullError."""
    if not room:
        raise TableFullError(f"no room for another {what}: /dev/shm is full")
    return number


cdef void name_entry(Shm* shm, int32_t number, const Key* key) noexcept nogil:
    """Give a subscription's place to a pair."""
    cdef SubscriptionEntry* entry = &shm.subscriptions[number]
    open_entry(&entry.sequence)
    entry.life += 1
    entry.live = 0
    entry.hash = key.hash
    entry.group_length = <uint8_t>key.name_length
    entry.topic_length = <uint8_t>key.topic_length
    memcpy(entry.group, key.name, key.name_length)
    memcpy(entry.topic, key.topic, key.topic_length)
    close_entry(&entry.sequence)


cdef void index_forget(Shm* shm, int32_t number) noexcept nogil:
    """
    Take a subscription's number out of the index; what lies behind it moves up. Each number is
    stored at its new place before it goes from the old one: a writer that dies in between leaves one
    twice, which does no harm.
    """
    cdef int32_t* index = shm.subscription_index
    cdef int32_t mask = shm.head.subscription_capacity * 2 - 1
    cdef int32_t hole = <int32_t>(shm.subscriptions[number].hash & <uint64_t>mask)
    cdef int32_t at, home
    while index[hole] != number + 1:
        if index[hole] == 0:
            return                     # its writer died before it was there
        hole = (hole + 1) & mask
    at = (hole + 1) & mask
    while index[at] != 0:
        home = <int32_t>(shm.subscriptions[index[at] - 1].hash & <uint64_t>mask)
        if (at - home) & mask >= (at - hole) & mask:
            store_i32_release(&index[hole], index[at])
            hole = at
        at = (at + 1) & mask
    store_i32_release(&index[hole], 0)


cdef int32_t place_that_is_free(Shm* shm) noexcept nogil:
    """The number of a pair that is gone and has no filter (T4), now in no index; -1: there is none."""
    cdef int32_t count = shm.head.subscription_count
    cdef int32_t i, number
    for i in range(count):
        number = shm.head.subscription_looked % count
        shm.head.subscription_looked = number + 1
        if (shm.subscriptions[number].live == 0 and shm.filters[number].kind == FILTER_NONE
                and shm.filters[shm.head.subscription_capacity + number].kind == FILTER_NONE):
            index_forget(shm, number)
            return number
    return -1


cdef int32_t subscription_known(Shm* shm, str group, str topic) except -2:
    raw_group = name_bytes("group", group, GROUP_LENGTH_MAX)
    raw_topic = name_bytes("topic", topic, TOPIC_LENGTH_MAX)
    cdef Key key = key_of_pair(raw_group, raw_topic)
    return subscription_at(shm, &key)


cdef int32_t subscription_place(Shm* shm, str group, str topic) except -1:
    raw_group = name_bytes("group", group, GROUP_LENGTH_MAX)
    raw_topic = name_bytes("topic", topic, TOPIC_LENGTH_MAX)
    cdef Key key = key_of_pair(raw_group, raw_topic)
    cdef int32_t number = subscription_at(shm, &key)
    cdef int32_t next = shm.head.subscription_count
    if number >= 0:
        return number
    if next < shm.head.subscription_capacity and (
            shm_grow(shm, shm.subscriptions, sizeof(SubscriptionEntry), next)
            and shm_grow(shm, shm.filters, sizeof(FilterEntry), next)
            and shm_grow(shm, shm.filters + shm.head.subscription_capacity, sizeof(FilterEntry),
                         next)):
        number = next
    else:
        number = place_that_is_free(shm)
    if number < 0:
        free_place(next, shm.head.subscription_capacity, "subscription")
        granted(False, next, "subscription")
    name_entry(shm, number, &key)
    if number == next:
        shm.head.subscription_count = number + 1
    index_add(shm.subscription_index, shm.head.subscription_capacity, key.hash, number)  # T2
    return number


cdef class TableWriter:
    """The coordinator's pen for topics, groups and subscriptions. All calls are idempotent (T1)."""
    cdef Segment segment
    cdef Shm* shm

    def __init__(self, Segment segment):
        self.segment = segment
        self.shm = &segment.shm

    def publish_topic(self, str name, *, int read_queues, int write_queues, int perm,
                      bint multi_tag=False, bint send_asks=False, int kind=0) -> None:
        """Show a topic. send_asks: each send is decided by the coordinator; kind: TOPIC_KIND_MASK's."""
        raw = name_bytes("topic", name, TOPIC_LENGTH_MAX)
        cdef Key key = key_of(raw)
        cdef int32_t number = topic_number(self.shm, &key)
        cdef bint fresh = number < 0
        if fresh:
            number = free_place(self.shm.head.topic_count, self.shm.head.topic_capacity,
                                "topic")
            granted(shm_grow(self.shm, self.shm.topics, sizeof(TopicEntry), number), number,
                    "topic")
        cdef TopicEntry* entry = &self.shm.topics[number]
        open_entry(&entry.sequence)
        entry.hash = key.hash
        entry.name_length = <uint8_t>key.name_length
        memcpy(entry.name, key.name, key.name_length)
        entry.read_queues = read_queues
        entry.write_queues = write_queues
        entry.perm = perm
        entry.flags = (TOPIC_MULTI_TAG * multi_tag | TOPIC_SEND_ASKS * send_asks
                       | kind * TOPIC_KIND_UNIT)
        entry.live = 1
        close_entry(&entry.sequence)
        if fresh:
            self.shm.head.topic_count = number + 1
            index_add(self.shm.topic_index, self.shm.head.topic_capacity, key.hash, number)

    def remove_topic(self, str name) -> None:
        """Hide a topic: serving processes ask the coordinator about it from now on."""
        raw = name_bytes("topic", name, TOPIC_LENGTH_MAX)
        cdef Key key = key_of(raw)
        cdef int32_t number = topic_number(self.shm, &key)
        if number >= 0:
            open_entry(&self.shm.topics[number].sequence)
            self.shm.topics[number].live = 0
            close_entry(&self.shm.topics[number].sequence)

    def publish_group(self, str name, *, bint consume_enabled=True, bint pull_asks=False,
                      int broker_id=0, int broker_id_when_slow=1) -> None:
        """
        Show a subscription group. pull_asks: each of its pulls is decided by the coordinator.
        broker_id, broker_id_when_slow: where pulls tell its consumers to read.
        """
        raw = name_bytes("group", name, GROUP_LENGTH_MAX)
        cdef Key key = key_of(raw)
        cdef int32_t number = group_at(self.shm, &key)
        cdef bint fresh = number < 0
        if fresh:
            number = free_place(self.shm.head.group_count, self.shm.head.group_capacity,
                                "group")
            granted(shm_grow(self.shm, self.shm.groups, sizeof(GroupEntry), number), number,
                    "group")
        cdef GroupEntry* entry = &self.shm.groups[number]
        entry.hash = key.hash
        entry.name_length = <uint8_t>key.name_length
        memcpy(entry.name, key.name, key.name_length)
        store_i32_release(&entry.broker_id, broker_id)
        store_i32_release(&entry.broker_id_when_slow, broker_id_when_slow)
        store_i32_release(&entry.flags, (GROUP_CONSUME_ENABLED if consume_enabled else 0)
                          | (GROUP_PULL_ASKS if pull_asks else 0))
        store_i32_release(&entry.live, 1)
        if fresh:
            self.shm.head.group_count = number + 1
            index_add(self.shm.group_index, self.shm.head.group_capacity, key.hash, number)

    def remove_group(self, str name) -> None:
        """Hide a group; its pulls go to the coordinator from now on."""
        raw = name_bytes("group", name, GROUP_LENGTH_MAX)
        cdef Key key = key_of(raw)
        cdef int32_t number = group_at(self.shm, &key)
        if number >= 0:
            store_i32_release(&self.shm.groups[number].live, 0)

    def publish_subscription(self, str group, str topic, *, int64_t version, codes=None,
                             bint other=False) -> None:
        """
        Show what a group wants of a topic: codes = tag codes (None: everything), other = an
        expression. Its program, or more codes than an entry holds, are in the filter of the same
        number (filters.pyx), which is shown first.
        """
        cdef SubscriptionEntry* entry = &self.shm.subscriptions[
            subscription_place(self.shm, group, topic)]
        wanted = list(codes) if codes is not None else []
        open_entry(&entry.sequence)
        entry.version = version
        entry.kind = SUBSCRIPTION_ALL
        entry.code_count = 0
        if other:
            entry.kind = SUBSCRIPTION_OTHER
        elif len(wanted) > SUBSCRIPTION_CODE_COUNT_MAX:
            entry.kind = SUBSCRIPTION_CODES
        elif codes is not None:
            entry.kind = SUBSCRIPTION_TAGS
            for i, code in enumerate(wanted):
                entry.codes[i] = code
            entry.code_count = <int32_t>len(wanted)
        entry.live = 1
        close_entry(&entry.sequence)

    def remove_subscription(self, str group, str topic) -> None:
        """Forget what a group wants of a topic."""
        cdef int32_t number = subscription_known(self.shm, group, topic)
        if number >= 0:
            open_entry(&self.shm.subscriptions[number].sequence)
            self.shm.subscriptions[number].live = 0
            close_entry(&self.shm.subscriptions[number].sequence)

    def clear(self, *, topics=frozenset(), groups=frozenset()) -> None:
        """
        Hide all topics and groups but these (sets of names): what a new coordinator did not load.

        Those that stay are shown without a break, so that sends go on in their order meanwhile.
        """
        for number in range(self.shm.head.topic_count):
            topic = &self.shm.topics[number]
            if topic.live and (<bytes>topic.name[:topic.name_length]).decode() not in topics:
                open_entry(&topic.sequence)
                topic.live = 0
                close_entry(&topic.sequence)
        for number in range(self.shm.head.group_count):
            group = &self.shm.groups[number]
            if group.live and (<bytes>group.name[:group.name_length]).decode() not in groups:
                store_i32_release(&group.live, 0)
        # what clients subscribed to stays: they do not say it again; half-written ones are forgotten
        for number in range(self.shm.head.subscription_count):
            if self.shm.subscriptions[number].sequence & 1:
                self.shm.subscriptions[number].live = 0
                close_entry(&self.shm.subscriptions[number].sequence)


cdef class TableReader:
    """Topics, groups and subscriptions as the serving processes see them; for tests and tools."""
    cdef Segment segment
    cdef Shm* shm

    def __init__(self, Segment segment):
        self.segment = segment
        self.shm = &segment.shm

    def topic(self, str name):
        """(read queues, write queues, perm, flags), or None."""
        cdef bytes raw = name.encode()
        cdef const uint8_t* text = raw
        cdef int32_t length = <int32_t>len(raw)
        cdef TopicView view
        if not topic_find(self.shm, text, length, name_hash(text, length, 0), &view):
            return None
        return (view.read_queues, view.write_queues, view.perm, view.flags)

    def group(self, str name):
        """Flags, or None."""
        cdef bytes raw = name.encode()
        cdef int32_t flags = group_find(self.shm, <const uint8_t*><const char*>raw, <int32_t>len(raw))
        return None if flags < 0 else flags

    def subscription(self, str group, str topic):
        """(version, SUBSCRIPTION_ kind, codes), or None."""
        cdef bytes raw_group = group.encode(), raw_topic = topic.encode()
        cdef SubscriptionView view
        if not subscription_find(
                self.shm, <const uint8_t*><const char*>raw_group, <int32_t>len(raw_group),
                <const uint8_t*><const char*>raw_topic, <int32_t>len(raw_topic), &view):
            return None
        return (view.version, view.kind, [view.codes[i] for i in range(view.code_count)])

    def counts(self) -> tuple[int, int]:
        """How many topics and groups there are."""
        cdef int32_t number, topics = 0, groups = 0
        for number in range(load_i32_acquire(&self.shm.head.topic_count)):
            topics += load_i32_acquire(&self.shm.topics[number].live) != 0
        for number in range(load_i32_acquire(&self.shm.head.group_count)):
            groups += load_i32_acquire(&self.shm.groups[number].live) != 0
        return topics, groups

    def break_off(self, str topic) -> None:
        """For tests: leave a topic's entry as a writer does that dies in the middle of a change."""
        cdef bytes raw = topic.encode()
        cdef Key key = key_of(raw)
        cdef int32_t number = topic_number(self.shm, &key)
        if number < 0:
            raise KeyError(topic)
        open_entry(&self.shm.topics[number].sequence)


cdef class QueueTable:
    """A look at the queues: names, the writer's next offsets, the dispatcher's ranges."""
    cdef Segment segment
    cdef Shm* shm

    def __init__(self, Segment segment):
        self.segment = segment
        self.shm = &segment.shm

    def range(self, str topic, int queue_id):
        """(min, max) of a queue as consumers see it, or None when it never had a message."""
        raw = topic.encode()
        cdef const uint8_t* text = raw
        cdef int32_t length = <int32_t>len(raw)
        cdef int32_t number
        if not 1 <= length <= TOPIC_LENGTH_MAX:
            return None
        number = queue_find(self.shm, text, length, queue_id, queue_hash(name_hash(text, length, 0), queue_id))
        if number < 0:
            return None
        cdef QueueEntry* entry = &self.shm.queues[number]
        return (load_i64_acquire(&entry.min_offset), load_i64_acquire(&entry.max_offset))

    def all(self) -> list[tuple[str, int, int, int]]:
        """(topic, queue id, min, max) of every queue."""
        result = []
        for number in range(load_i32_acquire(&self.shm.head.queue_count)):
            entry = &self.shm.queues[number]
            result.append(((<bytes>entry.topic[:entry.topic_length]).decode(), entry.queue_id,
                           load_i64_acquire(&entry.min_offset), load_i64_acquire(&entry.max_offset)))
        return result
