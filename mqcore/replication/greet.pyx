"""Says whose log it is, before it is sent (greet.pxd)."""
from libc.stdint cimport INT64_MIN, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from mqcore.endian cimport load_i64, store_i32, store_i64
from mqcore.hmac_sha1 cimport (
    SHA1_SIZE,
    Hmac,
    Sha1State,
    hmac_add,
    hmac_begin,
    hmac_end,
    hmac_key,
    sha1_init,
)
from mqcore.replication.wire cimport wire_write
from mqcore.store.crc32 cimport record_crc
from mqcore.store.log.view cimport LogView, log_at, log_next_use

cdef enum:
    WORD_BITS = 0x3fffffffffffffff    # of a word; the two above say that it is one

sha1_init()


cdef void key_words(int64_t* words, const uint8_t* key, const uint8_t* nonce, int64_t member) noexcept nogil:
    cdef Sha1State inner, outer
    cdef Hmac hmac
    cdef uint8_t digest[KEY_WORDS * REPORT_SIZE]
    cdef uint8_t number[REPORT_SIZE]
    cdef int i
    memset(digest, 0, sizeof(digest))
    store_i64(number, member)
    hmac_key(key, CLUSTER_KEY_SIZE, &inner, &outer)
    hmac_begin(&hmac, &inner)
    hmac_add(&hmac, nonce, NONCE_SIZE)
    hmac_add(&hmac, number, REPORT_SIZE)
    hmac_end(&hmac, &outer, digest)
    for i in range(KEY_WORDS):
        words[i] = INT64_MIN + (load_i64(digest + REPORT_SIZE * i) & WORD_BITS)


cdef bint greet_challenge(Greet* g, const uint8_t* nonce) noexcept nogil:
    g.size = FRAME_HEAD_SIZE + NONCE_SIZE
    g.sent = 0
    g.bytes = <uint8_t*>malloc(g.size)
    if g.bytes == NULL:
        return False
    store_i64(g.bytes, CHALLENGE)
    store_i32(g.bytes + 8, NONCE_SIZE)
    memcpy(g.bytes + FRAME_HEAD_SIZE, nonce, NONCE_SIZE)
    return True


cdef bint greet_make(Greet* g, const uint8_t* words, int64_t words_size, LogView* log, int64_t first,
                     int64_t end, int64_t report) noexcept nogil:
    cdef int64_t to = min(report, end)
    # in one segment: a slave whose log ends with one has checked it against that
    cdef int64_t start = max(to - GREETING_CHECKED_BYTES_MAX,
                             max(first, (to - 1) // log.segment_size * log.segment_size))
    cdef const uint8_t* checked = NULL
    cdef uint8_t* at
    if 0 < to < first:                 # that is deleted here
        start = to = first
    elif start >= to:
        start = to
    else:
        log_next_use(log)
        checked = log_at(log, start, to - start, end)
        if checked == NULL:
            return False
    g.size = FRAME_HEAD_SIZE + GREETING_FIXED_SIZE + words_size
    g.sent = 0
    g.bytes = <uint8_t*>malloc(g.size)
    if g.bytes == NULL:
        return False
    store_i64(g.bytes, ANNOUNCE)
    store_i32(g.bytes + 8, <int32_t>(GREETING_FIXED_SIZE + words_size))
    at = g.bytes + FRAME_HEAD_SIZE
    store_i64(at, end)
    store_i64(at + 8, start)
    store_i64(at + 16, to)
    store_i32(at + 24, <int32_t>record_crc(checked, to - start))
    memcpy(at + GREETING_FIXED_SIZE, words, words_size)
    return True


cdef int greet_send(Greet* g, int fd, Wire* w) noexcept nogil:
    cdef int64_t put
    while g.sent < g.size:
        put = wire_write(fd, w, g.bytes + g.sent, g.size - g.sent, False)
        if put == -1:
            return 0
        if put < 0:
            return -1
        g.sent += put
    greet_drop(g)
    return 1


cdef void greet_drop(Greet* g) noexcept nogil:
    free(g.bytes)
    g.bytes = NULL
    g.size = g.sent = 0
