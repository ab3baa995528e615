# Room for what grows in the shared memory of a run.
#
# In named memory (mqcore/shm/memory.py) only what every run uses is allocated at the start. Whoever
# adds an entry to a table asks for its pages first: a /dev/shm that others have filled is then a full
# table, which has its own refusal, and never SIGBUS. Memory without a name is granted at once.
from libc.stdint cimport int64_t

from mqcore.shm.segment cimport Shm

# For entry `number` of a table whose entries are added in order; its writer alone. False: no room.
cdef bint shm_grow(Shm* shm, const void* table, int64_t entry_size, int64_t number) noexcept nogil
# For any place.
cdef bint shm_reserve(Shm* shm, const void* at, int64_t size) noexcept nogil
