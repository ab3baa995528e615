# The (group, topic) pairs that consumers of gRPC receive from: what the coordinator said of each, and the
# receives that wait for messages.
#
#   GP1  A pair is asked about before its first receive, and again REFRESH_MS later: the group's rules, and
#        the committed offsets from which queues begin that have no state yet.
#   GP4  An offset that the coordinator has, and was not told by this process, is one that others set: above
#        what it was told, or below what it had been told REFRESH_MS before.
#   GP2  A waiting receive is in its pair's list; the pair's queues are marked as awaited while the
#        list is not empty, and looked at once more after that (as held H2).
#   GP3  At most PAIRS_MAX pairs, and WAITING_MAX receives of one pair wait: a further one is
#        refused with 42900.
#   GP5  A receive that finds nothing but messages that are on the disk waits for the reading thread (cold.pxd), also
#        beyond its time, DISK_WAIT_MS at most. After DISK_ROUNDS_MAX reads without a message the loop reads by
#        itself.
#   GP6  A pair without a receive for PAIR_IDLE_MS is given up, and begins anew with the next one.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from mqcore.layout cimport TOPIC_LENGTH_MAX
from mqcore.net.grpc.streams cimport Call
from mqcore.net.requests cimport GROUP_BYTES_MAX

cdef enum:
    PAIRS_MAX = 1 << 12
    PAIR_BUCKETS = 1 << 12
    WAITING_MAX = 1024
    QUEUES_MAX = 1024                  # of a topic, that one pair receives from
    REFRESH_MS = 5000
    DISK_WAIT_MS = 5000
    DISK_ROUNDS_MAX = 4
    PAIR_IDLE_MS = 600_000             # GP6

cdef struct HeldReceive:                   # Call.served of a receive that waits
    Call* call
    uint64_t connection
    Pair* pair
    HeldReceive* before
    HeldReceive* after
    int64_t until_ms                   # steady

cdef struct Pair:
    Pair* next_of_group                # in its bucket, by group and topic
    Pair* next_of_topic                # in its bucket, by topic
    Pair* next_woken
    bint woken
    int32_t number                     # in Pairs.of_number
    bint asking                        # over remoting: the coordinator has not answered ...
    int64_t asking_ms                  # ... since then (steady)
    int64_t used_ms                    # steady: of its latest receive
    uint64_t topic_hash
    uint8_t[GROUP_BYTES_MAX] group
    int32_t group_length
    uint8_t[TOPIC_LENGTH_MAX] topic
    int32_t topic_length
    int64_t asked_ms                   # steady; 0: never
    bint fifo
    int32_t attempts_max
    int32_t queue_count                # that may be read
    int32_t turn                       # the queue that is looked at first
    int64_t committed[QUEUES_MAX]      # -1: none
    int64_t told[QUEUES_MAX]           # what the coordinator had been told when it was asked last
    int64_t disk_job                   # GP5: of the reading thread; 0: none
    int32_t disk_rounds
    HeldReceive* first
    HeldReceive* last
    int32_t waiting

cdef struct Pairs:
    Pair* of_group[PAIR_BUCKETS]
    Pair* of_topic[PAIR_BUCKETS]
    Pair* of_number[PAIRS_MAX]
    int32_t count
    Pair* woken                        # to be looked at in this turn
    int64_t next_ms                    # steady: when the first waiting receive is due
    int64_t disk_job                   # GP5: the last one of all pairs, and the last one that was seen done
    int64_t disk_done

# NULL: none yet.
cdef Pair* pair_find(const Pairs* pairs, const uint8_t* group, int32_t group_length,
                     const uint8_t* topic, int32_t topic_length) noexcept nogil
cdef Pair* pair_open(Pairs* pairs, const uint8_t* group, int32_t group_length,
                     const uint8_t* topic, int32_t topic_length) noexcept nogil    # NULL: too many
# One without a waiting receive, that is not woken.
cdef void pair_close(Pairs* pairs, Pair* pair) noexcept nogil
cdef void pair_wake(Pairs* pairs, Pair* pair) noexcept nogil
cdef void topic_woken(Pairs* pairs, const uint8_t* topic, int32_t length) noexcept nogil
# GP5: the pair's receives wait for a job of the reading thread.
cdef void pair_awaits_disk(Pairs* pairs, Pair* pair, int64_t job) noexcept nogil
# Wakes the pairs whose jobs are done.
cdef void pairs_read(Pairs* pairs, int64_t done) noexcept nogil
cdef bint waiting_add(Pair* pair, Call* call, uint64_t connection, int64_t until_ms) noexcept nogil
cdef void waiting_end(Call* call) noexcept nogil
