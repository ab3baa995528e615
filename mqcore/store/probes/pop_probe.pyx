"""For tests: the state of POP by calls from Python, and its figures."""
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free

from mqcore.clock cimport steady_us
from mqcore.store.pop.handles cimport RECEIPT_MAX, Receipt, receipt_parse, receipt_write
from mqcore.store.pop.journal cimport pop_compact, pop_flush
from mqcore.store.pop.journal_read cimport pop_journal_open
from mqcore.store.pop.messages cimport committed_of, message_at
from mqcore.store.pop.pop cimport (
    PopBatch,
    PopClaim,
    pop_ack,
    pop_batch,
    pop_change,
    pop_client_close,
    pop_client_open,
    pop_drop,
    pop_enter,
    pop_expire,
    pop_next_commit,
    pop_next_due,
    pop_next_woken,
    pop_pass,
    pop_peek,
    pop_prove,
    pop_settle,
    pop_take,
)
from mqcore.store.pop.queues cimport (
    PopPlace,
    pop_begin,
    pop_confirm,
    pop_end,
    pop_find,
    pop_forget_group,
    pop_forget_topic,
    pop_moved,
    pop_open,
)
from mqcore.store.pop.state cimport PopClock, PopQueue, PopState

cdef enum:
    BENCH_BATCH = 32


cdef class PopProbe:
    """One state. A key is (group, topic, queue id); a clock is (steady ms, wall ms)."""

    cdef PopState* s
    cdef PopBatch batch_now
    cdef bytes attempt

    def __cinit__(self, int queue_max=64, int messages_max=1 << 20):
        self.s = <PopState*>calloc(1, sizeof(PopState))
        if self.s == NULL or not pop_begin(self.s, queue_max, messages_max):
            raise ValueError("limits out of bounds, or no memory")

    def __dealloc__(self):
        if self.s != NULL:
            pop_end(self.s)
            free(self.s)

    cdef PopClock clock(self, tuple at) except *:
        return PopClock(steady_ms=at[0], wall_ms=at[1])

    cdef PopQueue* queue(self, tuple key) except NULL:
        cdef bytes group = key[0], topic = key[1]
        cdef PopQueue* q = pop_find(self.s, group, len(group), topic, len(topic), key[2])
        if q == NULL:
            raise KeyError(key)
        return q

    def journal(self, bytes path, bytes boot, tuple at):
        """(errno, where the file is torn or -1)"""
        cdef PopClock clock = self.clock(at)
        cdef int error = pop_journal_open(self.s, path, boot, &clock)
        return error, self.s.journal.torn_at

    def flush(self, tuple at):
        cdef PopClock clock = self.clock(at)
        return pop_flush(self.s, &clock)

    def compact(self, tuple at, int64_t most):
        cdef PopClock clock = self.clock(at)
        pop_compact(self.s, &clock, most)

    @property
    def file_size(self):
        return self.s.journal.now.size

    def open(self, tuple key, *, int64_t life=0, int64_t least=0, int64_t end=1 << 40,
             int64_t committed=-1, int64_t start=0, bint fifo=False):
        cdef bytes group = key[0], topic = key[1]
        cdef PopPlace place
        place.group, place.group_length = group, len(group)
        place.topic, place.topic_length = topic, len(topic)
        place.queue_id = key[2]
        place.life, place.least, place.end = life, least, end
        place.committed, place.start, place.fifo = committed, start, fifo
        return pop_open(self.s, &place) != NULL

    def has(self, tuple key):
        cdef bytes group = key[0], topic = key[1]
        return pop_find(self.s, group, len(group), topic, len(topic), key[2]) != NULL

    def forget_group(self, bytes group):
        pop_forget_group(self.s, group, len(group))

    def forget_topic(self, bytes topic):
        pop_forget_topic(self.s, topic, len(topic))

    def moved(self, tuple key, int64_t offset):
        pop_moved(self.s, self.queue(key), offset)

    def batch(self, tuple at, *, int32_t client=-1, int32_t invisible_ms=1000,
              int32_t attempts_max=0, bint renew=False, bytes attempt=b""):
        cdef PopClock clock = self.clock(at)
        self.attempt = attempt
        self.batch_now.client = client
        self.batch_now.invisible_ms = invisible_ms
        self.batch_now.attempts_max = attempts_max
        self.batch_now.renew = renew
        self.batch_now.attempt_id = self.attempt
        self.batch_now.attempt_length = len(attempt)
        pop_batch(self.s, &self.batch_now, &clock)
        return self.batch_now.pop_ms

    def enter(self, tuple key):
        return pop_enter(self.s, self.queue(key), &self.batch_now)

    def peek(self, tuple key, int64_t end):
        return pop_peek(self.s, self.queue(key), &self.batch_now, end)

    def take(self, tuple key, int64_t offset):
        """(offset, pop time, invisible, attempts, exceeded), None: refused"""
        cdef PopClaim claim
        if not pop_take(self.s, self.queue(key), &self.batch_now, offset, &claim):
            return None
        return claim.offset, claim.pop_ms, claim.invisible_ms, claim.attempts, claim.exceeded

    def settle(self, tuple key, int64_t offset, bint looked=False):
        pop_settle(self.s, self.queue(key), &self.batch_now if looked else NULL, offset)

    def settle_new(self, tuple key, int64_t until):
        pop_pass(self.s, self.queue(key), until)

    def prove(self, tuple key, int64_t position):
        pop_prove(self.s, self.queue(key), position)

    def proof(self, tuple key):
        cdef PopQueue* q = self.queue(key)
        return q.proof_offset, q.proof_position

    def confirm(self, tuple key, int64_t position):
        pop_confirm(self.s, self.queue(key), position)

    def ack(self, tuple key, tuple claim, tuple at):
        cdef PopClock clock = self.clock(at)
        return pop_ack(self.s, self.queue(key), claim[0], claim[1], claim[2], &clock)

    def change(self, tuple key, tuple claim, int64_t new_ms, tuple at):
        """(outcome, the new claim)"""
        cdef PopClock clock = self.clock(at)
        cdef PopClaim now = PopClaim(offset=claim[0], pop_ms=claim[1], invisible_ms=claim[2],
                                     attempts=0, exceeded=False)
        cdef int outcome = pop_change(self.s, self.queue(key), &now, new_ms, &clock)
        return outcome, (now.offset, now.pop_ms, now.invisible_ms, now.attempts, False)

    def drop(self, tuple key, tuple claim, tuple at):
        cdef PopClock clock = self.clock(at)
        cdef PopClaim now = PopClaim(offset=claim[0], pop_ms=claim[1], invisible_ms=claim[2],
                                     attempts=0, exceeded=False)
        pop_drop(self.s, self.queue(key), &now, &clock)

    def expire(self, tuple at, int32_t most=1 << 20):
        cdef PopClock clock = self.clock(at)
        return pop_expire(self.s, &clock, most)

    def next_due(self):
        cdef int64_t due_ms = pop_next_due(self.s)
        return None if due_ms == INT64_MAX else due_ms

    def woken(self):
        cdef list found = []
        cdef PopQueue* q = pop_next_woken(self.s)
        while q != NULL:
            found.append(self.key(q))
            q = pop_next_woken(self.s)
        return found

    def commits(self):
        cdef dict found = {}
        cdef int64_t committed = 0
        cdef PopQueue* q = pop_next_commit(self.s, &committed)
        while q != NULL:
            found[self.key(q)] = committed
            q = pop_next_commit(self.s, &committed)
        return found

    cdef tuple key(self, PopQueue* q):
        cdef bytes names = q.names[:q.group_length + q.topic_length]
        return names[:q.group_length], names[q.group_length:], q.queue_id

    def client_open(self):
        return pop_client_open(self.s)

    def client_close(self, int32_t client, tuple at, int32_t most=1 << 20):
        cdef PopClock clock = self.clock(at)
        return pop_client_close(self.s, client, &clock, most)

    def offsets(self, tuple key):
        """(committed, next, the unsettled offsets)"""
        cdef PopQueue* q = self.queue(key)
        cdef list found = []
        cdef int32_t message = q.first
        while message >= 0:
            found.append(message_at(self.s, message).offset)
            message = message_at(self.s, message).next
        return committed_of(self.s, q), q.next, found

    def check(self):
        """Whether heap, lists and counts say the same of every queue."""
        cdef int32_t i, message, count, invisible, ready
        cdef PopQueue* q
        cdef int32_t total = 0
        for i in range(self.s.heap_count):
            if message_at(self.s, self.s.heap[i].message).place != i:
                return False
            if i and self.s.heap[(i - 1) // 2].due_ms > self.s.heap[i].due_ms:
                return False
        for i in range(self.s.queue_room):
            q = self.s.queues[i]
            if q == NULL:
                continue
            count = invisible = ready = 0
            message = q.first
            while message >= 0:
                count += 1
                invisible += message_at(self.s, message).place >= 0
                message = message_at(self.s, message).next
            message = q.ready_first
            while message >= 0:
                ready += 1
                message = message_at(self.s, message).right
            if (count, invisible, count - invisible) != (q.count, q.invisible, ready):
                return False
            total += count
        return total == self.s.count

    def measure(self, tuple key, int32_t in_flight, int64_t count, bint noted):
        """ns for a delivery with its ack, of `count`, while so many more are in flight"""
        cdef PopQueue* q = self.queue(key)
        cdef PopClock clock = PopClock(steady_ms=1000, wall_ms=1 << 40)
        cdef PopBatch batch
        cdef PopClaim claims[BENCH_BATCH]
        cdef int64_t begin, done = 0, stuck = 0
        cdef int i
        batch.client, batch.invisible_ms, batch.attempts_max = -1, 60_000, 0
        batch.renew, batch.attempt_length, batch.attempt_id = False, 0, NULL
        pop_batch(self.s, &batch, &clock)
        pop_enter(self.s, q, &batch)
        while stuck < in_flight and pop_take(self.s, q, &batch, q.next, &claims[0]):
            stuck += 1
        begin = steady_us()
        while done < count:
            pop_batch(self.s, &batch, &clock)
            pop_enter(self.s, q, &batch)
            for i in range(BENCH_BATCH):
                pop_take(self.s, q, &batch, pop_peek(self.s, q, &batch, INT64_MAX), &claims[i])
            for i in range(BENCH_BATCH):
                pop_ack(self.s, q, claims[i].offset, claims[i].pop_ms, 60_000, &clock)
            if noted:
                pop_flush(self.s, &clock)
                pop_compact(self.s, &clock, 1 << 16)
            done += BENCH_BATCH
        return 1000 * (steady_us() - begin) / done


def receipt_text(tuple fields, bytes broker, tuple place):
    cdef uint8_t text[RECEIPT_MAX]
    cdef Receipt receipt
    (receipt.start_offset, receipt.pop_ms, receipt.invisible_ms, receipt.revive_queue,
     receipt.topic_kind) = fields
    receipt.broker, receipt.broker_length = broker, len(broker)
    receipt.queue_id, receipt.offset, receipt.log_position = place
    return <bytes>text[:receipt_write(&receipt, text)]


def receipt_fields(bytes text):
    """As receipt_text takes them, None: no handle."""
    cdef Receipt receipt
    if not receipt_parse(text, <int32_t>len(text), &receipt):
        return None
    return ((receipt.start_offset, receipt.pop_ms, receipt.invisible_ms, receipt.revive_queue,
             receipt.topic_kind), <bytes>receipt.broker[:receipt.broker_length],
            (receipt.queue_id, receipt.offset, receipt.log_position))
