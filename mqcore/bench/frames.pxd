# Requests from templates and the few fields of a response that the load generator needs.
#
#   LF1  An opaque of ours is OPAQUE_BASE + slot: always ten digits, so a JSON frame never changes
#        its length, and never an opaque that a broker counts up for its own requests.
#   LF2  A template's places were found in a frame that mqcore.wire encoded; they lie inside it.
#   LF3  response_parse reads only inside [frame, frame + size).
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from mqcore.bench.signing cimport SignedRequest
from mqcore.endian cimport load_i16, load_i32, load_i64, store_i32
from mqcore.layout cimport (
    FRAME_CODEC_SHIFT,
    FRAME_HEADER,
    FRAME_HEADER_LENGTH_MASK,
    FRAME_LENGTH_SIZE,
    HOST_V4_SIZE,
    HOST_V6_EXTRA,
    MAGIC_MESSAGE,
    RECORD_BODY_AFTER_HOSTS,
    RECORD_BODY_LENGTH_AFTER_HOSTS,
    RECORD_BORN_HOST,
    RECORD_FIXED_SIZE,
    RECORD_MAGIC,
    RECORD_QUEUE_ID,
    RECORD_QUEUE_OFFSET,
    RECORD_SIZE,
    RECORD_STORE_HOST_AFTER_BORN_HOST,
    RECORD_SYS_FLAG,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_STORE_HOST_V6,
)
from mqcore.text cimport Literal, is_digit, literal_length, starts_with

cdef extern from "<string.h>" nogil:
    void* memmem(const void* haystack, size_t size, const void* needle, size_t needle_size) noexcept

cdef enum:
    OPAQUE_BASE = 1_000_000_000
    OPAQUE_DIGITS = 10
    BORN_DIGITS = 13                     # epoch ms, until the year 2286
    LONG_DIGITS = 19                     # of the greatest i64: places in a commit
    UNIQUE_DIGITS = 8                    # the part of a UNIQ_KEY that we count up, hexadecimal
    NOWHERE = -1

cdef struct RequestTemplate:
    const uint8_t* bytes                 # a whole frame; the engine keeps the bytes object alive
    int32_t size
    bint is_binary
    int32_t opaque_at                    # ten digits, or i32
    int32_t born_at                      # BORN_DIGITS, or NOWHERE
    int32_t unique_at                    # UNIQUE_DIGITS, or NOWHERE
    int32_t keys_at                      # UNIQUE_DIGITS, or NOWHERE
    int32_t body_at
    int32_t offset_at                    # pull: the digits of queueOffset, or NOWHERE
    int32_t offset_width
    int32_t ext_length_at                # binary header: the i32 length of the ext region
    int32_t half_at                      # commit: LONG_DIGITS of the half message's queue offset,
    int32_t position_at                  # and of its log position
    const SignedRequest* signed_as       # NULL: it is not signed

cdef struct Response:
    int32_t code
    int32_t opaque
    bint is_binary
    const uint8_t* header
    int32_t header_size
    const uint8_t* body
    int32_t body_size

cdef struct ResponseHint:                # where the last opaque stood, counted from the header's end
    int32_t opaque_from_end

cdef struct RecordView:                  # what a consumer looks at in a stored message
    int32_t size
    int32_t queue_id
    int64_t offset
    const uint8_t* body
    int32_t body_size

cdef int template_load(RequestTemplate* target, object source) except -1
cdef bint response_parse_slowly(
    const uint8_t* header, int32_t size, ResponseHint* hint, Response* result) noexcept nogil
cdef int64_t response_number(
    const Response* response, Literal name, int64_t missing) noexcept nogil
cdef int32_t pull_render(
    const RequestTemplate* template, uint8_t* target, int64_t offset, int32_t slot) noexcept nogil


cdef inline int64_t digits_value(const uint8_t* text, int64_t size) noexcept nogil:
    cdef int64_t value = 0
    cdef int32_t i
    for i in range(size if size < 18 else 18):
        if not is_digit(text[i]):
            break
        value = value * 10 + (text[i] - c'0')
    return value


cdef inline void digits_store(uint8_t* target, int64_t value, int32_t width) noexcept nogil:
    cdef int32_t i = width
    while i > 0:
        i -= 1
        target[i] = <uint8_t>(c'0' + value % 10)
        value //= 10


cdef inline void hex_store(uint8_t* target, uint32_t value) noexcept nogil:
    cdef const char* digits = b"0123456789ABCDEF"
    cdef int32_t i = UNIQUE_DIGITS
    while i > 0:
        i -= 1
        target[i] = digits[value & 15]
        value >>= 4


cdef inline void opaque_store(
    const RequestTemplate* template, uint8_t* frame, int32_t slot) noexcept nogil:
    if template.is_binary:
        store_i32(frame + template.opaque_at, OPAQUE_BASE + slot)
    else:
        digits_store(frame + template.opaque_at, OPAQUE_BASE + slot, OPAQUE_DIGITS)


cdef inline bint response_parse(
    const uint8_t* frame, int32_t size, ResponseHint* hint, Response* result) noexcept nogil:
    """
    Read code and opaque of one frame with its length word; False: not a frame of this protocol.

    The common case needs no search: Java, and we, write `{"code":` first, and the opaque stands at a
    fixed distance from the header's end as long as the peer writes the same fields.
    """
    cdef int32_t word, at
    cdef const uint8_t* header = frame + FRAME_HEADER
    if size < FRAME_HEADER:
        return False
    word = load_i32(frame + FRAME_LENGTH_SIZE)
    result.header = header
    result.header_size = word & FRAME_HEADER_LENGTH_MASK
    result.is_binary = (word >> FRAME_CODEC_SHIFT) == 1
    if result.header_size > size - FRAME_HEADER or (word >> FRAME_CODEC_SHIFT) & ~1:
        return False
    result.body = header + result.header_size
    result.body_size = size - FRAME_HEADER - result.header_size
    if result.is_binary:
        if result.header_size < 21:
            return False
        result.code = load_i16(header)
        result.opaque = load_i32(header + 5)
        return True
    at = result.header_size - hint.opaque_from_end
    if (at >= literal_length('{"code":') + literal_length('"opaque":')
            and hint.opaque_from_end > OPAQUE_DIGITS
            and starts_with(header, at, '{"code":')
            and starts_with(header + at - literal_length('"opaque":'), at, '"opaque":')):
        result.code = <int32_t>digits_value(header + literal_length('{"code":'), 6)
        result.opaque = <int32_t>digits_value(header + at, OPAQUE_DIGITS)
        return True
    return response_parse_slowly(header, result.header_size, hint, result)


cdef inline bint record_view(const uint8_t* at, int64_t left, RecordView* view) noexcept nogil:
    """Look at the record that starts at `at`; False: no whole and plausible record (LF3)."""
    cdef int32_t flags
    cdef int64_t after_hosts = (
        RECORD_BORN_HOST + HOST_V4_SIZE + RECORD_STORE_HOST_AFTER_BORN_HOST + HOST_V4_SIZE)
    if left < RECORD_FIXED_SIZE:
        return False
    view.size = load_i32(at + RECORD_SIZE)
    if view.size < RECORD_FIXED_SIZE or view.size > left:
        return False
    if load_i32(at + RECORD_MAGIC) != MAGIC_MESSAGE:
        return False
    flags = load_i32(at + RECORD_SYS_FLAG)
    if flags & SYS_FLAG_BORN_HOST_V6:
        after_hosts += HOST_V6_EXTRA
    if flags & SYS_FLAG_STORE_HOST_V6:
        after_hosts += HOST_V6_EXTRA
    if after_hosts + RECORD_BODY_AFTER_HOSTS > view.size:
        return False
    view.queue_id = load_i32(at + RECORD_QUEUE_ID)
    view.offset = load_i64(at + RECORD_QUEUE_OFFSET)
    view.body_size = load_i32(at + after_hosts + RECORD_BODY_LENGTH_AFTER_HOSTS)
    view.body = at + after_hosts + RECORD_BODY_AFTER_HOSTS
    return 0 <= view.body_size <= view.size - after_hosts - RECORD_BODY_AFTER_HOSTS
