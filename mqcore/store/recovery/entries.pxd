# The checksums beside the log at a start (checksums.pxd): what they say, and which of them still hold.
#
# Who wrote last is known by the file `lock`: a stock broker, or an older one of ours, writes over
# our mark there when it starts (store/last_run.py). Where it did, entries are held against the log
# from the last flush that we know of on, and go from the first one that does not fit and behind which
# none does: the log was cut there, and written by somebody who makes no entries. Where one fits again
# behind it, the log is ours and damaged there. Of segments before that flush the first and the last
# entry have to fit.
#
# Where nobody else wrote, files may still be of another log: copied, or of a backup. After a clean stop
# a start compares the first and the last entry of each segment; where one is wrong, and a run of
# records that are whole by themselves has no right entry, the file is set aside. Where somebody else
# may have written, that goes for a run at the segment's begin, after any stop.
from libc.stdint cimport int64_t, uint8_t

from mqcore.store.log.view cimport LogView
from mqcore.store.record cimport RecordView


cdef class LogEntries:
    cdef LogView* log
    cdef int64_t size                 # of a segment
    cdef object folders
    cdef bint alone              # only we wrote: a record without its entry is none (checksums CS2)

    cdef int check(self, const uint8_t* at, int64_t available, int64_t position,
                   RecordView* record) noexcept nogil
    cdef int judge(self, int64_t base, int64_t number) noexcept nogil
    cdef int judge_written(self, int64_t base, int64_t number, int64_t written) noexcept nogil
    cdef bint is_foreign(self, int64_t base, int64_t written, bint begins) noexcept nogil
    cdef int64_t right_behind(self, int64_t base, int64_t offset, int64_t written) noexcept nogil
    cdef int ends_at(self, int64_t end) noexcept nogil
