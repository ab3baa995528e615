"""
Counts the Python objects that a process makes, into its slot in shared memory.

For the test that hot paths make none: with MQCORE_COUNT_ALLOCATIONS=1 every worker puts a counting
step before the interpreter's own allocators of objects and their parts (the domains `obj` and `mem`;
both are only called with the GIL held, so a plain word will do).
"""
from libc.stdint cimport int64_t

from mqcore.layout cimport FIGURE_ALLOCATIONS, FIGURE_TURNS
from mqcore.shm.segment cimport Segment

cdef extern from *:
    """
    #include <Python.h>
    static PyMemAllocatorEx mq_object_allocator, mq_part_allocator;
    static int64_t *mq_allocations;

    static void *mq_count_malloc(void *context, size_t size) {
      PyMemAllocatorEx *real = context;
      ++*mq_allocations;
      return real->malloc(real->ctx, size);
    }
    static void *mq_count_calloc(void *context, size_t count, size_t size) {
      PyMemAllocatorEx *real = context;
      ++*mq_allocations;
      return real->calloc(real->ctx, count, size);
    }
    static void *mq_count_realloc(void *context, void *memory, size_t size) {
      PyMemAllocatorEx *real = context;
      ++*mq_allocations;
      return real->realloc(real->ctx, memory, size);
    }
    static void mq_pass_free(void *context, void *memory) {
      PyMemAllocatorEx *real = context;
      real->free(real->ctx, memory);
    }
    static void mq_count_in(PyMemAllocatorDomain domain, PyMemAllocatorEx *real) {
      PyMemAllocatorEx counting = {real, mq_count_malloc, mq_count_calloc, mq_count_realloc,
                                   mq_pass_free};
      PyMem_GetAllocator(domain, real);
      PyMem_SetAllocator(domain, &counting);
    }
    static void mq_count_allocations(int64_t *into) {
      mq_allocations = into;
      mq_count_in(PYMEM_DOMAIN_OBJ, &mq_object_allocator);
      mq_count_in(PYMEM_DOMAIN_MEM, &mq_part_allocator);
    }
    """
    void mq_count_allocations(int64_t* into)

cdef Segment counted = None           # keeps the memory mapped into which is counted


def count_into(Segment segment not None, int slot) -> None:
    """
    Count this process's allocations into its slot's figure FIGURE_ALLOCATIONS until it ends.

    Raises RuntimeError when it is called a second time: the steps would count twice.
    """
    global counted
    if counted is not None:
        raise RuntimeError("allocations of this process are counted already")
    counted = segment
    mq_count_allocations(&segment.shm.slots[slot].figures[FIGURE_ALLOCATIONS])


def count_turn(Segment segment not None, int slot) -> None:
    """Count a return of the process of `slot` to the interpreter."""
    segment.shm.slots[slot].figures[FIGURE_TURNS] += 1


def figures(Segment segment not None, int slot) -> tuple[int, int]:
    """(turns, allocations) of the process of `slot` and of its predecessors."""
    return (segment.shm.slots[slot].figures[FIGURE_TURNS],
            segment.shm.slots[slot].figures[FIGURE_ALLOCATIONS])
