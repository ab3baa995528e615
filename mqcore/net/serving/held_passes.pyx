"""Passes over the pulls of a queue, and the walk over all held pulls (held H3, H7)."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.atomics cimport load_i32_acquire, store_u8_release
from mqcore.layout cimport Arrival
from mqcore.net.serving.cold cimport cold_finished
from mqcore.net.serving.held cimport adopt, answer_from_disk, check_pull
from mqcore.net.serving.held_places cimport (
    HELD_PLACE,
    HELD_POSTPONED,
    HELD_WORK,
    WALK_WORK,
    HeldPull,
    held_release,
    held_unlink,
    interest_in,
    unborn,
)
from mqcore.net.transport.transport cimport LIFE_DOOMED, connection_find, takes_output
from mqcore.net.transport.work cimport work_defer, work_is_over
from mqcore.shm.ring cimport ring_next, ring_release


cdef void begin_pass(HeldPulls* held, int32_t queue) noexcept nogil:
    if held.of_queue[queue] == 0:
        if queue != unborn(held):
            store_u8_release(interest_in(held, queue), 0)
        return
    held.passes[queue] += 1
    if held.in_pass[queue]:
        return
    held.in_pass[queue] = True
    held.pass_queues[(held.pass_first + held.pass_count) % (held.shm.head.queue_capacity + 1)] = queue
    held.pass_count += 1


cdef bint continue_pass(HeldPulls* held, int32_t queue, int64_t work_end) noexcept nogil:
    """The queue's pulls that were not looked at in its pass; False: some are left."""
    cdef int32_t number
    cdef HeldPull* pull
    while held.of_queue[queue]:
        number = held.of_queue[queue] - 1
        pull = &held.places[number]
        if pull.pass_seen == held.passes[queue]:
            return True
        if held.transport.work >= work_end:
            return False
        pull.pass_seen = held.passes[queue]
        held.of_queue[queue] = pull.links[HELD_PLACE].next + 1
        if pull.queue < 0:
            adopt(held, number)
        else:
            check_pull(held, number)
    return True


cdef void run_passes(HeldPulls* held) noexcept nogil:
    cdef int64_t work_end = held.transport.work + HELD_WORK
    cdef int32_t queue
    cdef int32_t places = held.shm.head.queue_capacity + 1
    while held.pass_count > 0 and held.transport.work < work_end:
        queue = held.pass_queues[held.pass_first]
        held.pass_first = (held.pass_first + 1) % places
        held.pass_count -= 1
        held.in_pass[queue] = False
        if not continue_pass(held, queue, work_end):
            held.in_pass[queue] = True
            held.pass_queues[(held.pass_first + held.pass_count) % places] = queue
            held.pass_count += 1


cdef void check_postponed(HeldPulls* held, Connection* c) noexcept nogil:
    cdef int32_t number
    while c.postponed and not work_is_over(held.transport, c) and takes_output(held.transport, c):
        number = c.postponed - 1
        held_unlink(held, HELD_POSTPONED, &c.postponed, number)
        held.places[number].postponed = False
        check_pull(held, number)
        if c.life == LIFE_DOOMED:
            return
    if c.postponed and takes_output(held.transport, c):
        work_defer(held.transport, c)


cdef void continue_cold(HeldPulls* held) noexcept nogil:
    """Pulls whose reads are finished go on; those that wait for more stay."""
    cdef int32_t i, number
    cdef int64_t finished = cold_finished(held.reader.cold_reader)
    cdef HeldPull* pull
    for i in range(held.cold_count):
        if held.cold == 0:
            return
        number = held.cold - 1
        pull = &held.places[number]
        held.cold = pull.links[HELD_PLACE].next + 1
        if pull.cold_job <= finished and answer_from_disk(
                held, connection_find(held.transport, pull.connection), pull):
            held_release(held, number)


cdef void take_arrivals(HeldPulls* held) noexcept nogil:
    cdef uint8_t* record
    cdef int32_t kind
    while ring_next(&held.arrivals, &record, &kind) >= 0:
        if held.of_queue[unborn(held)] and (
                load_i32_acquire(&held.shm.head.queue_count) != held.queues_known):
            held.queues_known = load_i32_acquire(&held.shm.head.queue_count)
            begin_pass(held, unborn(held))
        begin_pass(held, (<Arrival*>record).queue)
        if held.other != NULL:
            held.arrived(held.other, (<Arrival*>record).queue)
    ring_release(&held.arrivals)


cdef void walk_held(HeldPulls* held) noexcept nogil:
    """Deadlines (held H3), and each pull once a second: an arrival may have found no room."""
    cdef int64_t work_end = held.transport.work + HELD_WORK
    cdef int32_t number
    cdef HeldPull* pull
    while held.walk < held.used and held.transport.work < work_end:
        number = held.walk
        held.walk += 1
        held.transport.work += WALK_WORK
        pull = &held.places[number]
        if pull.connection == 0 or pull.cold_job:
            continue
        if (held.transport.steady_ms >= pull.deadline_ms or pull.looked_ms < held.look_ms
                or held.transport.stopping
                or (pull.cursor > pull.offset and held.transport.steady_ms >= pull.tell_ms)):
            if pull.queue < 0:
                adopt(held, number)
            else:
                check_pull(held, number)
