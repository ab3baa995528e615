"""Reads headers as requests."""
from libc.stdint cimport INT32_MAX, int32_t, int64_t

from mqcore.layout cimport GROUP_LENGTH_MAX, TOPIC_LENGTH_MAX
from mqcore.net.remoting.frames cimport ONEWAY_BIT
from mqcore.net.requests cimport GROUP_BYTES_MAX, Asker
from mqcore.wire.codes cimport REQUEST_SEND_BATCH_MESSAGE
from mqcore.wire.header cimport (
    END_DECISION,
    END_GROUP,
    END_HALF_OFFSET,
    END_LOG_POSITION,
    PULL_COMMIT_OFFSET,
    PULL_COUNT_MAX,
    PULL_EXPRESSION_TYPE,
    PULL_GROUP,
    PULL_QUEUE_ID,
    PULL_QUEUE_OFFSET,
    PULL_SUBSCRIPTION,
    PULL_SUB_VERSION,
    PULL_SUSPEND_MS,
    PULL_SYS_FLAG,
    PULL_TOPIC,
    SEND_BATCH,
    SEND_BORN_TIME,
    SEND_FLAG,
    SEND_PROPERTIES,
    SEND_QUEUE_ID,
    SEND_RECONSUME_TIMES,
    SEND_SYS_FLAG,
    SEND_TOPIC,
    Header,
    Text,
    text_copy,
    text_i64,
    text_is_true,
)


cdef bint read_i32(const Text* text, int32_t* value) noexcept nogil:
    cdef int64_t number
    if not text_i64(text, &number) or number != <int32_t>number:
        return False
    value[0] = <int32_t>number
    return True


cdef void read_asker(const Header* header, Asker* asker) noexcept nogil:
    asker.opaque = header.opaque
    asker.binary = header.binary
    asker.oneway = header.flag & ONEWAY_BIT != 0


cdef bint read_send(const Request* request, SendRequest* send) noexcept nogil:
    cdef const Header* header = &request.header
    cdef const Text* fields = &header.fields[0]
    send.topic_length = text_copy(&fields[SEND_TOPIC], send.topic, TOPIC_LENGTH_MAX)
    send.reconsume_times = 0
    if (send.topic_length < 1 or not read_i32(&fields[SEND_QUEUE_ID], &send.queue_id)
            or not read_i32(&fields[SEND_SYS_FLAG], &send.sys_flag)
            or not text_i64(&fields[SEND_BORN_TIME], &send.born_time_ms)
            or not read_i32(&fields[SEND_FLAG], &send.flag)):
        return False
    if fields[SEND_RECONSUME_TIMES].length >= 0 and not read_i32(
            &fields[SEND_RECONSUME_TIMES], &send.reconsume_times):
        return False
    send.batch = header.code == REQUEST_SEND_BATCH_MESSAGE or text_is_true(&fields[SEND_BATCH])
    send.properties = fields[SEND_PROPERTIES]
    send.body = request.body
    send.body_length = request.body_length
    read_asker(header, &send.asker)
    return True


cdef bint read_pull(const Request* request, PullRequest* pull) noexcept nogil:
    cdef const Text* fields = &request.header.fields[0]
    cdef int64_t number, sys_flag
    pull.group_length = text_copy(&fields[PULL_GROUP], pull.group, GROUP_BYTES_MAX - 1)
    pull.topic_length = text_copy(&fields[PULL_TOPIC], pull.topic, TOPIC_LENGTH_MAX)
    if (pull.group_length < 1 or pull.topic_length < 1
            or not read_i32(&fields[PULL_QUEUE_ID], &pull.queue_id)
            or not text_i64(&fields[PULL_QUEUE_OFFSET], &pull.offset) or pull.offset < 0
            or not text_i64(&fields[PULL_COUNT_MAX], &number)
            or not text_i64(&fields[PULL_SYS_FLAG], &sys_flag)
            or not text_i64(&fields[PULL_COMMIT_OFFSET], &pull.commit_offset)
            or not text_i64(&fields[PULL_SUSPEND_MS], &pull.wait_ms)
            or not text_i64(&fields[PULL_SUB_VERSION], &pull.version)):
        return False
    pull.count_max = <int32_t>max(min(number, <int64_t>INT32_MAX), 0)
    if not sys_flag & PULL_SUSPENDS:
        pull.wait_ms = 0
    pull.commits = sys_flag & PULL_COMMITS != 0
    pull.replays = sys_flag & PULL_REPLAYS != 0
    pull.brings_filter = sys_flag & PULL_HAS_SUBSCRIPTION != 0
    pull.filter_type = fields[PULL_EXPRESSION_TYPE]
    pull.filter = fields[PULL_SUBSCRIPTION]
    read_asker(&request.header, &pull.asker)
    pull.asker.oneway = False          # stock answers them all
    return True


cdef bint read_end(const Request* request, EndRequest* end) noexcept nogil:
    cdef const Text* fields = &request.header.fields[0]
    if fields[END_GROUP].length < 0 or not (
            text_i64(&fields[END_DECISION], &end.decision)
            and text_i64(&fields[END_HALF_OFFSET], &end.half_offset)
            and text_i64(&fields[END_LOG_POSITION], &end.log_position)):
        return False
    end.group_length = text_copy(&fields[END_GROUP], end.group, GROUP_LENGTH_MAX)
    end.account = request.account
    read_asker(&request.header, &end.asker)
    return True
