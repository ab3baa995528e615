# The append service: the only writer of the commit log.
#
# A turn takes records from every `appends` ring, gives them offset, position and store time, gathers
# them in `staging`, writes that with one pwrite, makes it durable as the flush mode asks, and only
# then publishes the position and the results.
#
#   A1  A result is published after its record is in the file (async), on disk (sync), or in the pool
#       (transient-pool); never as stored after a write that failed. In sync mode two results
#       precede the sync: the watcher's time-out answers (group_commit.pxd), and those of a turn without
#       a request that waits. After a sync that failed, each unanswered request is told that its outcome
#       is unknown (PUT_DISK_FAILED): the record is in the file, and a restart finds it or not.
#   A2  `published` moves over whole records only, after they are in the file (sync mode: on disk,
#       unless shows_unflushed), and never back.
#   A3  A batch lies in one segment. Every segment ends with a blank record of at least eight bytes.
#   A4  A failed write is tried again at once: its bytes are not published, so that is safe. When it
#       keeps failing, the queue offsets it had used are given back, its results say so, and what did get into the
#       file is wiped: recovery must not find whole records behind a later end. As long as it cannot be
#       wiped the outcome is not known (PUT_DISK_FAILED). Requests are refused
#       until the place can be wiped and written; that is tried every PROBE_INTERVAL_MS.
#   A5  A sync that failed is final: it is never asked for again, and nothing overrules its refusal. The
#       kernel may have dropped what it could not write, and a second sync would say that all is well.
#   A6  A request with REQUEST_AFTER_PREVIOUS is stored only if the one before it in its ring was.
#
# Rules for bytes that another writer has placed: raw A7 and A8.
from libc.stdint cimport int64_t

from mqcore.shm.segment cimport Shm
from mqcore.store.log.appender cimport Appender
from mqcore.store.log.flush cimport FlushService
from mqcore.store.log.group_commit cimport GroupCommit
from mqcore.store.log.transient_pool cimport TransientPool

cdef int appender_open(Appender* a, Shm* shm, FlushService* service, GroupCommit* group,
                       TransientPool* pool, const char* folders, int flush_mode,
                       int64_t end) noexcept nogil                     # 0 or errno
cdef void appender_close(Appender* a) noexcept nogil                    # lets go of it, writes nothing
cdef int64_t appender_turn(Appender* a) noexcept nogil                  # records taken
cdef bint appender_has_work(Appender* a) noexcept nogil
# What came before is in the file, between two turns; False: it is not, the file refuses it.
cdef bint appender_drain(Appender* a) noexcept nogil
cdef void appender_finish(Appender* a) noexcept nogil                   # writes and syncs the rest
