# The prepare service: one thread of the writer process that writes zeros ahead of the commit log's
# end. In sync mode always, and to the disk: a flush of bytes whose blocks are written already costs
# half of one that has to record new ones. In the other modes if segments are to be warmed
# (store.md 6.4): their pages are in memory then, and their blocks taken, before a message needs them.
#
#   P1  Zeros are written only over bytes that the appender has not reached and is kept away from:
#       the service stores claim_from, then looks at writing_to; the appender stores writing_to, then
#       looks at claim_from. One of them sees the other and gives way; the service first.
#   P2  It never makes a write fail, of the log or of any other file: it leaves a disk 256 MiB.
#   P3  Segments are made in order, whoever makes them, and those that hold nothing are removed from
#       the last one on: a gap would be damage to the next start, whenever a process dies.
from libc.stdint cimport int32_t, int64_t

from mqcore.layout cimport LogState

cdef struct PrepareService:
    LogState* state
    int64_t segment_size
    int64_t claim_from                # being zeroed: [claim_from, claim_to); -1: nothing. The service
    int64_t claim_to
    int64_t writing_to                # end of what the appender writes now or wrote. The appender
    int64_t prepared                  # zeros are written below it. The service
    bint to_disk                      # the zeros go to the disk at once
    int32_t stop                      # the process
    char* folders                     # see log_folders.pxd

cdef void prepare_open(PrepareService* service, LogState* state, const char* folders,
                       int64_t segment_size, int64_t end, bint to_disk) noexcept nogil
cdef void prepare_run(PrepareService* service) noexcept nogil              # until stop
cdef void prepare_close(PrepareService* service) noexcept nogil            # it does not run any more
# The appender, before it writes up to `end`: returns when no zeros can follow (P1).
cdef void prepare_give_way(PrepareService* service, int64_t end) noexcept nogil
