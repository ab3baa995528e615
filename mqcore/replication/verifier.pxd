# Holds the log against its checksums before slaves get it, in a thread of its own: it reads the disk, too.
#
#   CK1  Each place has one job at a time: it checks records from a position on, until CHECK_BYTES are
#        known, or to the end of the segment or of the published log. Its result holds to a record's end.
#   CK2  A record is judged as a pull judges it that may read it from the disk: by its checksum, without
#        one by place and body (log_record_check). A blank one by its checksum.
#   CK3  Where no record begins at the position (slaves of stock brokers stop anywhere), the one that
#        lies there is judged. Where one begins there that is right, nothing before it is looked at.
#   CK4  It reads the descriptor that it was given: what is deleted meanwhile is read to its end. The bytes come
#        by a call, as many as stay in the processor's cache until they are judged: a disk that cannot read is an
#        errno, never a signal, and no page is mapped to be looked at once. A longer record is mapped, and touched
#        when a call has brought it.
#   CK5  A place that is left while its job runs takes no other before that has ended. After each job
#        the loop's bell is rung.
#   CK6  It does at most `rate` bytes a second, where that is set: a slave that catches up stands
#        behind senders. The pause follows a job, whose answer is there already.
#   CK7  Judged bytes stay in memory for the sender, in one of KEPT_MAX pieces, while one is free:
#        the slave gets the very bytes that were judged, and both ends spend less than with the
#        file, whose pages the other end would copy one by one. A piece is the thread's until its
#        answer is taken, then the asker's.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.layout cimport LogState
from mqcore.store.log.view cimport LogView
from mqcore.threads cimport pthread_cond_t, pthread_mutex_t, pthread_t

cdef enum:
    VERIFY_PLACES = 32
    CHECK_BYTES = 2 << 20             # of one job, and the record that ends behind them
    CHECK_READ_BYTES = 128 << 10      # at a time
    KEPT_MAX = 4
    KEPT_BYTES = CHECK_BYTES + CHECK_READ_BYTES
    CHECK_PAUSE_US_MAX = 100_000      # and so a stop waits no longer

cdef enum CheckState:
    CHECK_NONE = 0                    # nothing was asked, or the answer was taken
    CHECK_ASKED = 1
    CHECK_RUNS = 2
    CHECK_LEFT = 3                    # it runs, and nobody waits for it
    CHECK_RIGHT = 4                   # all below `position`
    CHECK_DAMAGED = 5                 # all below `position`; what lies there is wrong
    CHECK_UNREADABLE = 6              # errno is `position`

cdef struct Kept:
    bint in_use                        # under the lock; the rest as CK7 has it
    int64_t start                     # log positions
    int64_t end
    uint8_t* bytes                    # KEPT_BYTES, NULL: it was not needed yet

cdef struct VerifyJob:
    int state                         # under the lock, as all of it while it does not run
    int64_t number                    # they are done in this order
    int file                          # a descriptor of its own
    int64_t position
    int64_t end                       # of what is published
    int piece                         # where it is kept, -1: nowhere

cdef struct LogVerifier:
    pthread_t thread
    pthread_mutex_t lock
    pthread_cond_t some
    int bell
    int32_t stop                      # the loop
    int64_t rate                      # bytes a second (CK6), 0: as many as it can
    int64_t asked
    VerifyJob jobs[VERIFY_PLACES]
    Kept kept[KEPT_MAX]
    LogView log                       # the thread's, as all that follows
    int file
    int64_t end                       # of the job's part of the segment
    const uint8_t* map                # of the segment, NULL: this job has met no long record
    int64_t start                     # `have` bytes from this position on are at `window`
    int64_t have
    const uint8_t* window             # in `bytes`, or in a piece
    uint8_t* bytes                    # CHECK_READ_BYTES
    Kept* keeps                       # the job's piece while it goes on without a gap
    int failure                       # errno of a read
    int64_t hint_position             # where the last job ended ...
    int64_t hint                      # ... and the place of the entry behind it

cdef LogVerifier* verifier_open(LogState* state, const char* folders, int64_t segment_size,
                           int bell) noexcept nogil                     # NULL: no memory or no thread
cdef void verifier_close(LogVerifier* c) noexcept nogil
# Judge what lies from `position` on in the segment that `file` is, of what is published below `end`, and keep it if
# `keep` and it can be; False: the place is not free (CK5).
cdef bint verifier_ask(LogVerifier* c, int place, int file, int64_t position, int64_t end,
                      bint keep) noexcept nogil
# What has become of it; a place whose job is done is free then. piece: of what is kept from where it was
# asked on, or -1; the caller gives it back.
cdef int verifier_take(LogVerifier* c, int place, int64_t* position, int* piece) noexcept nogil
cdef void verifier_give_back(LogVerifier* c, int piece) noexcept nogil
cdef int verifier_pieces(LogVerifier* c) noexcept nogil                      # that are not free
# Nobody waits for it any longer.
cdef void verifier_leave(LogVerifier* c, int place) noexcept nogil
# Whether there is an answer, or the place is free: who waits for it goes on.
cdef bint verifier_ready(LogVerifier* c, int place) noexcept nogil
