# The bytes of the journal of POP (journal.pxd has its form and rules).
from libc.stdint cimport int32_t

cdef extern from "<fcntl.h>" nogil:
    int O_RDWR
    int O_CREAT
    int O_TRUNC
    int O_CLOEXEC

cdef enum:
    JOURNAL_MODE = 0o644
    JOURNAL_PENDING_MAX = 1 << 20      # bytes of a batch
    JOURNAL_SIZE_MAX = 512 << 20       # what is behind it is not read
    JOURNAL_KEPT = 1 << 20             # a smaller file is not written anew (journal PJ3)
    JOURNAL_RETRY_MS = 1000

cdef enum:
    JOURNAL_VERSION = 1
    HEAD_VERSION = 8
    HEAD_BOOT = 12
    HEAD_CRC = 60
    HEAD_SIZE = 64
    BATCH_LENGTH = 0
    BATCH_CRC = 4
    BATCH_STEADY = 8
    BATCH_WALL = 16
    BATCH_HEAD_SIZE = 24
    RECORD_LENGTH = 1
    RECORD_ATTEMPTS = 2
    RECORD_NUMBER = 4
    RECORD_OFFSET = 8
    RECORD_SIZE = 16
    RECORD_POP_TIME = 16
    RECORD_DUE = 24
    RECORD_INVISIBLE = 32
    RECORD_RENEWALS = 36
    MESSAGE_SIZE = 40
    PASS_POSITION = 16
    PASS_SIZE = 24
    RECORD_QUEUE_ID = 16
    RECORD_GROUP_LENGTH = 20
    RECORD_TOPIC_LENGTH = 22
    QUEUE_SIZE = 24
    ALIGNMENT = 8

cdef enum JournalKind:
    JOURNAL_QUEUE = 1
    JOURNAL_FORGET = 2
    JOURNAL_MESSAGE = 3                # it is unsettled, as it says
    JOURNAL_ATTEMPT = 4
    JOURNAL_SETTLED = 5
    JOURNAL_PASS = 6                   # what is new below the offset is settled
    JOURNAL_RAISE = 7                  # all below it is
    JOURNAL_CLIP = 8                   # all from it on is unknown
    JOURNAL_RESET = 9                  # it begins there anew

cdef extern from *:
    const char* journal_magic "\"mqcorePS\""


cdef inline int32_t padded(int32_t size) noexcept nogil:
    return (size + ALIGNMENT - 1) & ~(ALIGNMENT - 1)
