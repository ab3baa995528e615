"""Writes records as Messages."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdio cimport snprintf
from libc.string cimport memchr, memcmp, strlen

from mqcore.endian cimport load_i32
from mqcore.layout cimport HOST_V4_SIZE, SYS_FLAG_COMPRESSED
from mqcore.net.grpc.protobuf cimport pb_begin, pb_end, pb_put_bytes, pb_put_number
from mqcore.store.record cimport (
    PropertyItem,
    RecordHead,
    item_is,
    property_next,
    property_number,
    record_head,
)
from mqcore.store.topic_names cimport HALF_TOPIC, is_retry_topic
from mqcore.text cimport is_literal
from mqcore.wire.digits cimport put_message_id

cdef extern from "<arpa/inet.h>" nogil:
    const char* inet_ntop(int family, const void* address, char* text, unsigned int size)
    int AF_INET
    int AF_INET6

# Names that no property of an application may have (grpc.md 3.2), with a blank behind each.
cdef const char* RESERVED = (
    " KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET "
    "BUYER_ID ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME MSG_REGION "
    "TRACE_ON UNIQ_KEY EXTEND_UNIQ_INFO MAX_RECONSUME_TIMES CONSUME_START_TIME POP_CK POP_CK_OFFSET "
    "1ST_POP_TIME TRAN_PREPARED_QUEUE_OFFSET DUP_INFO INSTANCE_ID CORRELATION_ID REPLY_TO_CLIENT "
    "TTL ARRIVE_TIME PUSH_REPLY_TIME CLUSTER MSG_TYPE INNER_MULTI_QUEUE_OFFSET TIMER_DELAY_MS "
    "TIMER_DELAY_SEC TIMER_DELIVER_MS TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS TIMER_ROLL_TIMES "
    "TIMER_OUT_MS TIMER_DEL_UNIQKEY TIMER_DELAY_LEVEL __BORNHOST BORN_TIMESTAMP DLQ_ORIGIN_TOPIC "
    "DLQ_ORIGIN_MESSAGE_ID __CRC32# ")

cdef extern from "mq_md5.h" nogil:
    enum:
        MD5_HEX "MQ_MD5_HEX"
    void md5_hex "mq_md5_hex"(const uint8_t* data, size_t length, uint8_t* hex) noexcept

cdef enum:
    DIGEST_MD5 = 2                     # a DigestType
    ADDRESS_TEXT_MAX = 64
    ID_LENGTH_MAX = 56


cdef bint is_reserved(const uint8_t* key, int32_t length) noexcept nogil:
    cdef const char* at = RESERVED
    cdef const char* end = RESERVED + strlen(RESERVED)
    cdef const char* next_blank
    if length == 0 or memchr(key, c' ', length) != NULL:
        return False
    while at + 1 < end:
        next_blank = <const char*>memchr(at + 1, c' ', end - at - 1)
        if next_blank - at - 1 == length and memcmp(at + 1, key, length) == 0:
            return True
        at = next_blank
    return False


cdef void put_time(PbWriter* w, int32_t number, int64_t ms) noexcept nogil:
    cdef int64_t begun = pb_begin(w, number)
    pb_put_number(w, 1, ms // 1000)
    pb_put_number(w, 2, ms % 1000 * 1_000_000)
    pb_end(w, begun)


cdef void put_host(PbWriter* w, int32_t number, const uint8_t* host, int32_t size) noexcept nogil:
    """host: as a record has it."""
    cdef char address[ADDRESS_TEXT_MAX]
    cdef char text[ADDRESS_TEXT_MAX + 16]
    cdef bint v6 = size != HOST_V4_SIZE
    cdef int length
    if inet_ntop(AF_INET6 if v6 else AF_INET, host, address, ADDRESS_TEXT_MAX) == NULL:
        return
    if v6:
        length = snprintf(text, sizeof(text), "[%s]:%d", address, load_i32(host + size - 4))
    else:
        length = snprintf(text, sizeof(text), "%s:%d", address, load_i32(host + size - 4))
    pb_put_bytes(w, number, text, length)


cdef void put_keys_of(PbWriter* w, const PropertyItem* item) noexcept nogil:
    cdef const uint8_t* at = item.value
    cdef const uint8_t* end = item.value + item.value_length
    cdef const uint8_t* blank
    while at < end:
        blank = <const uint8_t*>memchr(at, c' ', end - at)
        if blank == NULL:
            blank = end
        if blank > at:
            pb_put_bytes(w, 2, at, blank - at)
        at = blank + 1


cdef void put_user_properties(PbWriter* w, const RecordView* view) noexcept nogil:
    """GM1"""
    cdef const uint8_t* at = view.properties
    cdef const uint8_t* end = view.properties + view.properties_length
    cdef PropertyItem item
    cdef int64_t entry
    while property_next(&at, end, &item):
        if is_reserved(item.key, item.key_length):
            continue
        entry = pb_begin(w, 2)
        pb_put_bytes(w, 1, item.key, item.key_length)
        pb_put_bytes(w, 2, item.value, item.value_length)
        pb_end(w, entry)


cdef void put_digest(PbWriter* w, const RecordView* view) noexcept nogil:
    """Of the body in this message: each client checks it, and Node's reads no message without one."""
    cdef uint8_t hex[MD5_HEX]
    cdef int64_t digest = pb_begin(w, 4)
    md5_hex(view.body, view.body_length, hex)
    pb_put_number(w, 1, DIGEST_MD5)
    pb_put_bytes(w, 2, hex, MD5_HEX)
    pb_end(w, digest)


cdef void put_system_properties(PbWriter* w, const uint8_t* record, const RecordView* view,
                                const Delivery* delivery) noexcept nogil:
    cdef const uint8_t* at = view.properties
    cdef const uint8_t* end = view.properties + view.properties_length
    cdef PropertyItem item
    cdef RecordHead head
    cdef uint8_t id[ID_LENGTH_MAX]
    cdef int32_t kind = TYPE_NORMAL
    cdef int64_t number
    cdef bint has_id = False
    record_head(view, record, &head)
    while property_next(&at, end, &item):
        if item_is(&item, "TAGS") and item.value_length > 0:
            pb_put_bytes(w, 1, item.value, item.value_length)
        elif item_is(&item, "KEYS"):
            put_keys_of(w, &item)
        elif item_is(&item, "UNIQ_KEY"):
            has_id = True
            pb_put_bytes(w, 3, item.value, item.value_length)
        elif item_is(&item, "TRAN_MSG"):
            kind = TYPE_TRANSACTION
        elif item_is(&item, "__SHARDINGKEY"):
            kind = TYPE_FIFO if kind == TYPE_NORMAL else kind
            pb_put_bytes(w, 17, item.value, item.value_length)
        elif item_is(&item, "TIMER_DELIVER_MS"):
            kind = TYPE_DELAY if kind != TYPE_TRANSACTION else kind
            if property_number(&item, &number) and number > 0:
                put_time(w, 11, number)
        elif item_is(&item, "DELAY"):
            kind = TYPE_DELAY if kind != TYPE_TRANSACTION else kind
        elif item_is(&item, "TRACE_CONTEXT"):
            pb_put_bytes(w, 18, item.value, item.value_length)
    if not has_id:                                                       # GM2
        put_message_id(id, head.store_host, head.store_host_size, view.log_position)
        pb_put_bytes(w, 3, id, 2 * head.store_host_size + 16)
    put_digest(w, view)
    pb_put_number(w, 5, ENCODING_GZIP if view.sys_flag & SYS_FLAG_COMPRESSED else ENCODING_IDENTITY)
    pb_put_number(w, 6, kind)
    put_time(w, 7, view.born_time_ms)
    put_host(w, 8, head.born_host, head.born_host_size)
    put_time(w, 9, view.store_time_ms)
    put_host(w, 10, head.store_host, head.store_host_size)
    if delivery.handle != NULL:
        pb_put_bytes(w, 12, delivery.handle, delivery.handle_length)
    pb_put_number(w, 13, view.queue_id)
    pb_put_number(w, 14, view.queue_offset)
    if delivery.attempt > 0:
        pb_put_number(w, 16, delivery.attempt)


cdef void put_message(PbWriter* w, int32_t number, const uint8_t* record, const RecordView* view,
                      const Delivery* delivery) noexcept nogil:
    cdef const uint8_t* topic = view.topic
    cdef int32_t topic_length = view.topic_length
    cdef const uint8_t* at = view.properties
    cdef bint retry = is_retry_topic(view.topic, view.topic_length)
    cdef bint half = is_literal(view.topic, view.topic_length, HALF_TOPIC)
    cdef PropertyItem item
    cdef int64_t message = pb_begin(w, number)
    cdef int64_t begun
    while (retry or half) and property_next(&at, view.properties + view.properties_length, &item):
        if (retry and item_is(&item, "RETRY_TOPIC")) or (half and item_is(&item, "REAL_TOPIC")):
            topic, topic_length = item.value, item.value_length          # GM1
    begun = pb_begin(w, 1)
    pb_put_bytes(w, 2, topic, topic_length)
    pb_end(w, begun)
    put_user_properties(w, view)
    begun = pb_begin(w, 3)
    put_system_properties(w, record, view, delivery)
    pb_end(w, begun)
    pb_put_bytes(w, 4, view.body, view.body_length)
    pb_end(w, message)
