# Reads the journal of POP at a start (journal.pxd has its form and rules).
from libc.stdint cimport int32_t, uint8_t

from mqcore.store.pop.state cimport PopClock, PopState

# Reads the file, or makes it: 0 or errno. journal.torn_at says where a tear was. A state that has messages
# already is not for this. boot: POP_BOOT_LENGTH characters.
cdef int pop_journal_open(PopState* s, const char* path, const char* boot,
                          const PopClock* clock) noexcept nogil
# The records of a batch into the state; False: one has no sense, or there is no room for it.
cdef bint journal_apply(PopState* s, const uint8_t* records, int32_t length) noexcept nogil
