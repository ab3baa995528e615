# What a master of ours says to a slave of ours before it sends the log: greeting.py has its layout.
from libc.stdint cimport int64_t, uint8_t

from mqcore.replication.wire cimport Wire
from mqcore.store.log.view cimport LogView

cpdef enum:                           # what both ends know of the stream (ha.md 2)
    ANNOUNCE = -1                     # a report that stock masters take for none, the place of a greeting
    TELL = -2                         # a report that asks what others have; the place of a frame that says it
    FRAME_HEAD_SIZE = 12
    REPORT_SIZE = 8
    CHALLENGE = -3                    # the place of a frame whose nonce a slave signs, with ...
    NONCE_SIZE = 16
    CLUSTER_KEY_SIZE = 32             # ... this key of the cluster's account (key.py), in ...
    KEY_WORDS = 3                     # ... as many reports
    TELL_SIZE = 8                     # a log position
    GREETING_FIXED_SIZE = 28
    GREETING_CHECKED_BYTES_MAX = 16 << 10
    GREETING_WORDS_MAX = 1 << 20

cdef struct Greet:
    uint8_t* bytes                    # NULL: there is nothing to be said
    int64_t size
    int64_t sent

# The words that a slave with this key and number shows for a nonce (key.py has the same in Python).
cdef void key_words(int64_t* words, const uint8_t* key, const uint8_t* nonce, int64_t member) noexcept nogil
# A frame with this nonce; False: no memory.
cdef bint greet_challenge(Greet* g, const uint8_t* nonce) noexcept nogil
# The frame for a slave whose log ends at `report`, while ours is [first, end); False: no memory, or the
# log cannot be read.
cdef bint greet_make(Greet* g, const uint8_t* words, int64_t words_size, LogView* log, int64_t first,
                     int64_t end, int64_t report) noexcept nogil
# Sends on: 1 it is all sent, 0 the socket has no room, -1 the link is broken.
cdef int greet_send(Greet* g, int fd, Wire* w) noexcept nogil
cdef void greet_drop(Greet* g) noexcept nogil
