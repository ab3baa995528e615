"""For tests: a disk on which calls hang for as long as a word in a shared file says so."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.atomics cimport load_i32_acquire, store_i32_release
from mqcore.store.io cimport StoreIo, io_replace, store_io

cdef extern from "<unistd.h>" nogil:
    int usleep(unsigned int microseconds)

cdef enum:
    LOOK_US = 500
    PLACE_STALL = 0                    # i32: 1 = syncs hang
    PLACE_WRITES = 1                   # i32: 1 = writes hang
    PLACE_HANGING = 2                  # i32: how many hang now
    PLACE_OPEN = 3                     # i32: 1 = the next open hangs, 2 = it hangs
    PLACE_READS = 4                    # i32: 1 = reads fail

cdef StoreIo stalling
cdef StoreIo* stalled_io = NULL
cdef int32_t* words = NULL
cdef object installed = None


cdef void wait_while(int32_t* word) noexcept nogil:
    if load_i32_acquire(word):
        store_i32_release(&words[PLACE_HANGING], words[PLACE_HANGING] + 1)
        while load_i32_acquire(word):
            usleep(LOOK_US)
        store_i32_release(&words[PLACE_HANGING], words[PLACE_HANGING] - 1)


cdef int stalled_open(const char* path, int flags, int mode) noexcept nogil:
    if load_i32_acquire(&words[PLACE_OPEN]) == 1:
        store_i32_release(&words[PLACE_OPEN], 2)
        wait_while(&words[PLACE_OPEN])
    return stalled_io.open_file(path, flags, mode)


cdef int stalled_sync(int fd) noexcept nogil:
    wait_while(&words[PLACE_STALL])
    return stalled_io.sync_data(fd)


cdef ssize_t stalled_write(int fd, const void* data, size_t size, int64_t offset) noexcept nogil:
    wait_while(&words[PLACE_WRITES])
    return stalled_io.write_at(fd, data, size, offset)


cdef ssize_t stalled_read(int fd, void* data, size_t size, int64_t offset) noexcept nogil:
    return stalled_io.read_at(-1 if load_i32_acquire(&words[PLACE_READS]) else fd, data, size, offset)


cdef class Stall:
    """
    The words that say what hangs or fails, in `memory`: writable, shared with their writers, at least
    20 bytes, kept for as long as the process lives. `install` puts the hanging disk in place, here
    and in every process forked later; a process that only turns the words does not call it.
    """
    cdef object memory
    cdef uint8_t[::1] view
    cdef int32_t* own

    def __init__(self, memory):
        self.memory = memory
        self.view = memory
        self.own = <int32_t*>&self.view[0]

    def install(self) -> None:
        """Every sync and write of the store goes through the words from now on."""
        global stalled_io, words, stalling, installed
        if stalled_io != NULL:
            raise RuntimeError("a stalling disk is there already")
        stalled_io = store_io()
        words = self.own
        installed = self                # its memory stays
        stalling = stalled_io[0]
        stalling.open_file = stalled_open
        stalling.sync_data = stalled_sync
        stalling.write_at = stalled_write
        stalling.read_at = stalled_read
        io_replace(&stalling)

    def remove(self) -> None:
        """The disk as it was before `install`; nothing may hang any more."""
        global stalled_io
        io_replace(stalled_io)
        stalled_io = NULL

    def syncs(self, bint hang) -> None:
        """Let syncs hang, or go on."""
        store_i32_release(&self.own[PLACE_STALL], hang)

    def writes(self, bint hang) -> None:
        """Let writes hang, or go on."""
        store_i32_release(&self.own[PLACE_WRITES], hang)

    def next_open(self, bint hang) -> None:
        """Let the next open hang, and none behind it; or let that one continue."""
        store_i32_release(&self.own[PLACE_OPEN], hang)

    def reads(self, bint fail) -> None:
        """Let reads fail with EBADF, or pass again."""
        store_i32_release(&self.own[PLACE_READS], fail)

    def hanging(self) -> int:
        """How many calls hang now."""
        return load_i32_acquire(&self.own[PLACE_HANGING])
