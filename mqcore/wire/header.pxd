# The fast header reader: the fields of sends and pulls straight from the frame, no copies.
#
# It reads what every known client writes: compact or spaced JSON with string, number, true, false or
# null values, or the ROCKETMQ binary form. Anything beyond that is HEADER_UNUSUAL, not an error: the
# frame goes to the coordinator, whose reader knows all of remoting.md 5.2.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcmp

from mqcore.text cimport Literal

cdef enum HeaderResult:
    HEADER_READ = 0
    HEADER_UNUSUAL = 1                 # let the general reader decide
    HEADER_BROKEN = 2                  # no reader could: close the connection

# Fields of sends, in the order of V2's letters a to n
cdef enum:
    SEND_PRODUCER_GROUP = 0
    SEND_TOPIC = 1
    SEND_DEFAULT_TOPIC = 2
    SEND_DEFAULT_QUEUES = 3
    SEND_QUEUE_ID = 4
    SEND_SYS_FLAG = 5
    SEND_BORN_TIME = 6
    SEND_FLAG = 7
    SEND_PROPERTIES = 8
    SEND_RECONSUME_TIMES = 9
    SEND_UNIT_MODE = 10
    SEND_MAX_RECONSUME_TIMES = 11
    SEND_BATCH = 12
    SEND_BROKER_NAME = 13

cdef enum:
    PULL_GROUP = 0
    PULL_TOPIC = 1
    PULL_QUEUE_ID = 2
    PULL_QUEUE_OFFSET = 3
    PULL_COUNT_MAX = 4
    PULL_SYS_FLAG = 5
    PULL_COMMIT_OFFSET = 6
    PULL_SUSPEND_MS = 7
    PULL_SUBSCRIPTION = 8
    PULL_SUB_VERSION = 9
    PULL_EXPRESSION_TYPE = 10

cdef enum:
    END_GROUP = 0
    END_HALF_OFFSET = 1
    END_LOG_POSITION = 2
    END_DECISION = 3

cdef enum:
    FIELD_COUNT = 14

cdef struct Text:                      # length -1: the field is absent
    const uint8_t* start
    int32_t length
    bint escaped                       # holds JSON escapes

cdef struct Header:
    int32_t code
    int32_t opaque
    int32_t flag
    int32_t version
    bint has_opaque
    bint binary
    Text fields[FIELD_COUNT]

cdef enum:
    SIGNED_FIELDS_MAX = 64

cdef struct SignedField:
    uint64_t order                     # the first bytes of its name, as a number
    Text name
    Text value

cdef struct SignedFields:              # all of a request, as they came, each name once
    int32_t count
    bint more                          # than there is room for
    uint8_t[SIGNED_FIELDS_MAX] sorted  # their numbers, in the order of their names
    SignedField[SIGNED_FIELDS_MAX] fields

cdef int header_read(const uint8_t* header, int32_t length, bint binary, Header* out) noexcept nogil
# The same, and all fields into `all` (NULL: not wanted): what a signature is made of.
cdef int header_read_all(const uint8_t* header, int32_t length, bint binary, Header* out,
                         SignedFields* all) noexcept nogil
cdef bint text_i64(const Text* text, int64_t* value) noexcept nogil       # False: absent or no number
cdef bint text_is_true(const Text* text) noexcept nogil
# Copies a field without its escapes; -1: it would not fit, or is no valid escape. In bytes.
cdef int32_t text_copy(const Text* text, uint8_t* into, int32_t capacity) noexcept nogil


cdef inline const Text* field_value(const SignedFields* fields, Literal name) noexcept nogil:
    """NULL: absent, or null."""
    cdef int32_t i
    cdef const SignedField* one
    for i in range(fields.count):
        one = &fields.fields[i]
        if one.name.length == name.length and memcmp(one.name.start, name.text, name.length) == 0:
            return &one.value if one.value.length >= 0 else NULL
    return NULL
