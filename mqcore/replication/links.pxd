# The links of a followed log's master, and what it knows besides (master.pxd has the rules).
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.layout cimport LEADERSHIP_MEMBERS_MAX, WorkerSlot
from mqcore.net.transport.shake_thread cimport ShakeThread
from mqcore.replication.verifier cimport VERIFY_PLACES, LogVerifier
from mqcore.replication.greet cimport (
    CLUSTER_KEY_SIZE,
    FRAME_HEAD_SIZE,
    KEY_WORDS,
    REPORT_SIZE,
    TELL_SIZE,
    Greet,
)
from mqcore.replication.linger cimport Linger
from mqcore.replication.sockets cimport MQ_PEER_SIZE
from mqcore.replication.wire cimport Wire
from mqcore.shm.segment cimport Shm
from mqcore.store.log.view cimport LogView

cdef enum:
    MEMBER_MAX = 0x3fffffffffffffff   # a broker.id, or a number of shm/members.py

    KEY_WORD_MAX = -0x4000000000000001                    # of key.py; below what ANNOUNCE less a member is

cdef enum:
    BELL_KEY = 1 << 20                # of epoll; a link's is its place
    LISTENER_KEY = 1 << 16            # + its number
    LINKS_MAX = VERIFY_PLACES          # master HM3: a bit for each
    ADDRESS_LINKS_MAX = 16
    PEER_ADDRESS_BYTES = 16           # of IPv6; IPv4 is mapped
    ACCEPTS_A_SECOND = 1000           # so that nobody waits for long behind a flood
    ACCEPTS_A_TURN = 8
    OUR_BATCH_BYTES = 1 << 20
    TURN_BYTES = 1 << 20              # to one link, then it is the next one's turn
    MASTER_NOTES_MAX = 64
    MASTER_LISTENERS_MAX = 4
    LINK_PIECES = 2                   # one is sent, and the next one judged
    UNSIGNED_MAX = 64

cdef struct Network:          # master HM15: an IPv6 address, or an IPv4 one as ::ffff:0:0/96 has it
    uint8_t bytes[PEER_ADDRESS_BYTES]
    int bits                          # that count

cdef struct Link:
    int fd                            # -1: a free place
    Wire wire
    bint speaks                       # its first byte came (wire HW1)
    bint shaking                      # wire HW3 ...
    bint away                         # ... and the thread has its pipe
    bint asked_certificate            # by the context of its handshake
    bint certified                    # it has shown a certificate that was verified
    char peer[MQ_PEER_SIZE]           # host:port
    int host_length
    int64_t opened_ms
    int64_t heard_ms                  # its last report, or since it is there
    int64_t sent_ms                   # the last byte that it took
    bint ours
    int64_t member                    # who it is, 0: it has not said it (master HM3, HM9)
    bint challenged                   # master HM15 ...
    int64_t expected[KEY_WORDS]       # ... by these words ...
    int key_words                     # ... so many came ...
    int64_t key_differs               # ... and 0: they were right
    int slave              # master HM3: the same number for all links of one; while it has reported
    Greet greet                       # master HM8: what is to be said before the log
    bint greeted
    bint asks                         # master HM10
    int64_t told                      # the last position that it was told
    uint8_t word[FRAME_HEAD_SIZE + TELL_SIZE]
    int word_left                     # bytes of it that it has not taken
    bint reported                     # it is a slave now
    bint readable                     # there may be more to be read
    bint blocked                      # its socket has no room
    uint8_t report[REPORT_SIZE]
    int report_got
    int64_t acked                     # its last report
    int64_t position                  # of the next byte that it is sent
    uint8_t head[FRAME_HEAD_SIZE]
    int head_sent                     # FRAME_HEAD_SIZE: between two frames, or in the body of one
    int64_t left                      # bytes of this frame's body
    int file                          # of the segment of `position`, -1: none
    int64_t file_base
    bint checking                     # master HM12: its place there is taken for it ...
    bint waits                        # ... and without an answer it cannot go on
    int64_t checked_to                # below it the bytes are right, and in memory
    int pieces[LINK_PIECES]           # of what is checked, in memory (verifier CK7), ascending
    int piece_count
    bint damaged                      # ... and at checked_to a record begins that is not
    int64_t goal                      # our end at goal_ms; when it has that, ...
    int64_t goal_ms
    int64_t even_ms                   # ... it had all there was at this time

cdef struct Note:
    int kind
    char peer[MQ_PEER_SIZE]
    int64_t value

cdef struct Master:
    Shm* shm
    WorkerSlot* slot
    LogView log                       # for greetings
    LogVerifier* verifier
    int epoll
    int listeners[MASTER_LISTENERS_MAX]
    int listener_count
    bint listening                    # master HM7: not while the second's accepts are used up
    int64_t second
    int accepted                      # in this second
    const uint8_t* greeting           # the words of master HM8, NULL: none are said
    int64_t greeting_size
    bint gated                        # the writer waits for what slaves have ...
    bint shows                        # ... or the dispatcher (dispatch.pxd, D5)
    int min_in_sync
    bint elected                      # master HM9
    bint hands_on                     # master HM11
    int tls_mode                      # wire HW1, TlsMode
    void* context                     # SSL_CTX, of the loop; NULL: no TLS is served
    bint asks_certificates            # this context asks for them
    bint certificate_does             # master HM15
    int64_t shake_ms_max
    ShakeThread* shaker               # wire HW3; NULL: there was no context yet
    int shaken_place                  # whose turn was last
    bint guarded                      # master HM15
    bint has_key
    uint8_t key[CLUSTER_KEY_SIZE]
    Network networks[UNSIGNED_MAX]
    int network_count
    int32_t members_applied             # sequence of what `members` has; 0: nothing yet
    int members_count
    int64_t members[LEADERSHIP_MEMBERS_MAX]       # that are waited for, then others that etcd names; 0: none
    int64_t batch_bytes
    int64_t heartbeat_ms
    int64_t housekeeping_ms
    Link links[LINKS_MAX]
    int64_t sent_bytes
    int64_t refused
    Note notes[MASTER_NOTES_MAX]
    int notes_count
    int64_t notes_lost
    Linger linger                     # master HM13
