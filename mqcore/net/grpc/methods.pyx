"""Names of methods, and codes."""
from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memcmp, strlen

from mqcore.text cimport is_literal
from mqcore.wire.codes cimport (
    RESPONSE_FLUSH_DISK_TIMEOUT,
    RESPONSE_FLUSH_SLAVE_TIMEOUT,
    RESPONSE_MESSAGE_ILLEGAL,
    RESPONSE_NO_PERMISSION,
    RESPONSE_REQUEST_CODE_NOT_SUPPORTED,
    RESPONSE_SLAVE_NOT_AVAILABLE,
    RESPONSE_SUBSCRIPTION_GROUP_NOT_EXIST,
    RESPONSE_SUBSCRIPTION_PARSE_FAILED,
    RESPONSE_SUCCESS,
    RESPONSE_SYSTEM_BUSY,
    RESPONSE_TOPIC_NOT_EXIST,
)

cdef const char* SERVICE = "/apache.rocketmq.v2.MessagingService/"


cdef int32_t method_of(const uint8_t* path, size_t length) noexcept nogil:
    cdef int64_t before = <int64_t>strlen(SERVICE)
    cdef int64_t left = <int64_t>length - before
    cdef const uint8_t* name = path + before
    if left <= 0 or memcmp(path, SERVICE, before) != 0:
        return METHOD_NONE
    if is_literal(name, left, "QueryRoute"):
        return METHOD_QUERY_ROUTE
    if is_literal(name, left, "Heartbeat"):
        return METHOD_HEARTBEAT
    if is_literal(name, left, "SendMessage"):
        return METHOD_SEND_MESSAGE
    if is_literal(name, left, "QueryAssignment"):
        return METHOD_QUERY_ASSIGNMENT
    if is_literal(name, left, "ReceiveMessage"):
        return METHOD_RECEIVE_MESSAGE
    if is_literal(name, left, "AckMessage"):
        return METHOD_ACK_MESSAGE
    if is_literal(name, left, "ForwardMessageToDeadLetterQueue"):
        return METHOD_FORWARD_TO_DEAD_LETTERS
    if is_literal(name, left, "PullMessage"):
        return METHOD_PULL_MESSAGE
    if is_literal(name, left, "UpdateOffset"):
        return METHOD_UPDATE_OFFSET
    if is_literal(name, left, "GetOffset"):
        return METHOD_GET_OFFSET
    if is_literal(name, left, "QueryOffset"):
        return METHOD_QUERY_OFFSET
    if is_literal(name, left, "EndTransaction"):
        return METHOD_END_TRANSACTION
    if is_literal(name, left, "Telemetry"):
        return METHOD_TELEMETRY
    if is_literal(name, left, "NotifyClientTermination"):
        return METHOD_NOTIFY_TERMINATION
    if is_literal(name, left, "ChangeInvisibleDuration"):
        return METHOD_CHANGE_INVISIBLE
    if is_literal(name, left, "RecallMessage"):
        return METHOD_RECALL_MESSAGE
    return METHOD_NONE


cdef bint method_streams(int32_t method) noexcept nogil:
    return method == METHOD_TELEMETRY


cdef int32_t status_of(int32_t response_code) noexcept nogil:
    if response_code == RESPONSE_SUCCESS:
        return STATUS_OK
    if response_code == RESPONSE_FLUSH_DISK_TIMEOUT:
        return STATUS_MASTER_PERSISTENCE_TIMEOUT
    if response_code == RESPONSE_SLAVE_NOT_AVAILABLE:
        return STATUS_HA_NOT_AVAILABLE
    if response_code == RESPONSE_FLUSH_SLAVE_TIMEOUT:
        return STATUS_SLAVE_PERSISTENCE_TIMEOUT
    if response_code == RESPONSE_SYSTEM_BUSY:
        return STATUS_TOO_MANY_REQUESTS
    if response_code == RESPONSE_REQUEST_CODE_NOT_SUPPORTED:
        return STATUS_NOT_IMPLEMENTED
    if response_code == RESPONSE_NO_PERMISSION:
        return STATUS_FORBIDDEN
    if response_code == RESPONSE_SUBSCRIPTION_PARSE_FAILED:
        return STATUS_ILLEGAL_FILTER_EXPRESSION
    if response_code == RESPONSE_SUBSCRIPTION_GROUP_NOT_EXIST:
        return STATUS_CONSUMER_GROUP_NOT_FOUND
    if response_code == RESPONSE_TOPIC_NOT_EXIST:
        return STATUS_TOPIC_NOT_FOUND
    if response_code == RESPONSE_MESSAGE_ILLEGAL:
        return STATUS_BODY_TOO_LARGE
    return STATUS_INTERNAL_SERVER_ERROR
