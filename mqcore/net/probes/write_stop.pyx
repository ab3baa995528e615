"""Stops the thread that first writes to a page of shared memory, until it is told to continue."""
from libc.stdint cimport int32_t, uint8_t, uintptr_t
from libc.string cimport memset

from mqcore.atomics cimport load_i32_acquire, store_i32_release
from mqcore.shm.segment cimport Segment, interest_byte
from mqcore.store.io cimport PAGE

cdef extern from "<signal.h>" nogil:
    int SIGSEGV
    int SA_SIGINFO
    ctypedef struct siginfo_t:
        void* si_addr
    ctypedef void (*Handler)(int number, siginfo_t* info, void* context) noexcept nogil
    struct sigaction_t "sigaction":
        Handler sa_sigaction
        int sa_flags
    int sigaction(int number, const sigaction_t* action, sigaction_t* before)

cdef extern from "<sys/mman.h>" nogil:
    int mprotect(void* address, size_t length, int protection)
    int PROT_READ
    int PROT_WRITE

cdef extern from "<unistd.h>" nogil:
    int usleep(unsigned int microseconds)

cdef enum:
    GUARDED = 1
    STOPPED = 2
    GOES_ON = 3
    NAP_US = 100
    NAPS_A_SECOND = 10_000

cdef uint8_t* page = NULL
cdef int32_t state = 0
cdef sigaction_t before


cdef void fault(int number, siginfo_t* info, void* context) noexcept nogil:
    """The write is tried again when this returns."""
    if not page <= <uint8_t*>info.si_addr < page + PAGE:
        sigaction(SIGSEGV, &before, NULL)
        return
    if load_i32_acquire(&state) == GUARDED:
        store_i32_release(&state, STOPPED)
        while load_i32_acquire(&state) == STOPPED:
            usleep(NAP_US)
    mprotect(page, PAGE, PROT_READ | PROT_WRITE)


cdef class WriteStop:
    """
    Stops the thread that first writes to a page of memory; others that do so pass. One stop at a
    time; `resume`, then `end`, in any case.
    """
    cdef Segment segment

    cdef int guard(self, uintptr_t at) except -1:
        """From now on they stop at the page that has this address."""
        global page, state
        cdef sigaction_t action
        memset(&action, 0, sizeof(action))
        action.sa_sigaction = fault
        action.sa_flags = SA_SIGINFO
        page = <uint8_t*>(at & ~<uintptr_t>(PAGE - 1))
        state = GUARDED
        if sigaction(SIGSEGV, &action, &before) != 0 or mprotect(page, PAGE, PROT_READ) != 0:
            raise OSError("the page cannot be guarded")
        return 0

    def wait(self, int seconds) -> bool:
        """Whether a thread has stopped there within the time."""
        cdef int nap
        with nogil:
            for nap in range(seconds * NAPS_A_SECOND):
                if load_i32_acquire(&state) == STOPPED:
                    break
                usleep(NAP_US)
        return load_i32_acquire(&state) == STOPPED

    def resume(self) -> None:
        """It writes, and all later writes pass."""
        if load_i32_acquire(&state) == GUARDED:
            mprotect(page, PAGE, PROT_READ | PROT_WRITE)
        store_i32_release(&state, GOES_ON)

    def end(self) -> None:
        """Faults are handled as before."""
        sigaction(SIGSEGV, &before, NULL)


cdef class InterestStop(WriteStop):
    """
    At the interest byte of a queue for a listener. Nothing else on that page may be written meanwhile.
    """

    def __init__(self, Segment segment not None, int listener, int32_t queue):
        self.segment = segment
        self.guard(<uintptr_t>interest_byte(&segment.shm, listener, queue))


cdef class ResultStop(WriteStop):
    """Where results of appends are published for a producer, or taken by it."""

    def __init__(self, Segment segment not None, int producer):
        self.segment = segment
        self.guard(<uintptr_t>(segment.shm.base + segment.shm.head.append_results[producer].start))
