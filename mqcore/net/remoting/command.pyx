"""Writes and reads commands (remoting.md 1.1, 1.3, 4.1, 4.2.1)."""
from libc.stdint cimport INT16_MAX, int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from mqcore.endian cimport load_i32, store_i16, store_i32
from mqcore.layout cimport (
    BINARY_CODE,
    BINARY_FIXED_SIZE,
    BINARY_FLAG,
    BINARY_LANGUAGE,
    BINARY_OPAQUE,
    BINARY_REMARK,
    BINARY_REMARK_LENGTH,
    BINARY_VERSION,
    FRAME_CODEC_SHIFT,
    FRAME_HEADER,
    FRAME_HEADER_LENGTH_MASK,
    FRAME_HEADER_WORD,
    FRAME_LENGTH_MAX,
    FRAME_LENGTH_SIZE,
)
from mqcore.net.remoting.frames cimport ONEWAY_BIT
from mqcore.net.remoting.headers cimport PULL_COMMITS, PULL_HAS_SUBSCRIPTION, PULL_SUSPENDS
from mqcore.net.remoting.reply cimport VERSION
from mqcore.text cimport Literal, literal
from mqcore.wire.codes cimport REQUEST_PULL_MESSAGE, REQUEST_SEND_MESSAGE_V2
from mqcore.wire.digits cimport NUMBER_LENGTH_MAX, put_number
from mqcore.wire.header cimport HEADER_BROKEN, HEADER_READ, header_read, header_read_all

cdef enum:
    FIRST_BYTES = 1024
    LANGUAGE_OTHER = 7
    FIELD_LENGTHS = 6                  # i16 of a name, i32 of a value
    FIELDS_AT = FRAME_HEADER_WORD + BINARY_REMARK      # where their length is, behind no remark
    FIELDS = FRAME_HEADER_WORD + BINARY_FIXED_SIZE
    TEMPLATE_QUEUES = 4                # that clients ask for of a topic which has to be made


cdef uint8_t* room(Command* m, int64_t more) noexcept nogil:
    """The place of so many bytes behind what is there; NULL: no memory, or no frame is that long."""
    cdef int64_t capacity = max(<int64_t>m.capacity, <int64_t>FIRST_BYTES)
    cdef uint8_t* bigger
    if m.lacks_memory or m.length + more > FRAME_LENGTH_MAX:
        m.lacks_memory = True
        return NULL
    while capacity < m.length + more:
        capacity *= 2
    if capacity > m.capacity:
        bigger = <uint8_t*>realloc(m.frame, capacity)
        if bigger == NULL:
            m.lacks_memory = True
            return NULL
        m.frame = bigger
        m.capacity = <int32_t>capacity
    m.length += <int32_t>more
    return m.frame + m.length - more


cdef void command_begin(Command* m, int32_t code, int32_t opaque, int32_t flag) noexcept nogil:
    cdef uint8_t* at
    m.frame = NULL
    m.length = m.capacity = 0
    m.lacks_memory = False
    m.has_no_code = code != <int16_t>code
    at = room(m, FIELDS)
    if at == NULL:
        return
    at += FRAME_HEADER_WORD
    store_i16(at + BINARY_CODE, code)
    at[BINARY_LANGUAGE] = LANGUAGE_OTHER
    store_i16(at + BINARY_VERSION, VERSION)
    store_i32(at + BINARY_OPAQUE, opaque)
    store_i32(at + BINARY_FLAG, flag)
    store_i32(at + BINARY_REMARK_LENGTH, 0)


cdef void command_field(Command* m, const uint8_t* name, int32_t name_length, const uint8_t* value,
                        int32_t length) noexcept nogil:
    cdef uint8_t* at = NULL
    if name_length <= INT16_MAX:
        at = room(m, <int64_t>FIELD_LENGTHS + name_length + length)
    if at == NULL:
        m.lacks_memory = True
        return
    store_i16(at, name_length)
    memcpy(at + 2, name, name_length)
    at += 2 + name_length
    store_i32(at, length)
    memcpy(at + 4, value, length)


cdef void text(Command* m, Literal name, const Text* value) noexcept nogil:
    if value.length >= 0:
        command_field(m, <const uint8_t*>name.text, name.length, value.start, value.length)


cdef void bytes_of(Command* m, Literal name, const uint8_t* value, int32_t length) noexcept nogil:
    command_field(m, <const uint8_t*>name.text, name.length, value, length)


cdef void number(Command* m, Literal name, int64_t value) noexcept nogil:
    cdef uint8_t digits[NUMBER_LENGTH_MAX]
    cdef int32_t length = put_number(digits, value)
    command_field(m, <const uint8_t*>name.text, name.length, digits, length)


cdef void command_of_send(Command* m, const SendRequest* send) noexcept nogil:
    cdef Literal template = literal("TBW102"), yes = literal("true")
    command_begin(m, REQUEST_SEND_MESSAGE_V2, send.asker.opaque,
                  ONEWAY_BIT if send.asker.oneway else 0)
    bytes_of(m, literal("b"), send.topic, send.topic_length)
    bytes_of(m, literal("c"), <const uint8_t*>template.text, template.length)
    number(m, literal("d"), TEMPLATE_QUEUES)
    number(m, literal("e"), send.queue_id)
    number(m, literal("f"), send.sys_flag)
    number(m, literal("g"), send.born_time_ms)
    number(m, literal("h"), send.flag)
    text(m, literal("i"), &send.properties)
    number(m, literal("j"), send.reconsume_times)
    if send.batch:
        bytes_of(m, literal("m"), <const uint8_t*>yes.text, yes.length)


cdef void command_of_pull(Command* m, const PullRequest* pull) noexcept nogil:
    command_begin(m, REQUEST_PULL_MESSAGE, pull.asker.opaque, 0)
    bytes_of(m, literal("consumerGroup"), pull.group, pull.group_length)
    bytes_of(m, literal("topic"), pull.topic, pull.topic_length)
    number(m, literal("queueId"), pull.queue_id)
    number(m, literal("queueOffset"), pull.offset)
    number(m, literal("maxMsgNums"), pull.count_max)
    number(m, literal("sysFlag"), (PULL_COMMITS if pull.commits else 0)
           | (PULL_SUSPENDS if pull.wait_ms > 0 else 0)
           | (PULL_HAS_SUBSCRIPTION if pull.brings_filter else 0))
    number(m, literal("commitOffset"), pull.commit_offset if pull.commits else 0)
    number(m, literal("suspendTimeoutMillis"), pull.wait_ms)
    number(m, literal("subVersion"), 0 if pull.brings_filter else pull.version)
    text(m, literal("expressionType"), &pull.filter_type)
    text(m, literal("subscription"), &pull.filter)


cdef bint command_end(Command* m, const uint8_t* body, int32_t length, Request* request) noexcept nogil:
    cdef int32_t header_length = m.length - FRAME_HEADER_WORD
    cdef uint8_t* at = room(m, length)
    if at == NULL:
        return False
    if length > 0:
        memcpy(at, body, length)
    store_i32(m.frame, header_length | 1 << FRAME_CODEC_SHIFT)
    store_i32(m.frame + FIELDS_AT, FRAME_HEADER_WORD + header_length - FIELDS)
    request.frame = m.frame
    request.length = m.length
    request.header_length = header_length
    request.body = at
    request.body_length = length
    request.passed = False
    request.account = NULL
    request.unusual = header_read(m.frame + FRAME_HEADER_WORD, header_length, True,
                                  &request.header) != HEADER_READ
    return True


cdef void command_close(Command* m) noexcept nogil:
    free(m.frame)
    m.frame = NULL
    m.capacity = m.length = 0


cdef bint said_read(const uint8_t* frame, int64_t length, Said* said) noexcept nogil:
    cdef const uint8_t* header = frame + FRAME_HEADER
    cdef int32_t word, header_length
    cdef bint binary
    if length < FRAME_HEADER:
        return False
    word = load_i32(frame + FRAME_LENGTH_SIZE)
    header_length = word & FRAME_HEADER_LENGTH_MASK
    binary = word >> FRAME_CODEC_SHIFT == 1
    if header_length > length - FRAME_HEADER or header_read_all(
            header, header_length, binary, &said.header, &said.fields) == HEADER_BROKEN:
        return False
    said.remark.length = -1
    if binary:
        said.remark.start = header + BINARY_REMARK
        said.remark.length = load_i32(header + BINARY_REMARK_LENGTH)
        said.remark.escaped = False
    said.body = header + header_length
    said.body_length = length - FRAME_HEADER - header_length
    return True
