# The connections of one process: sockets, buffers, turns. What the bytes mean, and who answers, is
# the business of the rooms above, which are called through `Above`; here is no ring, no rule of a
# broker and no protocol.
#
#   N1  Lengths are checked before memory is taken; a buffer grows with the bytes that came.
#   N2  A connection whose answers are not read is not read either (`out_high`); requests of it
#       that are here already wait in its buffer. With more than is allowed above, it is closed.
#   N3  What cannot be handled now stays in its connection's buffer, the connection is not read, and it
#       goes on when there is room: no request is dropped, and no other connection waits.
#   N4  A connection is known outside by its id: `id_base` (incarnation and index of the process),
#       generation, slot. An answer for an id that is gone is dropped; so the coordinator knows by
#       the incarnation alone whose connections ended with their process.
#   N8  What a peer sent one-way before it went is handled, whatever is full and however it went:
#       clients commit their offsets and close at once. While the rooms above still have some of it
#       to do (`owed`), it is not closed.
#
# Further rules of connections: work N9 and N20; memory N11 to N13 and N21; tls TL1 to TL7; of serving
# forward N5, N14, N15 and N19, answers N6, send N7, scan N10.
#
# What becomes of a connection's input is one state, `input_state`:
#
#     accepted ----> OPEN      all whole frames are handled; epoll waits for more
#                     |  ^
#     bytes come, and |  |  looked at again, and all of it is handled; or it is left again,
#     a whole frame   |  |  in any of the four
#     is left because |  +----------------------------------------------------------------+
#                     v                                                                   |
#         +-----------+-----+--------------------+------------------+                     |
#         |                 |                    |                  |                     |
#     HELD_BACK          STALLED               WAITS             YIELDED                  |
#     its peer does      a ring is             for something     its slice is             |
#     not read (N2)      full (N3)             of its own (N3)   used up (work N9)        |
#         |                 |                    |                  |                     |
#     output has gone    each turn, first in first out (`stalled`)  its next slice        |
#         |              until one finds a ring still full          (`deferred`)          |
#         +-----------------+--------------------+------------------+---------------------+
#
# A deferred connection becomes YIELDED first when output has gone, or a ring has room.
#
# How far it is from its end is another, `life`:
#
#      OPEN --- its peer went ---> HUNG_UP --- all it sent is handled (N8) ----+
#        |                            |                                        v
#        +------- it has to go -------+---> DOOMED --- end of the turn ---> closed, the id is gone
#
# What its bytes are is a third, `wire`; the last two only with TLS (tls TL1):
#
#      FIRST --- its first byte is not 0x16 ---> PLAIN
#        +------ it is ------------------------> SHAKES --- its handshake is done ---> TLS
#
# Independent of these, and of each other: `dirty` (it has output of this turn), `deferred` (it stands in
# line for a slice; also when only the rooms above have something for it, `postponed`), `begun`.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from mqcore.clock cimport wall_ms
from mqcore.layout cimport ADDRESS_V6_SIZE, WorkerSlot
from mqcore.net.transport.returned cimport Returned
from mqcore.net.transport.shake_thread cimport ShakeThread
from mqcore.net.transport.slots cimport SlotList
from mqcore.net.transport.tls_pipe cimport TlsPipe

cdef enum:
    READ_BYTES = 1 << 18               # one read of a socket
    OUT_HIGH_BYTES = 1 << 20           # N2
    KEEP_BYTES = 64 << 10              # an idle connection does not keep more
    CLOSE_EVENTS_MAX = 64                    # ends of connections that are kept for the log
    TLS_BYTES = 24 << 10               # tls TL4: of an idle connection with TLS
    TLS_CROWDS = 256                   # tls TL3: addresses are told apart by so many
    VICTIMS_MAX = 16                   # who has to go next when memory is short (memory N12)
    LISTENERS_MAX = 4
    V6_NETWORK_BYTES = 8               # who has one IPv6 address has 2^64
    FRONT_WORDS = 2                    # that a front has in a connection
    EVENTS_AT_ONCE = 256
    CLOSE_WORK = 15_000                # work N20: of the end of a connection

cdef enum InputState:
    INPUT_OPEN = 0
    INPUT_HELD_BACK = 1
    INPUT_STALLED = 2
    INPUT_WAITS = 3
    INPUT_YIELDED = 4

cdef enum Life:
    LIFE_OPEN = 0
    LIFE_HUNG_UP = 1
    LIFE_DOOMED = 2

cdef enum WireEnd:                     # what a read or a send says beside a number of bytes
    WIRE_LATER = -1                    # nothing now: epoll tells when
    WIRE_GONE = -2                     # the peer is gone, or the connection has failed

cdef enum Wire:
    WIRE_FIRST = 0
    WIRE_PLAIN = 1
    WIRE_SHAKES = 2
    WIRE_TLS = 3

cdef struct TlsEnd:                    # of one connection; tls.pyx
    TlsPipe* pipe                      # NULL: none
    bint in_line                       # its handshake waits for its turn, or for the end of a step: it
                                       # is not read (tls TL3)
    bint away                          # the thread has its pipe (shake_thread TL9)
    uint8_t crowd                      # of its address
    bint again                       # OpenSSL has bytes of it that epoll does not tell of (tls TL5)
    bint read_wants_write              # tls TL5: what it waits for is the other of the two
    bint send_wants_read
    bint hung_up                       # in the line: its peer went meanwhile
    bint failed                        # nothing more can be said to it
    bint going                         # a record of it waits to be sent
    int64_t work_max                   # tls TL8: what the next call may do
    int64_t held                       # tls TL4: of its memory
    int64_t since_ms                   # steady: of its handshake, or of half a record; 0: neither

cdef struct Connection:                # its owner may have it begin a larger struct (`size_each`)
    int fd
    int32_t slot
    uint64_t id
    int32_t kind                       # of its listener
    int input_state                    # InputState
    int life                           # Life
    bint dirty
    bint deferred
    bint begun                         # a part of its first frame is handled: it is not held back (N2),
                                       # and not handled to the end (N8)
    uint8_t* input                     # bytes that came and are not a whole request yet
    int32_t input_length
    int32_t input_capacity
    int64_t input_whole                # of the unfinished frame; 0: not known yet
    uint8_t* output                    # [output_start, output_end) waits to be sent
    int64_t output_start
    int64_t output_end
    int64_t output_capacity
    uint32_t interest                  # what epoll watches now
    bint heard                         # work N20: one of its frames was handled
    bint admitted                      # work N20: it is not a new one any more
    int32_t owed                       # N8: one-way requests of it that the rooms above have yet to do
    int32_t postponed                  # what the rooms above do in its next slice; 0: nothing
    int64_t sent                       # bytes, ever
    int64_t tell_below                 # `drained` when fewer bytes of output wait; 0: not asked for
    int64_t active_ms
    uint8_t address[ADDRESS_V6_SIZE]
    uint8_t address_is_v6
    uint16_t port
    int64_t turn                       # work N9: the turn that `work` was done in
    int64_t work
    int64_t heavy_until_ms             # it was deferred not long ago
    int64_t memory                     # memory N11: of its buffers
    int64_t input_since_ms             # steady: when its unfinished frame began to come
    int64_t output_since_ms            # steady: how old its unread answers are
    int wire                           # Wire
    int wire_reason                    # CloseReason, when the wire has ended
    int64_t wire_detail
    TlsEnd tls
    uint64_t[FRONT_WORDS] of_front     # what cuts its frames keeps of it; zeros at first
    int doom                           # why it is closed at the end of the turn
    int64_t doom_detail

cdef struct CloseEvent:
    int32_t reason
    uint8_t address[ADDRESS_V6_SIZE]
    uint8_t address_is_v6
    uint16_t port
    int64_t detail

cdef struct TlsCrowd:                  # connections in their handshake, of addresses alike
    SlotList shaking                   # the oldest first
    SlotList line                      # tls TL3

cdef struct Tls:                       # of a process
    int mode                           # TlsMode
    void* context                      # SSL_CTX of new connections; NULL: there is no certificate
    int64_t shake_ms_max
    int32_t shake_max                  # handshakes at once
    int32_t freed                      # connections since the last ones were given back
    ShakeThread* thread                # NULL: there was no certificate yet
    uint64_t seed                      # nobody can choose his crowd
    SlotList shaking                   # all, the oldest first
    TlsCrowd[TLS_CROWDS] crowds
    SlotList turns                     # tls TL3: crowds that have a line
    SlotList again                     # tls TL5

cdef struct Listener:
    int fd
    int32_t kind                       # of its connections; what it means is said above

# What the rooms above do. All are set before the first turn.
cdef struct Above:
    void* top                          # goes with each call
    void (*opened)(void* top, Connection* c) noexcept nogil
    # Bytes not handled yet, in the scratch buffer or in the connection's own: handles whole frames as
    # far as N2, N3 and work N9 let it, sets input_state and input_whole. Returns how many bytes it
    # has handled, or -1: the connection is closed.
    int64_t (*bytes_came)(void* top, Connection* c, uint8_t* data, int64_t length) noexcept nogil
    void (*slice_came)(void* top, Connection* c) noexcept nogil        # for what is `postponed`
    void (*drained)(void* top, Connection* c) noexcept nogil           # see tell_below
    void (*closing)(void* top, Connection* c) noexcept nogil           # frees what is its own
    bint (*waits)(void* top) noexcept nogil  # another process works on what was asked for (work N20)

cdef struct Transport:
    Above above
    size_t size_each                   # of a connection's struct
    WorkerSlot* slot                   # for figures
    uint64_t id_base                   # N4
    int epoll
    void* ready                        # events of this turn
    # crowds (work N20)
    int newcomers                      # epoll of new connections and listeners, in `epoll`
    bint newcomers_came                # `epoll` says so
    bint newcomers_rest                # `epoll` does not report them ...
    int64_t newcomers_rest_us          # steady: ... until then at most; 0: they need not wait
    bint others_came                   # in this turn: input of connections that are not new
    int end_count                      # events of this turn that are ends of connections: the first ones
    int64_t crowd_work                 # ever done: beginnings, steps of handshakes, ends
    int64_t crowd_counted              # so much work is in ...
    int64_t crowd_owes_us              # ... steady: when the crowd's share of the time has paid for it
    Listener[LISTENERS_MAX] listeners
    int listener_count
    bint stopping                      # nobody is accepted any more
    bint trim                          # large buffers were freed: their pages can be given back
    bint wakeful                       # something is to be looked at now: the next turn does not sleep
    # connections
    Connection** connections           # by slot
    int32_t connection_max
    int32_t connection_count
    int32_t* free_slots
    int32_t free_count
    uint32_t generation
    SlotList dirty
    SlotList stalled                   # STALLED and WAITS, but for whom a request is done yet (N8)
    SlotList deferred                  # work N9
    SlotList doomed
    SlotList silent                    # WIRE_FIRST, the oldest first: they make place for others
    uint8_t* scratch
    int64_t idle_ms_max
    Tls tls
    # work (work N9); in units
    int64_t work                       # ever done
    int64_t turn                       # number of this turn
    int64_t turn_began
    int64_t slice                      # of everybody now, 0: as the rules say
    # memory (memory N11); in bytes
    int64_t memory_used
    int64_t memory_max
    int64_t memory_high
    int64_t memory_share
    Returned returned                  # memory N21
    int64_t out_most                   # N2: OUT_HIGH_BYTES, or what is set above
    int64_t out_high                   # N2: out_most, or less (memory N13)
    uint64_t handled                   # the connection whose input is being handled
    uint64_t[VICTIMS_MAX] victims
    int32_t victim_count
    # clocks of this turn
    int64_t wall_ms                    # 0: not looked at yet, see `wall_of_turn`
    int64_t steady_us
    int64_t steady_ms
    int64_t idle_look_ms               # steady: when everybody was looked at
    # ends of connections, for the log
    CloseEvent[CLOSE_EVENTS_MAX] events
    int32_t event_count
    int64_t events_lost


cdef inline Connection* connection_find(Transport* t, uint64_t id) noexcept nogil:
    cdef int32_t slot = <int32_t>(id & 0xFFFFFF)
    cdef Connection* c
    if slot >= t.connection_max:
        return NULL
    c = t.connections[slot]
    return c if c != NULL and c.id == id else NULL                       # N4


cdef inline int64_t wall_of_turn(Transport* t) noexcept nogil:
    """The wall clock; most turns need only the steady one."""
    if t.wall_ms == 0:
        t.wall_ms = wall_ms()
    return t.wall_ms


cdef inline int64_t unread(const Connection* c) noexcept nogil:
    """Bytes of answers that wait to be sent."""
    return c.output_end - c.output_start


cdef inline void crowd_works(Transport* t, int64_t work) noexcept nogil:
    """The cost of a beginning, a step of a handshake or an end (work N20)."""
    t.work += work
    t.crowd_work += work


cdef inline int watcher(const Transport* t, const Connection* c) noexcept nogil:
    """The epoll that it is in (work N20)."""
    return t.epoll if c.admitted else t.newcomers


cdef inline bint takes_output(const Transport* t, const Connection* c) noexcept nogil:
    return unread(c) < t.out_high                                        # N2
