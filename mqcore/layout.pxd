# Every byte layout in the project, declared once: that of store files and wire in file_layout.pxd,
# that of the shared memory here. This is ours; native byte order, cache-line aligned, lives as long as
# one run. Any change raises SHM_LAYOUT_VERSION: a process that maps another one will not start.
# What has a place for each process or figure is numbered by participants.py and figures.py.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from mqcore.figures cimport *
from mqcore.file_layout cimport *
from mqcore.participants cimport *

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #define mq_layout_assert(condition) do { _Static_assert(condition, #condition); } while (0)
    """
    void layout_assert "mq_layout_assert"(bint condition) noexcept nogil

cpdef enum:
    SHM_LAYOUT_VERSION = 20
    CACHE_LINE = 64
    CACHE_LINE_PAIR = 128                # Intel prefetches lines in pairs: a busy word needs both

    DELAY_LEVEL_MAX = 64                 # levels that messageDelayLevel may name
    SCHEDULE_AHEAD_MAX = 4096
    TIMER_LATENESS = 16                  # buckets: at most 1, 2, 4 ms and so on, and what was later
    TIMER_ROWS = 1024                    # of hours, and of topics (store/schedule/timer_counts.pxd)

    GROUP_LENGTH_MAX = 255
    SUBSCRIPTION_CODE_COUNT_MAX = 240
    EXEMPT_MAX = 64                      # ranges of addresses that have no limits

    TRACE_ENTRIES = 4096                 # of a process that is traced; a power of two
    TRACE_STEPS = 4

cpdef enum WorkerState:
    WORKER_ABSENT = 0
    WORKER_STARTING = 1
    WORKER_RUNNING = 2
    WORKER_STOPPED = 3

cpdef enum StopWord:
    STOP_NOT_ASKED = 0
    STOP_IN_ORDER = 1
    STOP_HURRIED = 2                     # whatever it would lose

# -- Ring cursors, three cache-line pairs ----------------------------------------------------------
cdef struct RingCursors "mq_ring_cursors":
    int64_t tail                         # bytes published so far; the producer alone stores it
    uint8_t tail_pad[120]
    int64_t head                         # bytes consumed so far; the consumer alone stores it
    uint8_t head_pad[120]
    int32_t producer_waits               # the producer sets it when full; the consumer takes it back
    uint8_t waits_pad[124]

# Every ring record: this header, then `length` bytes, rounded up to 8.
cdef struct RingRecord "mq_ring_record":
    int32_t length                       # negative: padding to the end of the buffer
    int32_t kind                         # what the payload is: see the ring's own declaration

# -- One worker: its doorbell, its life, its figures -----------------------------------------------
cdef struct WorkerSlot "mq_worker_slot":
    int32_t asleep                       # how the worker sleeps, set before that; who wakes it takes it
    int32_t bell                         # eventfd, inherited by every process; the supervisor
    int32_t hurry                        # 1: a process waits for its work; the worker takes it back
    uint8_t bell_pad[116]
    int32_t state                        # WorkerState; the worker (the supervisor when it died)
    int32_t stop_requested            # StopWord; the supervisor
    int32_t incarnation                  # how often it was started; the supervisor
    int32_t pid                          # the supervisor
    int64_t beat_ms                      # when it last turned, wall clock; the worker
    int64_t started_ms                   # the supervisor
    int64_t figures[FIGURE_COUNT]        # see figures.py; the worker

# -- How long things took: a histogram of each process and kind (mqcore/shm/latency.pxd) -----------
cpdef enum:
    LATENCY_BUCKETS = 100                # four for each power of two of microseconds, up to 67 s

cdef struct Latency "mq_latency":        # the process; a successor adds to it
    int64_t sum_us
    int64_t counts[LATENCY_BUCKETS]
    uint8_t pad[88]

# -- Positions: the writer's words, the dispatcher's, the coordinator's ----------------------------
cdef struct LogState "mq_log_state":
    int64_t published                    # readers may read below it; the writer
    int64_t flushed                      # on disk below it; the writer
    int64_t first                        # start of the first segment; the writer
    int32_t refusal                      # why writes are refused now, Refusal; the writer
    int32_t disk_full_percent            # how full the disk is while it is too full; the writer
    int64_t last_store_time_ms           # store time of the last published record; the writer
    int64_t flushed_store_time_ms        # store time of the last record known on disk; the writer
    int64_t begun                        # where the log ended when this run began; the writer
    int32_t removals_begun               # counts; after the queues' own words; the writer
    int32_t unreadable                   # 1: no writes until the dispatcher has caught up; the writer
    int64_t published_us                 # steady: when `published` was last stored; the writer
    uint8_t writer_pad[56]
    int64_t dispatched                   # queues and index hold every record below it; dispatcher
    int32_t queue_error                  # errno of the last failed queue or index write, or 0
    int32_t trims                        # counts: queue files were deleted; the dispatcher
    int32_t queues_changed               # how many somebody changed while no broker ran; dispatcher
    uint8_t dispatcher_pad[108]
    int32_t removals_asked               # counts; after the queues' own words; the coordinator
    int32_t deletions_asked              # counts: "delete expired files now"; the coordinator
    uint8_t coordinator_pad[120]
    int32_t elsewhere                    # 1: the store's path leads elsewhere, no writes; the supervisor
    uint8_t supervisor_pad[124]

# -- The third gate of acknowledgements: how far others have the log (store/log/replica_gate.pxd) ------
cdef struct ReplicaGate "mq_replica_gate":
    int64_t replicated                   # others have every byte below it; who replicates
    int32_t present                      # 1: there are others; who replicates
    int32_t pad
    int64_t greeting                     # a mark of the words that those who come are greeted with; ha-master
    uint8_t rest[104]
    int64_t told                         # a master has said so of every byte below it; ha-slave
    int32_t untold                       # 1: the master does not say it; ha-slave
    uint8_t ha_slave_pad[116]

# -- Where a slave finds its master (mqcore/shm/text_board.pyx) -----------------------------------------
cdef struct MasterPlace "mq_master_place":
    int32_t sequence                     # odd while the coordinator writes; counts changes by two
    int32_t length                       # of the address; the coordinator
    uint8_t address[504]                 # host:port for the log, UTF-8; the coordinator

# -- Who leads, while that is elected (mqcore/shm/leadership.pxd) --------------------------------------
cpdef enum:
    LEADERSHIP_NONE = 0                  # nobody has said anything: there is no election, or not yet
    LEADERSHIP_FOLLOWS = 1
    LEADERSHIP_LEADS = 2
    LEADERSHIP_BITS = 2                  # of a word; the epoch stands above them
    LEADERSHIP_MEMBERS_MAX = 16                     # others of a set

cdef struct MemberReport "mq_member_report":
    int64_t member                       # id, 0: free place
    int64_t acked                        # it has every byte below it
    int64_t even_ms                      # steady: when it last had all that there was
    int64_t heard_ms                     # steady: its last word; 0: it is not connected

cdef struct Leadership "mq_leadership":
    int64_t requested                    # LEADERSHIP_ and the epoch; failover
    int64_t deadline_ns                  # CLOCK_BOOTTIME: until then who leads may acknowledge; failover
    int32_t members_sequence             # odd while failover writes
    int32_t members_count                # ids that are waited for; failover
    int64_t members[LEADERSHIP_MEMBERS_MAX]         # failover
    int32_t leader_sequence              # odd while failover writes
    int32_t leader_length                # of the text in bytes; failover
    uint8_t leader[472]                  # lines: id, address, address for the log, epoch, the set's ids
                                         #   with commas between them; failover
    int64_t heard_ns                     # CLOCK_BOOTTIME: when etcd answered last; 0: never; failover
    int64_t former            # whose log it was, by number, 0: nobody's (leadership FO10); failover
    uint8_t failover_pad[120]
    int64_t role                         # LEADERSHIP_ and the epoch; the supervisor
    int64_t begun                        # its log ended there when it began to lead, and that is not all shown at
                                         #   first; 0: it follows, or shows all; the supervisor
    uint8_t supervisor_pad[112]
    int64_t members_applied              # members_sequence that reports and gate go by; ha-master
    int64_t ha_master_pad
    MemberReport reports[LEADERSHIP_MEMBERS_MAX]    # ha-master
    uint8_t reports_pad[112]

# -- The store clock: when a store time was (mqcore/shm/store_clock.pxd) ------------------------------
cdef enum:
    CLOCK_KNOTS_MAX = 64
    CLOCK_WALLS_MAX = 32

cdef struct ClockKnot "mq_clock_knot":
    int64_t steady_ms                    # from here on store times are as this knot says
    int64_t store_ms                     # the store clock then
    int64_t wall_ms                      # the wall clock then
    int64_t slowed                       # the store clock goes on by 1 ms in so many

cdef struct WallPiece "mq_wall_piece":   # of the wall clock, between two steps
    int64_t steady_ms                    # where it begins
    int64_t wall_ms                      # what the wall clock showed there, at least
    int64_t spread_ms                    # and this more, at most: 0, if it is one piece

# between two boots, until it is believed (store_clock T12)
cdef struct UnmeasuredTime "mq_unmeasured_time":
    int64_t before                       # how many knots, or pieces, are older than it; 0: it is believed
    int64_t wall_ms                      # what the wall clock showed before it
    int64_t steady_ms                    # when it was over

cdef struct StoreClock "mq_store_clock":     # only the writer changes it
    int32_t sequence                     # odd while it is written
    int32_t count                        # of knots
    int64_t doubted_since_ms             # steady: since when the wall clock is far ahead, 0: it is not
    int64_t stood_since_ms               # steady: when the wall clock was last set
    int64_t wall_count                   # of pieces
    UnmeasuredTime late                  # for what waits
    UnmeasuredTime old                   # for what is deleted
    int64_t has_earlier                  # 1: an earlier run's knots are in it
    int64_t apart_ms                     # how far the wall clock was ahead of the steady one in the last turn
    uint8_t pad[32]
    ClockKnot knots[CLOCK_KNOTS_MAX]     # the oldest first
    WallPiece walls[CLOCK_WALLS_MAX]     # the oldest first

# -- Delayed messages: how far each level is delivered (broker.md 4.6) -------------------------------
cdef struct ScheduleState "mq_schedule_state":
    int32_t sequence                     # odd while the scheduler writes
    int32_t level_count                  # 0: not known yet; the scheduler
    int64_t offsets[DELAY_LEVEL_MAX]     # of level 1, 2, ...: the next to be delivered; the scheduler
    int64_t delivered, settled_position  # messages since the start; deliveries below are settled; the scheduler
    int64_t ahead[SCHEDULE_AHEAD_MAX]    # delivered behind one that is not (store/schedule/book.pyx); the scheduler
    int32_t writer, pad                  # incarnation that takes its appends; the scheduler
    int64_t timer_pending, timer_next    # how many wait; the second of the next, since 1970, 0: none; the scheduler
    int64_t timer_trusted, timer_second, timer_offset, timer_position   # timer TM5; the scheduler
    int64_t timer_lateness[TIMER_LATENESS], timer_late_ms   # messages by how late they were; the sum; the scheduler
    # -- timer TM9, a queue offset; rows of what waits, and whether they have all (timer_counts.pxd); the scheduler
    int64_t timer_cleared, timer_counted, timer_later, timer_others
    int64_t timer_hours[TIMER_ROWS], timer_topics[TIMER_ROWS], timer_topic_hashes[TIMER_ROWS]

# -- Transactions: how far half and op queue are settled (broker.md 5.4) -----------------------------
cdef struct TransactionState "mq_transaction_state":
    int32_t sequence                     # odd while the transaction-check writes
    int32_t known                        # 0: the offsets are not known yet; the transaction-check
    int64_t half_offset                  # committed, like a consumer's; the transaction-check
    int64_t op_offset                    # the same of the op queue; the transaction-check
    int64_t oldest_born_ms               # of the oldest pending half message, 0: there is none
    int64_t pending                      # half messages found undecided in the last round
    int64_t checks                       # check requests sent since the start
    int64_t expired                      # messages given up since the start
    int64_t rounds                       # since the start

# -- Settings that change while a broker runs (mqcore/shm/text_board.pyx) -------------------------------
cdef struct LiveSettings "mq_live_settings":
    int32_t sequence                     # odd while its writer writes; counts changes by two
    int32_t length                       # of the text in bytes; its writer
    uint8_t text[16376]                  # lines section.key=value, UTF-8; its writer

cpdef enum Refusal:
    REFUSAL_NONE = 0
    REFUSAL_DISK_FULL = 1
    REFUSAL_FLUSH_FAILED = 2
    REFUSAL_WRITE_FAILED = 3

# -- Topics, groups, subscriptions: written by the coordinator, copied out under `sequence` --------
cdef struct TopicEntry "mq_topic_entry":
    int32_t sequence                     # odd while the coordinator writes
    int32_t live
    uint64_t hash
    int32_t read_queues
    int32_t write_queues
    int32_t perm
    int32_t flags                        # TOPIC_ bits
    uint8_t name_length
    uint8_t name[TOPIC_LENGTH_MAX]

cpdef enum:
    TOPIC_MULTI_TAG = 1                  # filter type MULTI_TAG
    TOPIC_SEND_ASKS = 2                  # each send is the coordinator's decision (forbidden, retry)

cdef struct GroupEntry "mq_group_entry":
    int32_t sequence
    int32_t live
    uint64_t hash
    int32_t flags                        # GROUP_ bits
    uint8_t name_length
    uint8_t name[GROUP_LENGTH_MAX]
    int32_t broker_id                    # what pulls suggest to read from ...
    int32_t broker_id_when_slow          # ... and when the consumer is far behind
    uint8_t pad[4]

cpdef enum:
    GROUP_CONSUME_ENABLED = 1
    GROUP_PULL_ASKS = 2                  # broadcasting though the group forbids it: ask the coordinator

cdef struct SubscriptionEntry "mq_subscription_entry":
    int32_t sequence
    int32_t live
    uint64_t hash
    int64_t version                      # subVersion of the client's subscription
    int32_t kind                         # SUBSCRIPTION_
    int32_t code_count
    int32_t codes[SUBSCRIPTION_CODE_COUNT_MAX]
    int32_t life                         # raised when the place goes to another pair (tables T4)
    uint8_t group_length
    uint8_t topic_length
    uint8_t group[GROUP_LENGTH_MAX]
    uint8_t topic[TOPIC_LENGTH_MAX]

cpdef enum:
    SUBSCRIPTION_ALL = 0
    SUBSCRIPTION_TAGS = 1
    SUBSCRIPTION_OTHER = 2               # an expression: see the filter of the same number
    SUBSCRIPTION_CODES = 3               # more tag codes than `codes` holds: likewise

# -- Filters: what is too large for a subscription's entry (mqcore/shm/filters.pxd) ----------------
#    The chunk (a program or tag codes) and the expression behind it lie in the filter arena.
cpdef enum:
    FILTER_POSITIONS_MAX = 8

cdef struct FilterEntry "mq_filter_entry":
    int32_t sequence                     # odd while the coordinator writes
    int32_t kind                         # FILTER_
    int64_t version                      # of the chunk; never given twice in a run
    uint64_t hash                        # of the expression, in the places of requests
    int64_t client_version               # subVersion of the subscription that it was made of
    int64_t born_ms                      # wall clock, as in consumerFilter.json
    int64_t dead_ms                      # >= born_ms: its group is away
    int64_t bits_from_ms                 # messages stored later have its bits in their bit maps
    int64_t chunk_start                  # from the arena's start
    int32_t chunk_size
    int32_t text_size
    int32_t bloom_bit_count              # m; 0: no positions
    int32_t bloom_position_count
    int32_t bloom_positions[FILTER_POSITIONS_MAX]
    uint8_t pad[16]

cpdef enum:
    FILTER_NONE = 0                      # nothing here
    FILTER_PROGRAM = 1                   # a compiled SQL92 expression (filter/sql92_program.pxd)
    FILTER_CODES = 2                     # tag codes, i32, in ascending order
    FILTER_ALL = 3                       # lets everything pass
    FILTER_REQUEST_WAYS = 8              # places that the hash of an expression may be in
    FILTER_REQUEST_COUNT = 256 * FILTER_REQUEST_WAYS      # of expressions that came with pulls
    REQUEST_TEXT_MAX = 40000             # bytes of type and expression that serving looks up

# -- One queue: name and writer's counter, then the dispatcher's range ------------------------------
#    Lives (shm/retention.pyx): removal_answered follows removal_asked, removal_done removal_begun.
cdef struct QueueEntry "mq_queue_entry":
    int64_t next_offset                  # of the next record of the queue; the writer
    uint64_t hash                        # the writer, once
    int32_t queue_id                     # the writer, once
    uint8_t topic_length                 # the writer, once
    uint8_t topic[TOPIC_LENGTH_MAX]      # the writer, once
    int64_t restart_position             # records below it are of an earlier life; the writer
    int32_t removal_begun                # the writer
    int32_t removal_asked                # the coordinator
    int64_t puts                         # requests that stored records of it, in this run; the writer
    int32_t removal_answered             # the writer
    uint8_t writer_pad[12]
    int64_t max_offset                   # entries readable below it; the dispatcher
    int64_t min_offset                   # the dispatcher
    int32_t removal_done                 # the dispatcher
    int32_t pad
    int64_t bytes                        # of records that became readable in this run; the dispatcher
    int64_t left_ns                      # until when its files are known to be ours, 0: they were
                                         #   looked at (store/queue/as_left.pxd); the dispatcher
    uint8_t dispatcher_pad[24]

# -- What pulls handed out, by queue and group: a table of each serving process ----------------------
#    This head, then i32[2 * capacity] (open addressing: entry number + 1), then PullCount[capacity].
cdef struct PullCountsHead "mq_pull_counts_head":
    int32_t count                        # entries in use, stored after the entry; the serving process
    int32_t pad
    int64_t missed                       # pulls that found no room in the table; the serving process
    uint8_t head_pad[112]

cdef struct PullCount "mq_pull_count":   # all of it: the serving process
    int32_t queue                        # number in the queue table; once
    int32_t group                        # number in the group table; once
    int64_t pulls                        # that found messages
    int64_t messages
    int64_t bytes                        # of their records
    int64_t took_ms                      # from the turn that took the pull to its answer, summed up
    int64_t behind_bytes                 # of the last one: from its last record to the log's end ...
    int64_t behind_ms                    # ... and since that was stored
    int64_t at_ms                        # wall clock of the last one

# -- What one address, or one account, uses of what is limited for it (limits.pxd) --------------------
cpdef enum:
    LIMIT_PLACES = 16384                 # a power of two

cdef struct LimitPlace "mq_limit_place":
    uint64_t key                         # whose it is; 0: nobody's
    int64_t bytes_due_us                 # steady: when what was used is paid by time ...
    int64_t messages_due_us              # ... and what was sent
    uint8_t pad[40]
    int32_t connections[SERVING_COUNT_MAX]        # each serving process alone writes its own, here ...
    int32_t in_flight[SERVING_COUNT_MAX]          # ... and here: requests without an answer

# -- Steps of requests, while they are traced (mqcore/shm/trace.pxd) -----------------------------------
cpdef enum TraceKind:                    # start and end: positions of the log; the times
    TRACE_APPENDED = 1                   # a turn of the writer: began, took, wrote, flushed
    TRACE_DISPATCHED = 2                 # a turn of the dispatcher: began, ended
    TRACE_TURN = 3                       # of a serving process: began, handed on, sent
    TRACE_SEND = 4                       # read, the turn began, answered, sent; end: queue offset
    TRACE_PULL = 5                       # the same
    TRACE_HELD = 6                       # of a pull that waited: stored, ...

cdef struct TraceEntry "mq_trace_entry":
    int32_t kind                         # TraceKind
    int32_t detail                       # of a send: the queue's id; of a pull: messages
    int64_t start
    int64_t end
    int64_t queue                        # of a pull: number in the queue table
    int64_t at_us[TRACE_STEPS]           # steady

cdef struct TraceRing "mq_trace_ring":   # the process
    int64_t count                        # entries so far, stored after the entries
    int64_t dropped                      # that a turn had too many of
    uint8_t pad[112]
    TraceEntry entries[TRACE_ENTRIES]

cdef struct Trace "mq_trace":            # the tracing command
    int64_t until_us                     # steady: processes trace until then; 0: no trace
    int64_t over_us                      # requests that took so long are told
    uint8_t pad[112]

# -- The head of the segment -----------------------------------------------------------------------
cdef struct RingPlace "mq_ring_place":
    int64_t start                        # of its cursors, from the head; 0: there is no such ring
    int64_t capacity

cdef struct ShmHead "mq_shm_head":
    int64_t magic
    int32_t layout_version
    int32_t head_size
    int32_t slot_size
    int32_t queue_entry_size
    int64_t total_size
    int64_t run_id
    int32_t serving_count
    int32_t message_size_max             # run-time copies of settings that native code reads
    int64_t segment_size
    int64_t slots_start, latencies_start
    int64_t log_state_start, store_clock_start
    int64_t topics_start, topic_index_start
    int32_t topic_capacity               # a power of two; the index has twice as many places
    int32_t topic_count                  # the coordinator
    int64_t groups_start, group_index_start
    int32_t group_capacity
    int32_t group_count                  # the coordinator
    int64_t subscriptions_start, subscription_index_start
    int32_t subscription_capacity
    int32_t subscription_count           # the coordinator
    int32_t subscription_looked          # where it looks for a place that can go to another pair
    int32_t access_sequence              # odd while the rules are written; 0: none yet; the coordinator
    int64_t queues_start
    int64_t queue_index_start
    int32_t queue_capacity
    int32_t queue_count                  # the writer
    int64_t interest_start               # u8 [row][queue]: who wants to hear of it; see listener_row
    int64_t replica_gate_start
    int64_t schedule_start, transactions_start
    int64_t live_settings_start          # the coordinator's: what holds now
    int64_t said_settings_start          # the supervisor's: what the settings file says
    int64_t master_place_start, leadership_start
    RingPlace appends[PRODUCER_COUNT]    # producer -> writer
    RingPlace append_results[PRODUCER_COUNT]      # writer -> producer
    RingPlace arrivals[LISTENER_COUNT]   # dispatcher -> who hears of queues
    RingPlace requests[SERVING_COUNT_MAX]         # serving -> coordinator
    RingPlace answers[SERVING_COUNT_MAX]          # coordinator -> serving
    RingPlace checks                     # transaction-check -> coordinator
    int64_t filters_start                # FilterEntry[2 * subscription capacity + requests]
    int64_t filter_arena_start, filter_arena_size
    int64_t filter_changes               # counts; after the entry was changed; the coordinator
    int64_t pull_counts_start            # of serving process 0's table
    int64_t pull_counts_size             # of one table
    int32_t pull_count_capacity          # entries of one table; a power of two
    uint32_t participants                # digest of the table that has numbered their places
    int64_t limits_start                 # LimitPlace[LIMIT_PLACES]
    int64_t trace_start                  # Trace, then rings
    uint64_t limit_seed
    RingPlace access                     # AccessTable (mqcore/shm/access.pxd); no room: no control
    int32_t producer_slot[PRODUCER_COUNT]         # who has the rings of that number
    int32_t listener_slot[LISTENER_COUNT]
    int32_t listener_row[LISTENER_COUNT]          # of interest
    int32_t follower_slot[FOLLOWER_COUNT]         # who is rung when the log has grown
    int32_t pop_owner                    # the serving process that has POP's state; -1: none has
    RingPlace pops[SERVING_COUNT_MAX]             # serving -> that one
    RingPlace pop_answers[SERVING_COUNT_MAX]      # and back

cdef enum:                               # of 64 bits: Python has no use for it
    SHM_MAGIC = 0x4D51434F52450A01       # "MQCORE\n" 1

# -- Records of `appends`: kind APPEND_; this head, then whole commit log records ---------------------
cdef struct AppendHead "mq_append_head":
    uint64_t connection                  # who waits for the answer: serving's own words, returned
    int32_t opaque                       #   in the result untouched
    int32_t producer_incarnation
    uint64_t queue_hash                  # of topic and queue id; raw: log position of the first byte
    int32_t queue_id
    int32_t record_count                 # records of one batch lie end to end
    int32_t bytes_total                  # of all records
    uint16_t request_flags               # REQUEST_ bits; returned
    uint8_t transaction_type             # the sys flag's two bits
    uint8_t topic_length                 # topic of the first record, for the queue's name
    int32_t topic_start                  # from the first record's start
    int32_t answer_queue_id              # what the answer says: the queue that was asked for
    uint32_t taken_us                    # steady, its low bits: when it was read; returned
    uint32_t pad

cpdef enum:
    APPEND_RECORDS = 1
    APPEND_RAW = 2                       # bytes of the log as they are (store/log/raw.pxd)
    REQUEST_BINARY = 1                   # answer with the ROCKETMQ codec
    REQUEST_ONEWAY = 2
    REQUEST_WAITS = 4                    # WAIT is not false
    REQUEST_BATCH = 8
    REQUEST_AFTER_PREVIOUS = 16          # only if the producer's request before it was stored
    REQUEST_TRANSACTION = 32             # the final message of a transaction
    REQUEST_TIMED = 64                   # it waits for a time of delivery (recall_handles.pxd)

# -- Records of `append_results`: kind RESULT_; then for a batch the positions i64[record_count] ---
cdef struct AppendResult "mq_append_result":
    uint64_t connection
    int32_t opaque
    int32_t producer_incarnation
    int64_t queue_offset                 # of the first record
    int64_t log_position                 # of the first record
    int32_t queue_id
    int32_t record_count
    int32_t status                       # PutStatus
    uint16_t request_flags
    uint16_t pad
    uint32_t taken_us
    uint32_t pad_us

cpdef enum:
    RESULT_PUT = 1

cpdef enum PutStatus:
    PUT_OK = 0
    PUT_FLUSH_TIMEOUT = 1
    PUT_CREATE_FILE_FAILED = 2
    PUT_MESSAGE_ILLEGAL = 3
    PUT_SERVICE_NOT_AVAILABLE = 4        # refused: LogState.refusal says why
    PUT_UNKNOWN_ERROR = 5
    PUT_WRITER_RESTARTED = 6             # in flight when the writer died: stored or not is unknown
    PUT_QUEUE_TABLE_FULL = 7
    PUT_POOL_EXHAUSTED = 8               # transient-pool: no room, for longer than one waits
    PUT_LIGHT_QUEUES_FULL = 9            # it names a new light queue, and there are as many as may be
    PUT_SLAVE_TIMEOUT = 10               # stored, but others had it not in time
    PUT_SLAVE_NOT_AVAILABLE = 11         # stored, but there is nobody who would have it too
    PUT_NOT_AT_END = 12                  # raw bytes that do not begin where the log ends
    PUT_RAW_DAMAGED = 13                 # raw bytes that are not records of that place
    PUT_DISK_FAILED = 14                 # some of it is in the file, not known on disk: stored or not is unknown

# -- Records of `arrivals`: kind ARRIVAL_QUEUE --------------------------------------------------------
cdef struct Arrival "mq_arrival":
    int32_t queue                        # index in the queue table
    int32_t pad
    int64_t max_offset

cpdef enum:
    ARRIVAL_QUEUE = 1

# -- Records of `requests` (serving -> coordinator) and `answers` (back) ---------------------------
#    A payload longer than one record travels in parts: all but the last carry PART_MORE. In `requests`
#    parts of several frames may lie between each other: all but the first of a frame carry PART_NEXT,
#    and all of them which of the serving process's LONG_FRAMES_MAX places for such frames is theirs.
cdef enum:
    ADDRESS_V4_SIZE = 4
    ADDRESS_V6_SIZE = 16

cdef struct ForwardHead "mq_forward_head":
    uint64_t connection
    int32_t parked                       # id of the parked request, 0: none
    int32_t body_size                    # of the body that stayed behind
    uint8_t address[ADDRESS_V6_SIZE]     # peer, IPv4 in the first four
    uint16_t port
    uint8_t address_is_v6, fast_port
    int32_t part                         # PART_MORE | PART_NEXT | place << PART_PLACE_SHIFT
    uint16_t passed                      # access control has let it pass; else the coordinator asks
    uint16_t urgent                      # others wait for it (forward N19)
    uint32_t taken_us                    # steady: the turn in which it was handed on

cpdef enum:
    PART_MORE = 1
    PART_NEXT = 2
    PART_PLACE_SHIFT = 8
    LONG_FRAMES_MAX = 4                  # frames of one serving process that travel in parts at a time
    FORWARD_FRAME = 1                    # a frame without its length word
    FORWARD_CLOSED = 2                   # the connection is gone
    FORWARD_OFFSETS = 3                  # offsets that came with pulls: OffsetCommit[]
    FORWARD_REPEATED = 5                 # a frame that an earlier coordinator has answered
    FORWARD_UNREAD = 6                   # the connection does not read what it is sent ...
    FORWARD_READS = 7                    # ... and reads it again
    ANSWER_FRAME = 1                     # a frame with its length word, for that connection
    ANSWER_REDO = 2                      # run the parked request; payload: a new header or nothing
    ANSWER_CLOSE = 3                     # close the connection
    ANSWER_DROP = 4                      # forget the parked request: it was answered
    ANSWER_OFFER = 5                     # as ANSWER_FRAME, but dropped when it is not read
    ANSWER_DONE = 6               # forward N5: its `parked` shares and `body_size` bytes are done
    FORWARD_PART_SHARE = 8               # shares of a part of a frame; a whole frame is one
    CONNECTION_SERVING_SHIFT = 48        # of a connection's id: the serving process's index ...
    CONNECTION_LIFE_SHIFT = 56           # ... and its incarnation, as far as it fits
    CONNECTION_LIFE_MASK = 0x7F

cdef struct OffsetCommit "mq_offset_commit":
    int64_t offset
    int32_t queue_id
    uint8_t group_length
    uint8_t topic_length
    uint8_t group[GROUP_LENGTH_MAX]
    uint8_t topic[TOPIC_LENGTH_MAX]

# -- Records of `checks` (transaction-check -> coordinator): this head, the name, then a frame -------
cdef struct CheckHead "mq_check_head":
    int64_t half_offset                  # CHECK_PROGRESS: both are to be committed
    int64_t op_offset
    int32_t name_length                  # of the producer group, or of the topic
    int32_t pad

cpdef enum:
    CHECK_REQUEST = 1                    # a frame with its length word, for a producer of that group
    CHECK_PROGRESS = 2
    CHECK_TOPIC = 3                      # a topic that has to exist, with one queue
