"""Takes steps of handshakes beside the loop (shake_thread.pxd)."""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free

from mqcore.atomics cimport (
    exchange_i32,
    full_fence,
    load_i32_acquire,
    load_i64_acquire,
    store_i32_release,
    store_i64_release,
    swap_i64,
)
from mqcore.invariants cimport invariant
from mqcore.net.transport.tls_pipe cimport (
    PIPE_ASKED,
    PIPE_BACK,
    PIPE_HERE,
    PIPE_LEFT,
    PIPE_TAKEN,
    pipe_close,
    pipe_let_go,
    pipe_step,
)
from mqcore.shm.segment cimport doorbell_ring
from mqcore.threads cimport thread_begin, thread_end

cdef extern from "<sys/eventfd.h>" nogil:
    int eventfd(unsigned int count, int flags)
    int EFD_CLOEXEC

cdef extern from "<sys/socket.h>" nogil:
    int c_shutdown "shutdown"(int fd, int how)
    int SHUT_RDWR

cdef extern from "<unistd.h>" nogil:
    ssize_t sys_read "read"(int fd, void* data, size_t size)
    ssize_t sys_write "write"(int fd, const void* data, size_t size)
    int c_close "close"(int fd)

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <sched.h>
    #include <stdint.h>
    #include <sys/resource.h>
    #include <sys/syscall.h>
    #include <unistd.h>
    /* This thread wakes up behind others, gets little of a full core, and has long slices of it (where
       the kernel knows slices): whoever has shorter ones comes first. A kernel that knows no such thing
       has it as it was. It is so much nicer than its process, which has its own place among others. */
    static void mq_stand_back(int nicer) {
      id_t own = (id_t)syscall(SYS_gettid);
      int nice = getpriority(PRIO_PROCESS, own) + nicer;
      struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime_ns, deadline_ns, period_ns;
      } wanted = {.size = 48, .policy = SCHED_BATCH, .runtime_ns = 100000000};
      if (sched_getscheduler(0) == SCHED_IDLE) return;
      wanted.nice = nice = nice > 19 ? 19 : nice;
      if (syscall(SYS_sched_setattr, 0, &wanted, 0) != 0) setpriority(PRIO_PROCESS, own, nice);
    }
    """
    void mq_stand_back(int nicer) noexcept nogil


# -- the thread --------------------------------------------------------------------------------------

cdef void take_step(TlsPipe* pipe) noexcept nogil:
    if swap_i64(&pipe.state, PIPE_ASKED, PIPE_TAKEN):
        pipe_step(pipe)
        if swap_i64(&pipe.state, PIPE_TAKEN, PIPE_BACK):
            return
    pipe_let_go(pipe)                                                    # TL9
    c_close(pipe.fd)
    pipe.fd = -1


cdef void sleep_until_asked(ShakeThread* shaker) noexcept nogil:
    cdef int64_t rung
    store_i32_release(&shaker.asleep, 1)
    full_fence()                       # who asks sees that we sleep, or we see what is asked for
    if (load_i64_acquire(&shaker.asked_end) == shaker.back_end
            and not load_i32_acquire(&shaker.stop)):
        sys_read(shaker.bell, &rung, sizeof(rung))     # whatever it says, the ring is looked at again
    store_i32_release(&shaker.asleep, 0)


cdef void* run(void* argument) noexcept nogil:
    cdef ShakeThread* shaker = <ShakeThread*>argument
    mq_stand_back(SHAKE_NICE)
    while not load_i32_acquire(&shaker.stop):
        if load_i64_acquire(&shaker.asked_end) == shaker.back_end:
            sleep_until_asked(shaker)
            continue
        take_step(shaker.pipes[shaker.back_end & (SHAKE_DEPTH - 1)])
        store_i64_release(&shaker.back_end, shaker.back_end + 1)
        if load_i64_acquire(&shaker.asked_end) - shaker.back_end <= SHAKE_LEFT:
            doorbell_ring(shaker.slot)
    return NULL


# -- the loop ----------------------------------------------------------------------------------------

cdef ShakeThread* shake_thread_open(WorkerSlot* slot) noexcept nogil:
    cdef ShakeThread* shaker = <ShakeThread*>calloc(1, sizeof(ShakeThread))
    if shaker == NULL:
        return NULL
    shaker.slot = slot
    shaker.bell = eventfd(0, EFD_CLOEXEC)
    if shaker.bell < 0:
        free(shaker)
        return NULL
    if thread_begin(&shaker.thread, run, shaker) != 0:
        c_close(shaker.bell)
        free(shaker)
        return NULL
    return shaker


cdef void wake(ShakeThread* shaker) noexcept nogil:
    cdef int64_t one = 1
    full_fence()
    if load_i32_acquire(&shaker.asleep) and exchange_i32(&shaker.asleep, 0):
        sys_write(shaker.bell, &one, sizeof(one))      # fails only when it is rung already


cdef void let_go(TlsPipe* pipe) noexcept nogil:
    if pipe.fd >= 0:
        c_close(pipe.fd)
    pipe_close(pipe)


cdef void shake_thread_close(ShakeThread* shaker) noexcept nogil:
    if shaker == NULL:
        return
    store_i32_release(&shaker.stop, 1)
    wake(shaker)
    thread_end(shaker.thread)
    while shaker.took < shaker.asked_end:              # back or not
        let_go(shaker.pipes[shaker.took & (SHAKE_DEPTH - 1)])
        shaker.took += 1
    c_close(shaker.bell)
    free(shaker)


cdef bint shake_thread_has_room(const ShakeThread* shaker) noexcept nogil:
    return shaker.asked_end - shaker.took < SHAKE_DEPTH


cdef void shake_thread_ask(ShakeThread* shaker, TlsPipe* pipe) noexcept nogil:
    invariant("TL10", shake_thread_has_room(shaker))
    invariant("TL9", pipe.state == PIPE_HERE)
    store_i64_release(&pipe.state, PIPE_ASKED)
    shaker.pipes[shaker.asked_end & (SHAKE_DEPTH - 1)] = pipe
    store_i64_release(&shaker.asked_end, shaker.asked_end + 1)


cdef void shake_thread_wake(ShakeThread* shaker) noexcept nogil:
    wake(shaker)


cdef bint shake_thread_is_back(const ShakeThread* shaker) noexcept nogil:
    return load_i64_acquire(&shaker.back_end) > shaker.took


cdef TlsPipe* shake_thread_take(ShakeThread* shaker) noexcept nogil:
    cdef TlsPipe* pipe
    while shake_thread_is_back(shaker):
        pipe = shaker.pipes[shaker.took & (SHAKE_DEPTH - 1)]
        shaker.took += 1
        if swap_i64(&pipe.state, PIPE_BACK, PIPE_HERE):
            return pipe
        let_go(pipe)
    return NULL


cdef void shake_thread_leave(TlsPipe* pipe) noexcept nogil:
    cdef int64_t state = load_i64_acquire(&pipe.state)
    c_shutdown(pipe.fd, SHUT_RDWR)     # its peer hears it now, whenever the socket is closed
    while not swap_i64(&pipe.state, state, PIPE_LEFT):
        state = load_i64_acquire(&pipe.state)
