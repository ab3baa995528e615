# The end of a followed log that takes it: from a stock master or from one of ours (ha.md 2).
#
#   HS1  The log's end is asked for and acknowledged as it is published, and never beyond what came over
#        this link: with flush "sync" a slave says what is on its disk.
#   HS2  The first frame begins where our log ends; an empty log begins where the first frame does, if that
#        is the start of a segment. Each further frame, an empty one too, begins where the one before
#        ended. Anything else ends the link.
#   HS3  The writer gets whole records with the end of what they lie in, never a part of one; of a blank
#        record its first eight bytes. What lies behind these in the segment is passed over.
#   HS4  What comes is read into a claim of the ring, where the writer finds it: of CLAIM_BYTES, or of one
#        record that is larger. What came behind the last whole record is moved to the next claim. While
#        the ring has no room for a claim the socket is not read.
#   HS5  What the writer refuses ends the link; nothing more is handed over. The next one begins, when all
#        results are there, at the published end.
#   HS6  ANNOUNCE goes before the first report: a stock master passes over it, one of ours knows that an
#        empty log wants everything, and that frames may be long.
#   HS7  One of ours answers with a greeting, one on a link: whose log it has (greeting.py). Nothing is read
#        before the caller has believed it, and the end is reported again.
#   HS8  A slave says who it is with its first word: ANNOUNCE less its broker.id (master HM3), or,
#        as a member of an elected set, less its number (leadership FO3).
#   HS9  Who reads of what others have alone (replica_gate G9) asks for it behind a greeting that
#        offers it, with TELL before the report. Frames at the place TELL then say it, wherever
#        frames may stand; they are no part of the log.
#   HS10  A master that does not greet may have any log. Where that is asked for (`proves`), one that does not, behind
#        a report that is not 0, ends the link, or has to send the last bytes of the log here again: the
#        first report is that far below the end. One that differs, or none of them, ends the link, and the
#        writer gets nothing. A master that stood still sends a heartbeat before its first bytes: the second
#        empty frame there says that it has none.
#   HS11  Behind one small request it looks for its result before it sleeps (linger.pxd): somebody may wait
#        for the report.
#   HS12  A master that answers the first position with a nonce (master HM15) gets the words that
#        the cluster's account makes from it (key.py), once on a link, and the position again.
#        Without an account the link ends.
#   HS13  A link by TLS is there when its handshake is done, which verifies the master's certificate.
#   HS14  The first report is not repeated before its answer came, a frame, a greeting or a nonce: to one of
#        ours the second position is the word that its greeting is believed (master HM8), or stands behind
#        the words for its nonce (master HM15).
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.layout cimport AppendHead, WorkerSlot
from mqcore.replication.greet cimport (
    CLUSTER_KEY_SIZE,
    FRAME_HEAD_SIZE,
    GREETING_FIXED_SIZE,
    GREETING_WORDS_MAX,
    KEY_WORDS,
    NONCE_SIZE,
    REPORT_SIZE,
    TELL_SIZE,
)
from mqcore.replication.linger cimport Linger
from mqcore.replication.wire cimport Wire
from mqcore.shm.segment cimport Shm
from mqcore.store.log.append_end cimport AppendEnd

cdef enum:
    CLAIM_BYTES = 256 << 10           # of one request, unless it is one record
    FRAME_BYTES_MAX = 1 << 30         # nobody's frames are as long
    SLAVE_NOTES_MAX = 16
    LINGER_BYTES = 8192               # of a small request
    GREETING_BYTES_MAX = GREETING_FIXED_SIZE + GREETING_WORDS_MAX
    SLAVE_BELL = 0                    # of epoll
    LINK_KEY = 1

cpdef enum:
    POSITION_BITS = 60                # nobody's log is longer than such a number of bytes

cpdef enum SlaveNote:
    NOTE_LINKED = 1                   # the log position that it asks from
    NOTE_NO_LINK = 2                  # errno of the connect
    NOTE_ENDED = 3                    # the master closed it, or the network did
    NOTE_OTHER_PLACE = 4              # a frame that does not begin where it should; its position
    NOTE_BAD_FRAME = 5                # a length that no frame has
    NOTE_BAD_RECORD = 6               # no record where one should begin; the position
    NOTE_TOO_LARGE = 7                # a record that this broker does not take; its size
    NOTE_REFUSED = 8                  # the writer did not take it; PutStatus
    NOTE_MASTER_SILENT = 9            # for housekeeping_ms
    NOTE_GREETED = 10                 # HS7; bytes of the greeting
    NOTE_NOT_GREETED = 11             # HS10: it has to send bytes again; the position of its first frame
    NOTE_OTHER_LOG = 12               # bytes of it are others than here; the position
    NOTE_NOTHING_BELOW = 13           # it has none of the bytes that it has to send again; the position
    NOTE_NO_ACCOUNT = 14              # HS12: it asks for the account
    NOTE_LINK_TLS_FAILED = 15         # HS13; what tls_context.trouble reads, 0: it was closed

cdef struct Slave:
    Shm* shm
    WorkerSlot* slot
    AppendEnd appends
    int epoll
    int fd                            # -1: no link
    Wire wire                         # HS13
    bint connecting
    bint readable
    int64_t heard_ms
    int64_t reported                  # the last report, -1: none on this link
    int64_t reported_ms
    uint8_t key[CLUSTER_KEY_SIZE]     # HS12 ...
    bint has_key
    uint8_t nonce[NONCE_SIZE]         # ... of this link ...
    int nonce_left                    # ... of which so many bytes are to come ...
    bint challenged                   # ... once ...
    bint answers                      # ... and it is to be answered
    uint8_t out[(2 + KEY_WORDS) * REPORT_SIZE]      # of reports that the socket has not taken
    int out_size
    int out_sent
    uint8_t head[FRAME_HEAD_SIZE]
    int head_got
    int64_t left                      # bytes of this frame's body that are to come
    int64_t next                      # log position of the next byte that comes, -1: not known
    int64_t claim_bytes               # CLAIM_BYTES, or what the ring takes
    AppendHead* claim                 # HS4, NULL: none
    int64_t room                      # for bytes of the log behind its head
    int64_t have                      # bytes that came, of the log from `next_position` on
    int64_t next_position                     # log position
    uint8_t* kept                     # while there is no claim: `have` bytes; a greeting before it is read
    bint greeted                      # HS7: `greeting` bytes are in `kept`
    int64_t greeting
    bint was_greeted
    bint asks                         # HS9 ...
    bint asked
    uint8_t word[TELL_SIZE]           # ... of a frame that says it
    int word_left                     # bytes of it that are to come
    bint proves                       # HS10
    bint was_empty                    # a heartbeat came before the first of these bytes
    const uint8_t* overlap            # behind the last of the bytes that it has to send again
    int64_t overlap_end               # where the log ended with them
    int64_t overlap_left              # of them are to come
    int64_t skip                      # of the bytes that come next: the rest of a blank
    int64_t outstanding               # requests without a result
    int64_t handed                    # bytes of the last one
    Linger linger                     # HS11
    bint failed                       # HS5
    int64_t failed_ms
    int64_t member                    # HS8; 0: it says none
    int64_t heartbeat_ms
    int64_t housekeeping_ms
    int64_t received
    int64_t links
    int notes[SLAVE_NOTES_MAX]
    int64_t values[SLAVE_NOTES_MAX]
    int notes_count


# No link yet was on this socket, whose connect has begun.
cdef void link_begin(Slave* s, int fd) noexcept nogil
# What the socket has, into the claim and from there to the writer (HS3, HS4); not `readable`: it has no more.
cdef void link_take(Slave* s, int64_t now_ms) noexcept nogil
# The log that a greeting spoke of is the one here (HS7).
cdef void believe(Slave* s) noexcept nogil
# No link, without a note.
cdef void link_drop(Slave* s) noexcept nogil
# All that can be done now.
cdef void slave_turn(Slave* s, int64_t now_ms) noexcept nogil
# Whether it goes on without an event.
cdef bint slave_has_work(Slave* s) noexcept nogil
# A look for what the writer says (HS11).
cdef void slave_linger(Slave* s) noexcept nogil
cdef void slave_wait(Slave* s, int64_t timeout_ms) noexcept nogil
