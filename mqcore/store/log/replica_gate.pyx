"""The third gate of acknowledgements (replica_gate.pxd has the rules)."""
from libc.stdint cimport INT64_MAX, int32_t, int64_t
from libc.string cimport memset

from mqcore.atomics cimport load_i32_acquire, load_i64_acquire, store_i64_release
from mqcore.clock cimport steady_us
from mqcore.layout cimport (
    LATENCY_SLAVE_WAIT,
    LEADERSHIP_FOLLOWS,
    PUT_OK,
    PUT_SLAVE_NOT_AVAILABLE,
    PUT_SLAVE_TIMEOUT,
    SLOT_HA_MASTER,
    SLOT_WRITER,
)
from mqcore.shm.latency cimport latency_add, latency_of
from mqcore.shm.leadership cimport leadership_of
from mqcore.shm.ring cimport Ring, ring_publish_to, ring_release_to
from mqcore.shm.segment cimport Shm, doorbell_grew, doorbell_ring
from mqcore.store.log.put_results cimport producer_wake, results_mark, results_wait

cdef enum:
    WAITS = -1


cdef void gate_open(Gate* gate, Shm* shm, int64_t timeout_ms,
                    int64_t fallbehind_bytes) noexcept nogil:
    memset(gate, 0, sizeof(Gate))
    gate.shm = shm
    gate.words = shm.replica_gate
    gate.waits = latency_of(shm.latencies, SLOT_WRITER, LATENCY_SLAVE_WAIT)
    gate.timeout_ms = timeout_ms
    gate.fallbehind_bytes = fallbehind_bytes


cdef void gate_configure(Gate* gate, int64_t timeout_ms,
                         int64_t fallbehind_bytes) noexcept nogil:
    store_i64_release(&gate.timeout_ms, timeout_ms)
    store_i64_release(&gate.fallbehind_bytes, fallbehind_bytes)


cdef bint gate_usable(Gate* gate, int64_t position) noexcept nogil:
    return load_i32_acquire(&gate.words.present) and (
        position - load_i64_acquire(&gate.words.replicated) < gate.fallbehind_bytes)


cdef inline GateMark* mark_at(GateQueue* queue, int64_t number) noexcept nogil:
    return &queue.marks[number % GATE_MARKS]


cdef inline int32_t verdict(Gate* gate, const GateMark* mark, int64_t now_ms) noexcept nogil:
    """The PutStatus that those who wait for it get now (G5), or WAITS."""
    cdef bint is_late
    if load_i64_acquire(&gate.words.replicated) >= mark.position:
        return PUT_OK
    if mark.unusable:
        return PUT_SLAVE_NOT_AVAILABLE
    is_late = now_ms >= mark.deadline_ms or leadership_of(
        &gate.shm.leadership.role) == LEADERSHIP_FOLLOWS
    return PUT_SLAVE_TIMEOUT if is_late else WAITS


cdef int64_t gate_end(Gate* gate, int p, const Ring* results) noexcept nogil:
    cdef GateQueue* queue = &gate.queues[p]
    return (results.cursors.tail if queue.first == queue.end
            else mark_at(queue, queue.end - 1).results)


cdef void answer_gated(Gate* gate, const GateMark* mark, int64_t start, Ring* results,
                 int32_t status, int64_t now_us) noexcept nogil:
    if status != PUT_OK:
        gate.missed += results_mark(results, start, mark.results, status, True)
    if status != PUT_SLAVE_NOT_AVAILABLE:
        latency_add(gate.waits, now_us - mark.began_us, 1)


cdef void hold(Gate* gate, int p, Ring* results, const Ring* requests,
               int64_t position) noexcept nogil:
    """The results of this turn behind those that wait (G6)."""
    cdef GateQueue* queue = &gate.queues[p]
    cdef int64_t start = gate_end(gate, p, results)
    cdef int64_t now_us
    cdef GateMark* mark
    cdef bint waits
    if results.position == start:
        return
    waits = results_wait(results, start)
    if queue.first == queue.end and not waits:
        return
    if waits and queue.end - queue.first < GATE_MARKS:
        queue.end += 1
        mark_at(queue, queue.end - 1).unusable = True
        mark_at(queue, queue.end - 1).began_us = INT64_MAX
    mark = mark_at(queue, queue.end - 1)
    mark.results = results.position
    mark.requests = requests.position
    if waits:
        mark.position = position
        mark.unusable = mark.unusable and not gate_usable(gate, position)
        now_us = steady_us()
        mark.began_us = min(mark.began_us, now_us)
        mark.deadline_ms = now_us // 1000 + gate.timeout_ms


cdef void gate_turn(Gate* gate, int p, int producer, Ring* results, Ring* requests,
                    int64_t position) noexcept nogil:
    cdef GateQueue* queue = &gate.queues[p]
    cdef GateMark* mark
    cdef int64_t out = results.position, taken = requests.position, now_us = 0
    cdef int32_t status
    cdef bint wakes
    hold(gate, p, results, requests, position)
    if queue.first != queue.end:
        now_us = steady_us()
    while queue.first != queue.end:
        mark = mark_at(queue, queue.first)
        status = verdict(gate, mark, now_us // 1000)
        if status == WAITS:
            out = results.cursors.tail
            taken = requests.cursors.head
            break
        answer_gated(gate, mark, results.cursors.tail, results, status, now_us)
        ring_publish_to(results, mark.results)
        if ring_release_to(requests, mark.requests):
            producer_wake(gate.shm, producer)
        queue.first += 1
        producer_wake(gate.shm, producer)
    wakes = ring_publish_to(results, out)
    if ring_release_to(requests, taken) or wakes:                        # G7
        producer_wake(gate.shm, producer)


cdef void gate_ring(Gate* gate, int64_t waiting) noexcept nogil:
    if (gate != NULL and gate.rings_ahead and waiting
            and load_i32_acquire(&gate.words.present)):
        doorbell_grew(&gate.shm.slots[SLOT_HA_MASTER])


cdef void gate_give_up(Gate* gate, int p, Ring* results) noexcept nogil:
    cdef GateQueue* queue = &gate.queues[p]
    cdef GateMark* mark
    cdef int64_t start = results.cursors.tail
    while queue.first != queue.end:
        mark = mark_at(queue, queue.first)
        answer_gated(gate, mark, start, results, verdict(gate, mark, INT64_MAX), steady_us())
        start = mark.results
        queue.first += 1


cdef int64_t gate_wait_ms(Gate* gate, int producers, int64_t most) noexcept nogil:
    cdef int64_t now_ms = 0
    cdef GateMark* mark
    cdef int p
    for p in range(producers):
        if gate.queues[p].first == gate.queues[p].end:
            continue
        now_ms = now_ms if now_ms else steady_us() // 1000
        mark = mark_at(&gate.queues[p], gate.queues[p].first)
        if verdict(gate, mark, now_ms) != WAITS:
            return 0
        most = min(most, mark.deadline_ms - now_ms)
    return most
