# The file `config/popState`: what happened to unsettled messages, so that a run continues where the last one
# stood. It makes losses smaller and is never needed: without it a group begins at its committed offset.
#
#   head, 64 bytes:   | "mqcorePS" | version i32 | boot of the machine, 36 characters | 0 | CRC-32C u32 |
#   batches:          | length i32 | CRC-32C u32 | steady ms i64 | wall ms i64 | records |
#   a record:         | kind u8 | length u8 | attempts i16 | queue number i32 | offset i64 |
#     JOURNAL_QUEUE     and | queue id i32 | group length i16 | topic length i16 | names |; FIFO in length
#     JOURNAL_MESSAGE   and | pop time i64 | due i64, steady ms | invisible ms i32 | renewals left i32 |
#     JOURNAL_PASS      and | log position i64 of the offset before, -1: unknown |
#     JOURNAL_ATTEMPT   and the attempt id of that length; offset: the end of its batch
#
# All big-endian, padded with zeros to 8 bytes. The CRC of a batch is of all behind it.
#
#   PJ1  What the file holds is a state that the owner once had: batches stand in their order, and one
#        that is torn, illegible or senseless ends the reading. So no message is lost by a torn file;
#        what was settled behind the tear is delivered again.
#   PJ2  After pop_flush returned 0 the file has everything that was done before. It survives a kill of
#        any process, not a power cut: nothing is synced.
#   PJ3  A file of which less than half is useful is written anew, a few queues a turn; the new file
#        takes the old one's place when it has everything. So does one that could not be written for a
#        while, one of another boot, and one with a tear.
#   PJ4  Within a boot of the machine the steady clock continues, and due times stay. In another
#        one the time of the wall clock since the last batch counts as passed, none if it was set back.
#        No message is due later than its invisible time after the start.
#   PJ5  A file with more queues or messages than the limits allow counts for nothing.
from libc.stdint cimport int32_t, int64_t

from mqcore.store.pop.state cimport PopClock, PopFile, PopQueue, PopState

# What pop_flush has not written is lost. A state without a file notes nothing.
cdef void pop_journal_close(PopState* s) noexcept nogil
cdef int pop_flush(PopState* s, const PopClock* clock) noexcept nogil                     # PJ2
# Some of a new file, if one is due (PJ3): about so many bytes.
cdef void pop_compact(PopState* s, const PopClock* clock, int64_t most) noexcept nogil

cdef void note_queue(PopState* s, PopQueue* q) noexcept nogil
cdef void note_forget(PopState* s, PopQueue* q) noexcept nogil
cdef void note_message(PopState* s, PopQueue* q, int32_t message) noexcept nogil
cdef void note_attempt(PopState* s, PopQueue* q) noexcept nogil
cdef void note_settled(PopState* s, PopQueue* q, int64_t offset) noexcept nogil
cdef void note_pass(PopState* s, PopQueue* q) noexcept nogil
cdef void note_raise(PopState* s, PopQueue* q, int64_t least) noexcept nogil
cdef void note_clip(PopState* s, PopQueue* q, int64_t end) noexcept nogil
cdef void note_reset(PopState* s, PopQueue* q, int64_t next) noexcept nogil
# Its descriptor and what is pending go.
cdef void close_file(PopFile* file) noexcept nogil
