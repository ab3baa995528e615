# The bytes of store files and of the wire: fixed by RocketMQ 4.9.8; big-endian, unaligned. Frozen.
# Everybody takes these numbers from mqcore/layout.pxd, which has those of the shared memory too.

# -- Commit log record (store.md 2.1); B = body, T = topic, P = properties; both hosts IPv4 --------
#
#  0     4       8        12       16    20        28        36       40      48    56      64
#  | size | magic | crc    | queue  | flag | queue   | log     | sys    | born  | born | store | store
#  | i32  | i32   | i32    | id     | i32  | offset  | positn. | flag   | time  | host | time  | host
#                                           i64       i64       i32      i64     8/20   i64     8/20
#  then (72 with two IPv4 hosts; each IPv6 host moves what follows by 12):
#  | reconsume times i32 | prepared position i64 | B i32, body | T i8, topic | P i16, properties |
cpdef enum:
    RECORD_SIZE = 0
    RECORD_MAGIC = 4
    RECORD_BODY_CRC = 8
    RECORD_QUEUE_ID = 12
    RECORD_FLAG = 16
    RECORD_QUEUE_OFFSET = 20
    RECORD_LOG_POSITION = 28
    RECORD_SYS_FLAG = 36
    RECORD_BORN_TIME = 40
    RECORD_BORN_HOST = 48
    HOST_V4_SIZE = 8
    HOST_V6_SIZE = 20
    HOST_V6_EXTRA = HOST_V6_SIZE - HOST_V4_SIZE
    # distances from the end of the born host
    RECORD_STORE_TIME_AFTER_BORN_HOST = 0
    RECORD_STORE_HOST_AFTER_BORN_HOST = 8
    # distances from the end of the store host
    RECORD_RECONSUME_TIMES_AFTER_HOSTS = 0
    RECORD_PREPARED_POSITION_AFTER_HOSTS = 4
    RECORD_BODY_LENGTH_AFTER_HOSTS = 12
    RECORD_BODY_AFTER_HOSTS = 16
    RECORD_FIXED_SIZE = 91               # everything but B, T and P, two IPv4 hosts
    BLANK_SIZE_MIN = 8                   # size and magic: what always stays free in a segment

    TOPIC_LENGTH_MAX = 127
    PROPERTIES_LENGTH_MAX = 32767
    QUEUE_ID_END = 65535                 # no queue has this number or a higher one
    LIVES_SEAL = 0x6C697665              # the prepared position of a marker (store/queue/lives.pxd)

    SYS_FLAG_COMPRESSED = 0x1
    SYS_FLAG_MULTI_TAGS = 0x2
    SYS_FLAG_TRANSACTION_MASK = 0xC
    SYS_FLAG_PREPARED = 0x4
    SYS_FLAG_COMMIT = 0x8
    SYS_FLAG_ROLLBACK = 0xC
    SYS_FLAG_BORN_HOST_V6 = 0x10
    SYS_FLAG_STORE_HOST_V6 = 0x20

cdef enum:
    PROPERTIES_LENGTH_SIZE = 2

cdef enum:                               # among properties (store.md 2.5)
    NAME_SEPARATOR = 1                   # between name and value
    PROPERTY_SEPARATOR = 2

cpdef enum:
    MAGIC_MESSAGE = -626843481           # 0xDAA320A7
    MAGIC_BLANK = -875286124             # 0xCBD43194

# -- Item of a batch body (store.md 2.10): size, magic, crc, flag, B, body, P, properties ----------
cpdef enum:
    BATCH_ITEM_SIZE = 0
    BATCH_ITEM_FLAG = 12
    BATCH_ITEM_BODY_LENGTH = 16
    BATCH_ITEM_BODY = 20
    BATCH_ITEM_FIXED_SIZE = 22           # everything but body and properties

# -- Consume queue entry, 20 bytes (store.md 3.1) --------------------------------------------------
#
#    0               8           12              20
#    | i64           | i32       | i64            |
#    | log position  | rec. size | tag code       |
cpdef enum:
    CQ_ENTRY_LOG_POSITION = 0
    CQ_ENTRY_RECORD_SIZE = CQ_ENTRY_LOG_POSITION + 8
    CQ_ENTRY_TAG_CODE = CQ_ENTRY_RECORD_SIZE + 4
    CQ_ENTRY_SIZE = CQ_ENTRY_TAG_CODE + 8
    CQ_FILLER_RECORD_SIZE = 0x7FFFFFFF   # a filler entry: position 0, this size, tag code 0

# -- Index file (store.md 4.1): header, slots of i32, entries of 20 bytes --------------------------
#
#    0            8          16           24         32          36            40
#    | begin time | end time | begin pos. | end pos. | slots used | next entry |
#
#    entry: 0 key hash i32 | 4 log position i64 | 12 seconds since begin i32 | 16 previous entry i32
cpdef enum:
    INDEX_BEGIN_TIME = 0
    INDEX_END_TIME = 8
    INDEX_BEGIN_POSITION = 16
    INDEX_END_POSITION = 24
    INDEX_SLOTS_USED = 32
    INDEX_NEXT_ENTRY = 36
    INDEX_HEADER_SIZE = 40
    INDEX_SLOT_SIZE = 4
    INDEX_ENTRY_KEY_HASH = 0
    INDEX_ENTRY_LOG_POSITION = 4
    INDEX_ENTRY_SECONDS = 12
    INDEX_ENTRY_PREVIOUS = 16
    INDEX_ENTRY_SIZE = 20

# -- Checkpoint, one page (store.md 5) -------------------------------------------------------------
cpdef enum:
    CHECKPOINT_LOG_TIME = 0
    CHECKPOINT_QUEUES_TIME = 8
    CHECKPOINT_INDEX_TIME = 16
    CHECKPOINT_SIZE = 4096

# -- Wire (remoting.md 1.1): length i32, codec u8 and header length u24, header, body --------------
cpdef enum:
    FRAME_LENGTH_SIZE = 4
    FRAME_HEADER_WORD = 4
    FRAME_HEADER = 8                     # where the header starts
    FRAME_LENGTH_MAX = 16777212          # length word; the whole frame is four bytes longer

cdef enum:
    FRAME_HEADER_LENGTH_MASK = 0xFFFFFF  # of the word between: how long the header is ...
    FRAME_CODEC_SHIFT = 24               # ... and above that its form: 0 JSON, 1 binary

# -- A header in its binary form (remoting.md 1.3); R = remark, F = fields -------------------------
#
#    0          2          3          5          9          13           17   17 + R      21 + R
#    | code i16 | language | version  | opaque   | flag i32 | R i32      | R  | F i32     | F
cdef enum:
    BINARY_CODE = 0
    BINARY_LANGUAGE = 2
    BINARY_VERSION = 3
    BINARY_OPAQUE = 5
    BINARY_FLAG = 9
    BINARY_REMARK_LENGTH = 13
    BINARY_REMARK = 17
    BINARY_FIXED_SIZE = 21               # everything but remark and fields

# -- checksum entry, 8 bytes, beside the commit log: ours, a stock broker never looks (docs/formats.md)
#
#    0              4              8
#    | u32          | u32          |
#    | end of the   | CRC-32C of   |
#    | record in    | its bytes;   |
#    | its segment  | 0: not known |
cpdef enum:
    CHECKSUM_ENTRY_END = 0
    CHECKSUM_ENTRY_CRC = CHECKSUM_ENTRY_END + 4
    CHECKSUM_ENTRY_SIZE = CHECKSUM_ENTRY_CRC + 4
