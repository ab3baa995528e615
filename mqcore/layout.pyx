"""Proves the layouts when it is compiled, and shows their numbers to tests and tools."""
from mqcore import file_layout as _files

cdef extern from *:
    size_t RING_HEAD_OFFSET "offsetof(struct mq_ring_cursors, head)"
    size_t SLOT_STATE_OFFSET "offsetof(struct mq_worker_slot, state)"
    size_t LOG_DISPATCHED_OFFSET "offsetof(struct mq_log_state, dispatched)"
    size_t LOG_REMOVALS_ASKED_OFFSET "offsetof(struct mq_log_state, removals_asked)"
    size_t SHM_PARTICIPANTS_OFFSET "offsetof(struct mq_shm_head, participants)"
    size_t QUEUE_MAX_OFFSET "offsetof(struct mq_queue_entry, max_offset)"


cdef void _prove_layouts() noexcept nogil:
    layout_assert(CQ_ENTRY_SIZE == 20)
    layout_assert(CHECKSUM_ENTRY_SIZE == 8)
    layout_assert(INDEX_ENTRY_PREVIOUS + 4 == INDEX_ENTRY_SIZE)
    layout_assert(INDEX_NEXT_ENTRY + 4 == INDEX_HEADER_SIZE)
    layout_assert(RECORD_BORN_HOST + 2 * HOST_V4_SIZE + 8 + RECORD_BODY_AFTER_HOSTS + 1 + 2
                  == RECORD_FIXED_SIZE)
    layout_assert(BATCH_ITEM_BODY + 2 == BATCH_ITEM_FIXED_SIZE)
    layout_assert(sizeof(RingCursors) == 3 * CACHE_LINE_PAIR)
    layout_assert(RING_HEAD_OFFSET == CACHE_LINE_PAIR)
    layout_assert(sizeof(RingRecord) == 8)
    layout_assert(sizeof(WorkerSlot) == 4 * CACHE_LINE_PAIR)
    layout_assert(SLOT_STATE_OFFSET == CACHE_LINE_PAIR)
    layout_assert(sizeof(Latency) == 7 * CACHE_LINE_PAIR)
    layout_assert(sizeof(LogState) == 4 * CACHE_LINE_PAIR)
    layout_assert(LOG_DISPATCHED_OFFSET == CACHE_LINE_PAIR)
    layout_assert(LOG_REMOVALS_ASKED_OFFSET == 2 * CACHE_LINE_PAIR)
    layout_assert(sizeof(ClockKnot) == 32)
    layout_assert(sizeof(WallPiece) == 24)
    layout_assert(sizeof(UnmeasuredTime) == 24)
    layout_assert(sizeof(StoreClock) == 2944)
    layout_assert(sizeof(TopicEntry) == 160)
    layout_assert(sizeof(GroupEntry) == 288)
    layout_assert(sizeof(FilterEntry) == CACHE_LINE_PAIR)
    layout_assert(sizeof(QueueEntry) == 256)
    layout_assert(QUEUE_MAX_OFFSET == 192)
    layout_assert(sizeof(PullCountsHead) == CACHE_LINE_PAIR)
    layout_assert(sizeof(PullCount) == CACHE_LINE)
    layout_assert(sizeof(LimitPlace) == 3 * CACHE_LINE)
    layout_assert(sizeof(TraceEntry) == CACHE_LINE)
    layout_assert(sizeof(TraceRing) == CACHE_LINE_PAIR + TRACE_ENTRIES * CACHE_LINE)
    layout_assert(sizeof(Trace) == CACHE_LINE_PAIR)
    layout_assert(sizeof(AppendHead) == 56)
    layout_assert(sizeof(AppendResult) == 56)
    layout_assert(sizeof(Arrival) == 16)
    layout_assert(PRODUCER_SERVING == 0)
    layout_assert(LISTENER_SERVING == 0)
    layout_assert(sizeof(ReplicaGate) == 2 * CACHE_LINE_PAIR)
    layout_assert(sizeof(ScheduleState) == 120 + 8 * (
        DELAY_LEVEL_MAX + SCHEDULE_AHEAD_MAX + TIMER_LATENESS + 3 * TIMER_ROWS))
    layout_assert(sizeof(TransactionState) == 64)
    layout_assert(sizeof(LiveSettings) == 16384)
    layout_assert(sizeof(MasterPlace) == 512)
    layout_assert(sizeof(MemberReport) == 32)
    layout_assert(sizeof(Leadership) == 12 * CACHE_LINE_PAIR)
    layout_assert(sizeof(ForwardHead) == 48)
    layout_assert(sizeof(OffsetCommit) == 400)
    layout_assert(sizeof(CheckHead) == 24)


def sizes() -> dict[str, int]:
    """Sizes and places of structs by name, for tests and tools; the enums are there by themselves."""
    return {
        "RING_CURSORS_SIZE": sizeof(RingCursors),
        "RING_HEAD_OFFSET": RING_HEAD_OFFSET,
        "SHM_HEAD_SIZE": sizeof(ShmHead),
        "SHM_PARTICIPANTS_OFFSET": SHM_PARTICIPANTS_OFFSET,
    }


# their members by themselves too, as those of enums without a name: PUT_OK beside PutStatus.PUT_OK
for _named in (WorkerState, StopWord, Refusal, PutStatus):
    globals().update(_named.__members__)
# and the numbers of files and frames
globals().update({_name: _value for _name, _value in vars(_files).items() if _name.isupper()})
