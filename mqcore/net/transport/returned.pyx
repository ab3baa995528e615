"""Gives pages of large buffers back to the system, in parts."""
from libc.stdint cimport int64_t
from libc.stdlib cimport free

cdef extern from *:
    """
    #include <stdint.h>
    #include <sys/mman.h>
    #include <unistd.h>
    /* Whole pages inside of a buffer: the system takes them now, the address range stays. An advice:
       where it is refused, the pages go with the range. */
    static void mq_pages_away(void *buffer, int64_t bytes) {
      uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
      uintptr_t from = ((uintptr_t)buffer + page - 1) / page * page;
      uintptr_t until = ((uintptr_t)buffer + (uintptr_t)bytes) / page * page;
      if (until > from) (void)madvise((void *)from, until - from, MADV_DONTNEED);
    }
    """
    void mq_pages_away(void* buffer, int64_t bytes) noexcept nogil


cdef bint returned_add(Returned* r, void* buffer, int64_t bytes) noexcept nogil:
    cdef Waiting* one = <Waiting*>buffer
    if buffer == NULL or bytes < LARGE_BYTES:
        free(buffer)
        return False
    one.next = r.first
    one.bytes = bytes
    r.first = one
    r.bytes += bytes
    return True


cdef int64_t returned_give(Returned* r, int64_t wanted) noexcept nogil:
    cdef int64_t given = 0, bytes
    cdef Waiting* one
    while given < wanted and r.first != NULL:
        one = r.first
        bytes = one.bytes
        r.first = one.next
        mq_pages_away(one, bytes)
        free(one)
        given += bytes
    r.bytes -= given
    return given
