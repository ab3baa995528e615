"""Group commit and its watcher (group_commit.pxd has the rules)."""
from libc.errno cimport errno
from libc.stdint cimport int64_t

from mqcore.atomics cimport (
    load_i32_acquire,
    load_i64_acquire,
    store_i32_release,
    store_i64_release,
    swap_i64,
)
from mqcore.clock cimport steady_ms, steady_us
from mqcore.layout cimport (
    LATENCY_FLUSH,
    PUT_FLUSH_TIMEOUT,
    PUT_SLAVE_NOT_AVAILABLE,
    SLOT_WRITER,
)
from mqcore.shm.latency cimport latency_add, latency_of
from mqcore.shm.ring cimport Ring
from mqcore.shm.segment cimport Shm
from mqcore.store.io cimport store_io
from mqcore.store.log.bell cimport bell_close, bell_make, bell_ring, bell_wait
from mqcore.store.log.checksums cimport ChecksumFile, checksums_push
from mqcore.store.log.put_results cimport results_mark, results_publish
from mqcore.store.log.replica_gate cimport gate_end, gate_give_up, gate_usable

cdef extern from "<unistd.h>" nogil:
    int usleep(unsigned int microseconds)

cdef enum:
    IDLE = 0
    SYNCING = 1
    TAKEN = 2
    ANSWERED = 3
    PHASES = 4
    ANSWERING_US = 20


cdef void group_commit_open(GroupCommit* group, Shm* shm, Ring* results, const int* producer,
                            int producers, int64_t timeout_ms) noexcept nogil:
    group.shm = shm
    group.results = results
    group.producer = producer
    group.producers = producers
    group.gate = NULL
    group.timeout_ms = timeout_ms
    group.phase = IDLE
    group.deadline_ms = 0
    group.timeouts = 0
    group.synced_us = 0
    group.stop = 0
    group.bell = bell_make()


cdef void group_commit_close(GroupCommit* group) noexcept nogil:
    bell_close(group.bell)


cdef int group_sync(GroupCommit* group, int fd, ChecksumFile* checksums) noexcept nogil:
    cdef int64_t syncing = group.phase + SYNCING
    cdef int64_t idle = group.phase + PHASES
    cdef int error = 0
    cdef int64_t began_us = steady_us()
    store_i64_release(&group.deadline_ms, began_us // 1000 + group.timeout_ms)
    store_i64_release(&group.phase, syncing)
    if checksums != NULL:
        error = checksums_push(checksums)
    if error == 0 and store_io().sync_data(fd) != 0:
        error = errno
    group.synced_us = steady_us()
    latency_add(latency_of(group.shm.latencies, SLOT_WRITER, LATENCY_FLUSH),
                group.synced_us - began_us, 1)
    if not swap_i64(&group.phase, syncing, idle):                        # G1: the watcher has it
        while load_i64_acquire(&group.phase) % PHASES != ANSWERED:       # G2
            usleep(ANSWERING_US)
        store_i64_release(&group.phase, idle)
    return error


cdef void answer_group(GroupCommit* group) noexcept nogil:
    """Those who wait hear that the disk is late; the rest is answered as it is (G3)."""
    cdef int p, status = PUT_FLUSH_TIMEOUT
    cdef int64_t marked = 0, start
    if group.gate != NULL and not gate_usable(
            group.gate, load_i64_acquire(&group.shm.log.published)):
        status = PUT_SLAVE_NOT_AVAILABLE                                 # replica_gate G8
    for p in range(group.producers):
        start = group.results[p].cursors.tail
        if group.gate != NULL:                                           # replica_gate G8
            start = gate_end(group.gate, p, &group.results[p])
            gate_give_up(group.gate, p, &group.results[p])
        marked += results_mark(&group.results[p], start, group.results[p].position,
                               status, True)
        results_publish(group.shm, &group.results[p], group.producer[p])
    store_i64_release(&group.timeouts, group.timeouts + marked)


cdef void group_watch(GroupCommit* group) noexcept nogil:
    cdef int64_t seen, wait_ms
    while not load_i32_acquire(&group.stop):
        seen = load_i64_acquire(&group.phase)
        wait_ms = group.timeout_ms                                       # G4
        if seen % PHASES == SYNCING:
            wait_ms = load_i64_acquire(&group.deadline_ms) - steady_ms()
            if wait_ms <= 0:
                if swap_i64(&group.phase, seen, seen - SYNCING + TAKEN):
                    answer_group(group)
                    store_i64_release(&group.phase, seen - SYNCING + ANSWERED)
                continue
        bell_wait(group.bell, wait_ms)


cdef void group_configure(GroupCommit* group, int64_t timeout_ms) noexcept nogil:
    store_i64_release(&group.timeout_ms, timeout_ms)
    bell_ring(group.bell)              # G4: the watcher looks in time for the next sync's deadline


cdef void group_stop(GroupCommit* group) noexcept nogil:
    store_i32_release(&group.stop, 1)
    bell_ring(group.bell)
