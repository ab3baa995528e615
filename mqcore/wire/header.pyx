"""Reads the headers of sends and pulls (remoting.md 1.2, 1.3, 4.1, 4.2.1)."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from mqcore.endian cimport load_i16, load_i32, load_u64
from mqcore.layout cimport (
    BINARY_CODE,
    BINARY_FIXED_SIZE,
    BINARY_FLAG,
    BINARY_OPAQUE,
    BINARY_REMARK,
    BINARY_REMARK_LENGTH,
    BINARY_VERSION,
)
from mqcore.text cimport SMALL_LETTER, is_digit, is_literal, literal_length, put_short
from mqcore.wire.codes cimport (
    REQUEST_END_TRANSACTION,
    REQUEST_LITE_PULL_MESSAGE,
    REQUEST_PULL_MESSAGE,
    REQUEST_SEND_BATCH_MESSAGE,
    REQUEST_SEND_MESSAGE,
    REQUEST_SEND_MESSAGE_V2,
)

cdef extern from *:
    """
    #include <string.h>
    #if defined(__SSE2__)
    #include <emmintrin.h>
    #endif
    /* The first byte that is one of two, or end. Names and values are short: sixteen or eight at a
       time beat a call of memchr. */
    static inline const uint8_t *mq_first_of(const uint8_t *p, const uint8_t *end, uint8_t one,
                                             uint8_t other) {
      const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    #if defined(__SSE2__)
      for (; end - p >= 16; p += 16) {
        const __m128i bytes = _mm_loadu_si128((const __m128i *)p);
        const int hit = _mm_movemask_epi8(
            _mm_or_si128(_mm_cmpeq_epi8(bytes, _mm_set1_epi8((char)one)),
                         _mm_cmpeq_epi8(bytes, _mm_set1_epi8((char)other))));
        if (hit) return p + __builtin_ctz((unsigned int)hit);
      }
    #endif
      for (; end - p >= 8; p += 8) {
        uint64_t word, a, b, hit;
        memcpy(&word, p, 8);
        a = word ^ ones * one;
        b = word ^ ones * other;
        hit = (((a - ones) & ~a) | ((b - ones) & ~b)) & tops;      /* its lowest bit is exact */
        if (hit) return p + (__builtin_ctzll(hit) >> 3);
      }
      while (p < end && *p != one && *p != other) p++;
      return p;
    }
    """
    const uint8_t* first_of "mq_first_of"(const uint8_t* p, const uint8_t* end, uint8_t one,
                                          uint8_t other) noexcept nogil


cdef enum:
    DIGITS_MAX = 19                        # of the largest i64


cdef inline int letter_field(const uint8_t* key, int32_t length) noexcept nogil:
    """V2's names: the letters are numbers already."""
    return key[0] - c'a' if length == 1 and c'a' <= key[0] <= c'n' else -1


cdef inline int send_field(const uint8_t* key, int32_t length) noexcept nogil:
    """V1's long names."""
    if is_literal(key, length, "topic"):
        return SEND_TOPIC
    if is_literal(key, length, "batch"):
        return SEND_BATCH
    if is_literal(key, length, "bname"):
        return SEND_BROKER_NAME
    if is_literal(key, length, "flag"):
        return SEND_FLAG
    if is_literal(key, length, "queueId"):
        return SEND_QUEUE_ID
    if is_literal(key, length, "sysFlag"):
        return SEND_SYS_FLAG
    if is_literal(key, length, "unitMode"):
        return SEND_UNIT_MODE
    if is_literal(key, length, "properties"):
        return SEND_PROPERTIES
    if is_literal(key, length, "defaultTopic"):
        return SEND_DEFAULT_TOPIC
    if is_literal(key, length, "producerGroup"):
        return SEND_PRODUCER_GROUP
    if is_literal(key, length, "bornTimestamp"):
        return SEND_BORN_TIME
    if is_literal(key, length, "reconsumeTimes"):
        return SEND_RECONSUME_TIMES
    if is_literal(key, length, "maxReconsumeTimes"):
        return SEND_MAX_RECONSUME_TIMES
    if is_literal(key, length, "defaultTopicQueueNums"):
        return SEND_DEFAULT_QUEUES
    return -1


cdef inline int pull_field(const uint8_t* key, int32_t length) noexcept nogil:
    if is_literal(key, length, "topic"):
        return PULL_TOPIC
    if is_literal(key, length, "queueId"):
        return PULL_QUEUE_ID
    if is_literal(key, length, "sysFlag"):
        return PULL_SYS_FLAG
    if is_literal(key, length, "maxMsgNums"):
        return PULL_COUNT_MAX
    if is_literal(key, length, "subVersion"):
        return PULL_SUB_VERSION
    if is_literal(key, length, "queueOffset"):
        return PULL_QUEUE_OFFSET
    if is_literal(key, length, "commitOffset"):
        return PULL_COMMIT_OFFSET
    if is_literal(key, length, "subscription"):
        return PULL_SUBSCRIPTION
    if is_literal(key, length, "consumerGroup"):
        return PULL_GROUP
    if is_literal(key, length, "expressionType"):
        return PULL_EXPRESSION_TYPE
    if is_literal(key, length, "suspendTimeoutMillis"):
        return PULL_SUSPEND_MS
    return -1


cdef inline int end_field(const uint8_t* key, int32_t length) noexcept nogil:
    if is_literal(key, length, "producerGroup"):
        return END_GROUP
    if is_literal(key, length, "commitLogOffset"):
        return END_LOG_POSITION
    if is_literal(key, length, "commitOrRollback"):
        return END_DECISION
    if is_literal(key, length, "tranStateTableOffset"):
        return END_HALF_OFFSET
    return -1


cdef inline int field_of(int32_t code, const uint8_t* key, int32_t length) noexcept nogil:
    if code == REQUEST_PULL_MESSAGE or code == REQUEST_LITE_PULL_MESSAGE:
        return pull_field(key, length)
    if code == REQUEST_SEND_MESSAGE_V2 or code == REQUEST_SEND_BATCH_MESSAGE:
        return letter_field(key, length)
    if code == REQUEST_SEND_MESSAGE:
        return send_field(key, length)
    if code == REQUEST_END_TRANSACTION:
        return end_field(key, length)
    return -1


cdef inline uint64_t order_of(const uint8_t* name, int32_t length, const uint8_t* end) noexcept nogil:
    """end: of what may be read."""
    cdef uint64_t order = 0
    cdef int32_t i
    if length == 0:
        return 0
    if end - name >= 8:
        order = load_u64(name)
        return order if length >= 8 else order >> 8 * (8 - length) << 8 * (8 - length)
    for i in range(length):
        order = order << 8 | name[i]
    return order << 8 * (8 - length)


cdef inline int order_against(const SignedField* field, uint64_t order, const uint8_t* name,
                              int32_t length) noexcept nogil:
    """Below 0: the field stands before that name; 0: it has that name."""
    cdef int result
    if field.order != order:
        return -1 if field.order < order else 1
    result = memcmp(field.name.start, name, min(field.name.length, length))
    return result if result else field.name.length - length


cdef void field_add(SignedFields* all, const uint8_t* end, const uint8_t* name, int32_t name_length,
                    const uint8_t* value, int32_t value_length, bint escaped) noexcept nogil:
    """A name that comes twice has the value that comes last. end: of what may be read."""
    # of texts every part comes by itself: one that was just written in parts cannot be read at once
    cdef uint64_t order = order_of(name, name_length, end)
    cdef int32_t at = all.count
    cdef int32_t i
    cdef int against = -1
    cdef SignedField* field
    while at > 0:
        against = order_against(&all.fields[all.sorted[at - 1]], order, name, name_length)
        if against <= 0:
            break
        at -= 1
    if at > 0 and against == 0:
        field = &all.fields[all.sorted[at - 1]]
    elif all.count == SIGNED_FIELDS_MAX:
        all.more = True
        return
    else:
        field = &all.fields[all.count]
        for i in range(all.count, at, -1):
            all.sorted[i] = all.sorted[i - 1]
        all.sorted[at] = <uint8_t>all.count
        all.count += 1
        field.order = order
        field.name.start = name
        field.name.length = name_length
        field.name.escaped = False
    field.value.start = value
    field.value.length = value_length
    field.value.escaped = escaped


cdef inline const uint8_t* skip_blanks(const uint8_t* p, const uint8_t* end) noexcept nogil:
    while p < end and (p[0] == c' ' or p[0] == c'\n' or p[0] == c'\r' or p[0] == c'\t'):
        p += 1
    return p


cdef const uint8_t* behind_escapes(const uint8_t* p, const uint8_t* end) noexcept nogil:
    """p stands at the first escape of a string; returns its closing quote, or NULL."""
    while p < end and p[0] == c'\\':
        if end - p < 2 or not (simple_escape(p[1]) >= 0 or (
                p[1] == c'u' and end - p >= 6 and hex4(p + 2) >= 0)):
            return NULL
        p = first_of(p + 2, end, c'"', c'\\')
    return p if p < end else NULL


cdef inline const uint8_t* read_string(const uint8_t* p, const uint8_t* end,
                                       Text* text) noexcept nogil:
    """p stands behind the opening quote; returns behind the closing one, or NULL."""
    text.start = p
    text.escaped = False
    p = first_of(p, end, c'"', c'\\')
    if p < end and p[0] == c'\\':
        text.escaped = True
        p = behind_escapes(p, end)
        if p == NULL:
            return NULL
    text.length = <int32_t>(p - text.start)
    return p + 1 if p < end else NULL


cdef const uint8_t* behind_bare(const uint8_t* start, const uint8_t* end, bint* null) noexcept nogil:
    """Behind a number or word; NULL: something else."""
    cdef const uint8_t* p = start
    cdef int32_t length
    while p < end and c'a' <= p[0] <= c'z':
        p += 1
    length = <int32_t>(p - start)
    if length > 0:
        null[0] = is_literal(start, length, "null")
        return p if null[0] or is_literal(start, length, "true") or (
            is_literal(start, length, "false")) else NULL
    # whole numbers as everybody writes them; others are for the general reader
    if p[0] == c'-':
        p += 1
    if p < end and p[0] == c'0' and p != start:
        return NULL                        # -0
    while p < end and is_digit(p[0]):
        p += 1
        if p - start > 1 and start[0] == c'0':
            return NULL                    # 007
    if p == start or (p - 1)[0] == c'-':
        return NULL
    return p


cdef inline const uint8_t* read_scalar(const uint8_t* p, const uint8_t* end,
                                       Text* text) noexcept nogil:
    """A string, number or word; NULL: something else. null has length -1."""
    cdef bint null = False
    if p >= end:
        return NULL
    if p[0] == c'"':
        return read_string(p + 1, end, text)
    text.start = p
    text.escaped = False
    p = behind_bare(p, end, &null)
    text.length = -1 if null else <int32_t>(p - text.start)
    return p


cdef const uint8_t* read_fields(const uint8_t* p, const uint8_t* end, Header* out,
                                SignedFields* all) noexcept nogil:
    """The members of extFields; p stands behind its brace; returns behind the closing one or NULL."""
    cdef Text key, value
    cdef int field
    p = skip_blanks(p, end)
    if p < end and p[0] == c'}':
        return p + 1
    while p < end and p[0] == c'"':
        p = read_string(p + 1, end, &key)
        if p == NULL or key.escaped:
            return NULL
        p = skip_blanks(p, end)
        if p >= end or p[0] != c':':
            return NULL
        p = read_scalar(skip_blanks(p + 1, end), end, &value)
        if p == NULL:
            return NULL
        field = field_of(out.code, key.start, key.length)
        if field >= 0:
            out.fields[field] = value
        if all != NULL:
            field_add(all, end, key.start, key.length, value.start, value.length, value.escaped)
        p = skip_blanks(p, end)
        if p >= end:
            return NULL
        if p[0] == c'}':
            return p + 1
        if p[0] != c',':
            return NULL
        p = skip_blanks(p + 1, end)
    return NULL


cdef int read_top(const Text* key, const Text* value, Header* out) noexcept nogil:
    cdef int64_t number
    if is_literal(key.start, key.length, "code"):
        if not text_i64(value, &number) or number != <int32_t>number:
            return HEADER_UNUSUAL
        out.code = <int32_t>number
    elif is_literal(key.start, key.length, "flag"):
        if not text_i64(value, &number) or number != <int32_t>number:
            return HEADER_UNUSUAL
        out.flag = <int32_t>number
    elif is_literal(key.start, key.length, "opaque"):
        if not text_i64(value, &number) or number != <int32_t>number:
            return HEADER_UNUSUAL
        out.opaque = <int32_t>number
        out.has_opaque = True
    elif is_literal(key.start, key.length, "version"):
        if not text_i64(value, &number) or number != <int32_t>number:
            return HEADER_UNUSUAL
        out.version = <int32_t>number
    return HEADER_READ


cdef int read_json(const uint8_t* p, const uint8_t* end, Header* out,
                   SignedFields* all) noexcept nogil:
    cdef Text key, value
    cdef bint saw_code = False, saw_flag = False, saw_fields = False
    p = skip_blanks(p, end)
    if p >= end or p[0] != c'{':
        return HEADER_UNUSUAL
    p = skip_blanks(p + 1, end)
    while p < end and p[0] == c'"':
        p = read_string(p + 1, end, &key)
        if p == NULL or key.escaped:
            return HEADER_UNUSUAL
        p = skip_blanks(p, end)
        if p >= end or p[0] != c':':
            return HEADER_UNUSUAL
        p = skip_blanks(p + 1, end)
        if p < end and p[0] == c'{':
            if not is_literal(key.start, key.length, "extFields") or not saw_code or saw_fields:
                return HEADER_UNUSUAL
            saw_fields = True
            p = read_fields(p + 1, end, out, all)
        else:
            p = read_scalar(p, end, &value)
            if p != NULL and read_top(&key, &value, out) != HEADER_READ:
                return HEADER_UNUSUAL
            if is_literal(key.start, key.length, "code"):
                if saw_fields:             # the fields were read as another code's
                    return HEADER_UNUSUAL
                saw_code = True
            elif is_literal(key.start, key.length, "flag"):
                saw_flag = True
            elif is_literal(key.start, key.length, "extFields") and (
                    saw_fields or p == NULL or value.length >= 0):
                return HEADER_UNUSUAL      # of several the last one counts; only null is none
        if p == NULL:
            return HEADER_UNUSUAL
        p = skip_blanks(p, end)
        if p < end and p[0] == c'}':
            # without one of the three the general reader tries other spellings of all names
            return (HEADER_READ if skip_blanks(p + 1, end) == end and out.has_opaque and saw_code
                    and saw_flag else HEADER_UNUSUAL)
        if p >= end or p[0] != c',':
            return HEADER_UNUSUAL
        p = skip_blanks(p + 1, end)
    return HEADER_UNUSUAL


cdef int read_binary(const uint8_t* p, int32_t length, Header* out,
                     SignedFields* all) noexcept nogil:
    cdef const uint8_t* end = p + length
    cdef int32_t size, key_length
    cdef const uint8_t* key
    cdef Text value
    cdef int field
    if length < BINARY_FIXED_SIZE:
        return HEADER_BROKEN
    out.code = load_i16(p + BINARY_CODE)
    out.version = load_i16(p + BINARY_VERSION)
    out.opaque = load_i32(p + BINARY_OPAQUE)
    out.flag = load_i32(p + BINARY_FLAG)
    out.has_opaque = True
    size = load_i32(p + BINARY_REMARK_LENGTH)
    if size < 0 or size > length - BINARY_FIXED_SIZE:
        return HEADER_BROKEN
    p += BINARY_REMARK + size
    size = load_i32(p)
    p += 4
    if size < 0 or size > end - p:
        return HEADER_BROKEN
    end = p + size
    while p < end:
        if end - p < 2:
            return HEADER_BROKEN
        key_length = load_i16(p)
        if key_length < 0 or key_length > end - p - 6:
            return HEADER_BROKEN
        key = p + 2
        p = key + key_length
        size = load_i32(p)
        p += 4
        if size < 0 or size > end - p:
            return HEADER_BROKEN
        value.start = p
        value.length = size if size > 0 else -1                     # empty: null (remoting.md 1.3)
        value.escaped = False
        field = field_of(out.code, key, key_length)
        if field >= 0:
            out.fields[field] = value
        if all != NULL and key_length > 0:
            field_add(all, end, key, key_length, value.start, value.length, False)
        p += size
    return HEADER_READ


cdef int header_read(const uint8_t* header, int32_t length, bint binary, Header* out) noexcept nogil:
    return header_read_all(header, length, binary, out, NULL)


cdef int header_read_all(const uint8_t* header, int32_t length, bint binary, Header* out,
                         SignedFields* all) noexcept nogil:
    cdef int i
    out.code = 0
    out.opaque = 0
    out.flag = 0
    out.version = 0
    out.has_opaque = False
    out.binary = binary
    for i in range(FIELD_COUNT):
        out.fields[i].length = -1
    if all != NULL:
        all.count = 0
        all.more = False
    if binary:
        return read_binary(header, length, out, all)
    return read_json(header, header + length, out, all)


cdef bint text_i64(const Text* text, int64_t* value) noexcept nogil:
    cdef const uint8_t* p = text.start
    cdef const uint8_t* end = text.start + text.length
    cdef bint negative = False
    cdef uint64_t number = 0           # 19 digits fit
    if text.length <= 0 or text.escaped:
        return False
    if p[0] == c'-' or p[0] == c'+':
        negative = p[0] == c'-'
        p += 1
    if p == end or end - p > DIGITS_MAX:
        return False
    while p < end:
        if not is_digit(p[0]):
            return False
        number = number * 10 + (p[0] - c'0')
        p += 1
    if number > <uint64_t>0x7FFFFFFFFFFFFFFF + <uint64_t>negative:
        return False
    value[0] = <int64_t>(0 - number if negative else number)
    return True


cdef bint text_is_true(const Text* text) noexcept nogil:
    return (text.length == literal_length("true") and (text.start[0] | SMALL_LETTER) == c't'
            and (text.start[1] | SMALL_LETTER) == c'r' and (text.start[2] | SMALL_LETTER) == c'u'
            and (text.start[3] | SMALL_LETTER) == c'e')


cdef inline int hex_value(uint8_t c) noexcept nogil:
    if is_digit(c):
        return c - c'0'
    c |= SMALL_LETTER
    return c - c'a' + 10 if c'a' <= c <= c'f' else -1


cdef inline int32_t hex4(const uint8_t* p) noexcept nogil:
    cdef int i, digit
    cdef int32_t value = 0
    if p[0] == c'0' and p[1] == c'0' and p[2] == c'0' and is_digit(p[3]):
        return p[3] - c'0'             # between properties
    for i in range(4):
        digit = hex_value(p[i])
        if digit < 0:
            return -1
        value = value * 16 + digit
    return value


cdef inline int32_t put_utf8(uint8_t* into, uint32_t point) noexcept nogil:
    if point < 0x80:
        into[0] = <uint8_t>point
        return 1
    if point < 0x800:
        into[0] = <uint8_t>(0xC0 | (point >> 6))
        into[1] = <uint8_t>(0x80 | (point & 0x3F))
        return 2
    if point < 0x10000:
        into[0] = <uint8_t>(0xE0 | (point >> 12))
        into[1] = <uint8_t>(0x80 | ((point >> 6) & 0x3F))
        into[2] = <uint8_t>(0x80 | (point & 0x3F))
        return 3
    into[0] = <uint8_t>(0xF0 | (point >> 18))
    into[1] = <uint8_t>(0x80 | ((point >> 12) & 0x3F))
    into[2] = <uint8_t>(0x80 | ((point >> 6) & 0x3F))
    into[3] = <uint8_t>(0x80 | (point & 0x3F))
    return 4


cdef inline int simple_escape(uint8_t c) noexcept nogil:
    if c == c'n':
        return c'\n'
    if c == c't':
        return c'\t'
    if c == c'r':
        return c'\r'
    if c == c'b':
        return c'\b'
    if c == c'f':
        return c'\f'
    return c if c == c'"' or c == c'\\' or c == c'/' else -1


cdef int32_t text_copy(const Text* text, uint8_t* into, int32_t capacity) noexcept nogil:
    cdef const uint8_t* p = text.start
    cdef const uint8_t* end
    cdef uint8_t* out = into
    cdef int32_t point, low, run
    if text.length < 0 or text.length > capacity:      # what is unescaped never grows
        return -1
    if not text.escaped:
        put_short(into, p, text.length)
        return text.length
    end = p + text.length
    while p < end:
        run = <int32_t>(first_of(p, end, c'\\', c'\\') - p)
        out = put_short(out, p, run)
        p += run
        if p == end:
            break
        if end - p < 2:
            return -1
        if p[1] != c'u':
            point = simple_escape(p[1])
            if point < 0:
                return -1
            out[0] = <uint8_t>point
            out += 1
            p += 2
            continue
        point = hex4(p + 2) if end - p >= 6 else -1
        if point < 0:
            return -1
        p += 6
        if 0xD800 <= point < 0xDC00 and end - p >= 6 and p[0] == c'\\' and p[1] == c'u':
            low = hex4(p + 2)
            if 0xDC00 <= low < 0xE000:
                point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00)
                p += 6
        if 0xD800 <= point < 0xE000:   # half of a pair has no UTF-8: what Java makes of it
            point = c'?'
        out += put_utf8(out, <uint32_t>point)
    return <int32_t>(out - into)


def read(const uint8_t[::1] header, bint binary=False):
    """
    What the fast reader makes of a header, for tests: (HeaderResult, dict of code, opaque, flag,
    version and "fields": number -> bytes).
    """
    cdef Header out
    cdef const uint8_t* start = &header[0] if header.shape[0] else <const uint8_t*>b""
    cdef int result = header_read(start, <int32_t>header.shape[0], binary, &out)
    fields = {}
    cdef int32_t length
    for i in range(FIELD_COUNT):
        if out.fields[i].length >= 0:
            buffer = bytearray(out.fields[i].length)
            length = 0
            if out.fields[i].length:
                length = text_copy(&out.fields[i], buffer, out.fields[i].length)
            fields[i] = None if length < 0 else bytes(buffer[:length])
    return result, {"code": out.code, "opaque": out.opaque, "flag": out.flag,
                    "version": out.version, "fields": fields}
