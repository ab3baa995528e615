# POP: messages that a group's consumers acknowledge one by one (pop.md 1 to pop.md 4). One process owns the state
# of all (group, topic, queue); nothing here takes a lock, knows a socket or asks for the time.
#
#   PO1  A queue's unsettled messages stand in the order of their offsets, all below `next`. Each is
#        either invisible or ready again.
#   PO2  A message is visible again when its due time on the steady clock has come, never before, and
#        at the latest POP_INVISIBLE_MAX_MS later: no step of the wall clock changes that.
#   PO3  (offset, pop time) names one delivery: a later delivery of a message has a later pop time,
#        whatever the wall clock says. A name that is not the latest settles and prolongs nothing.
#   PO4  A message that is ready again is delivered before one that was never delivered.
#   PO5  Each delivery raises the attempts by one, except a FIFO batch that is given again for the same
#        attempt id.
#   PO6  FIFO: nothing is delivered while a message of the queue is invisible, except for the attempt
#        id of the latest batch. Deliveries begin at the lowest unsettled offset, in order.
#   PO7  A renewed message of a live client is not visible before POP_HELD_MAX_MS, and is visible after
#        that. The messages of a client that went are visible within POP_DROP_MS.
#   PO8  The committed offset is the lowest unsettled one, else `next`: what a group finds that begins
#        from it includes every message that was not acknowledged.
#   PO9  Limits: POP_QUEUE_MESSAGES_MAX of a queue, messages_max of all. In the last eighth a queue gets
#        POP_SHARE. A queue at its limit gets no new messages; those that are ready again are
#        delivered as ever, so it empties.
#   PO10  A state of another life of group or topic, and offsets that the queue does not have, count for
#        nothing.
#   PO11  A log that lost its end, or is another one, gives offsets again: a state that was read counts
#        only if the record of its highest known offset is still where it was.
#
# The owner's part.
#
#   At its start, before the writer takes appends: pop_begin (queues.pxd), pop_journal_open
#   (journal_read.pxd), and for each queue s.queues[0 .. queue_room - 1] that is not NULL: pop_forget when no
#   table has its group or topic, else pop_confirm with the log position of the queue entry at proof_offset
#   (-1: there is none; an entry below the queue's min offset needs none). Each turn has one PopClock. Its order:
#     1. pop_expire until it returns less than `most`; it sleeps until pop_next_due at the latest.
#     2. For each queue of pop_next_woken: looks at the held receives of that (group, topic, queue).
#     3. Requests, as below.
#     4. pop_next_commit until NULL, ten times a second: committed offsets go to the coordinator.
#     5. pop_flush, before an answer of this turn leaves. An error: acks and changes of this turn are
#        answered with an internal error, receives as not found; the messages come again.
#     6. pop_compact with a share of the turn.
#
#   A receive: pop_batch once; for each queue that it looks at, the topics of retries first:
#     q = pop_open(...)                        NULL: too many queues; refuse, 42900
#     pop_enter(s, q, &batch)                  POP_BLOCKED: next queue
#     while there is room in the answer:
#         offset = pop_peek(s, q, &batch, end) end: the queue's max offset now; POP_NOTHING: next queue;
#                                              POP_FULL: as nothing there, 42900 if nothing is ready
#         look at the queue entry and record of `offset`
#           gone, or the filter does not match: pop_settle(s, q, &batch, offset)  (many: pop_pass)
#           else pop_take(s, q, &batch, offset, &claim)     False: no memory; end the answer here
#             claim.exceeded: put it into the dead letters, and settle it when that is stored;
#                             else write it to the answer with claim's handle and attempts
#     pop_prove when the queue got new messages: the log position of the last one
#   All this in one turn, without another call between pop_batch and the last pop_take.
#   A receive that is held has no state here. Its connection may go before the answer is written: pop_drop.
#
#   An ack: handle_parse, pop_find, pop_ack. POP_OK and POP_STALE: OK. POP_EXPIRED: 40013. POP_UNKNOWN:
#   50001. A change of invisible time: pop_change. POP_OK: OK with the new handle. POP_STALE,
#   POP_EXPIRED: 40013. POP_ILLEGAL: 40011. A dead letter request: as an ack, behind the append's result.
#   A client that went (its end, its silence): pop_client_close until it returns False.
#   A commit or reset of the group's offset by others: pop_moved. Deleted group or topic: pop_forget_*.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.store.pop.state cimport PopClock, PopQueue, PopState

cdef enum PopOutcome:
    POP_OK = 0
    POP_STALE = 1                      # settled before, or a later handle has replaced this one
    POP_EXPIRED = 2                    # the same, or unknown, and its time is over (40013)
    POP_UNKNOWN = 3                    # no such delivery
    POP_BLOCKED = 4                    # PO6
    POP_ILLEGAL = 5                    # an invisible time out of 0 .. POP_INVISIBLE_MAX_MS

cdef enum:
    POP_NOTHING = -1                   # pop_peek
    POP_FULL = -2                      # PO9

cdef struct PopBatch:                  # a receive, for the length of a turn
    # the caller's
    int32_t client                     # NO_CLIENT, or of pop_client_open
    int32_t invisible_ms               # 1 .. POP_INVISIBLE_MAX_MS
    int32_t attempts_max               # more deliveries: PopClaim.exceeded; 0: no limit
    bint renew                         # PO7
    int32_t attempt_length             # 0: none; one above POP_ATTEMPT_ID_MAX counts as none
    const uint8_t* attempt_id
    # made here
    int64_t pop_ms                     # of all its messages
    int64_t now_ms
    bint again                         # PO6: the latest batch for the same attempt id
    int32_t cursor                     # PO6: the next one of the unsettled
    int32_t taken                      # of this queue

cdef struct PopClaim:                  # a delivery
    int64_t offset
    int64_t pop_ms
    int32_t invisible_ms
    int32_t attempts                   # with this one; a record's own reconsume times are not in it
    bint exceeded                      # attempts > attempts_max

cdef void pop_batch(PopState* s, PopBatch* batch, const PopClock* clock) noexcept nogil
cdef int pop_enter(PopState* s, PopQueue* q, PopBatch* batch) noexcept nogil
cdef int64_t pop_peek(const PopState* s, const PopQueue* q, const PopBatch* batch,
                      int64_t end) noexcept nogil
cdef bint pop_take(PopState* s, PopQueue* q, PopBatch* batch, int64_t offset,
                   PopClaim* claim) noexcept nogil
# An unsettled offset, or `next`, is settled; of others nothing changes. batch: the receive that looks at it,
# NULL: none.
cdef void pop_settle(PopState* s, PopQueue* q, PopBatch* batch, int64_t offset) noexcept nogil
# New messages below `until` are settled.
cdef void pop_pass(PopState* s, PopQueue* q, int64_t until) noexcept nogil
# Where the record of offset `next` - 1 is in the log (PO11).
cdef void pop_prove(PopState* s, PopQueue* q, int64_t log_position) noexcept nogil

# The outcome of an ack, without the ack.
cdef int pop_holds(const PopState* s, const PopQueue* q, int64_t offset, int64_t pop_ms,
                   int32_t invisible_ms, const PopClock* clock) noexcept nogil
cdef int pop_ack(PopState* s, PopQueue* q, int64_t offset, int64_t pop_ms, int32_t invisible_ms,
                 const PopClock* clock) noexcept nogil
# The delivery `claim` (offset, pop_ms, invisible_ms) is invisible from now on for new_ms; claim becomes its
# new name. FIFO keeps the pop time (pop.md 2).
cdef int pop_change(PopState* s, PopQueue* q, PopClaim* claim, int64_t new_ms,
                    const PopClock* clock) noexcept nogil
# A delivery whose answer was not written is visible in POP_DROP_MS; the attempt counts.
cdef void pop_drop(PopState* s, PopQueue* q, const PopClaim* claim,
                   const PopClock* clock) noexcept nogil

# How many became visible or were renewed, at most `most`.
cdef int32_t pop_expire(PopState* s, const PopClock* clock, int32_t most) noexcept nogil
cdef int64_t pop_next_due(const PopState* s) noexcept nogil        # steady; INT64_MAX: none
cdef PopQueue* pop_next_woken(PopState* s) noexcept nogil          # NULL: no more
# A queue whose committed offset has changed since it was taken last.
cdef PopQueue* pop_next_commit(PopState* s, int64_t* committed) noexcept nogil

# A client that holds messages; NO_CLIENT: too many, or no memory.
cdef int32_t pop_client_open(PopState* s) noexcept nogil
# Shows up to `most` of its messages (PO7); whether it has more. With the last one its number is free.
cdef bint pop_client_close(PopState* s, int32_t client, const PopClock* clock,
                           int32_t most) noexcept nogil
