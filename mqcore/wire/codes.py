"""The numbers of the remoting protocol: codes, languages, versions, flag and permission bits."""
from __future__ import annotations

import re
from enum import IntEnum

from mqcore.layout import FRAME_LENGTH_MAX as FRAME_LENGTH_MAX

FLAG_RESPONSE = 0x1                 # remoting.md 1.5
FLAG_ONEWAY = 0x2

LENGTH_WORD_SIZE = 4
HEADER_WORD_SIZE = 4

PERM_INHERIT = 0x1                  # remoting.md 4.7.2
PERM_WRITE = 0x2
PERM_READ = 0x4
PERM_PRIORITY = 0x8

MASTER_ID = 0
TEMPLATE_TOPIC = "TBW102"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"      # where delayed messages wait
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"     # half messages, until they are ended
TIMER_TOPIC = "rmq_sys_wheel_timer"         # messages with a time of delivery, until then
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"    # which half messages are ended
LIVES_TOPIC = "rmq_sys_queue_lives"         # ours: where the lives of queues end
GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"       # half messages that were asked about too often
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC = "OFFSET_MOVED_EVENT"
BENCHMARK_TOPIC = "BenchmarkTest"
SEND_FORBIDDEN = frozenset((
    SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, OP_TOPIC, GIVEN_UP_TOPIC, SELF_TEST_TOPIC,
    OFFSET_MOVED_TOPIC))
SYSTEM_TOPICS = SEND_FORBIDDEN - {TIMER_TOPIC} | {TEMPLATE_TOPIC, BENCHMARK_TOPIC, TRACE_TOPIC}
# of what topics.json need not have
UNLISTED_BEGINNINGS = ("RMQ_SYS_", "%", LIVES_TOPIC, TIMER_TOPIC, *SYSTEM_TOPICS)
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
QUEUE_COUNT_MAX = 65_536            # of a topic
PULL_FLAG_COMMIT = 0x1              # of a pull's sysFlag (remoting.md 4.2.1)
PULL_FLAG_SUSPEND = 0x2
PULL_FLAG_SUBSCRIPTION = 0x4
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"      # field of 12: the key is a unique one
KEY_LENGTH_MIN = 7                  # of access and secret keys, characters
# Header fields of 21, 43, 45 and 201 between brokers of ours: the version that a slave has of the
# table, whether it is the master's (then there is no body), and that one where no body says it.
KNOWN_VERSION, VERSION_IS_KNOWN, TABLE_VERSION = "knownVersion", "versionIsKnown", "tableVersion"
# Of HEAR_OF_TABLES: the versions that a slave has of topics, groups and, if it waits for them,
# offsets, how long it waits; in the answer, whether one of the tables has another version by now.
TOPICS_KNOWN, GROUPS_KNOWN, OFFSETS_KNOWN = "topicsKnown", "groupsKnown", "offsetsKnown"
WAIT_MS, TABLES_CHANGED = "waitMillis", "tablesChanged"
# Of 43 and 45, likewise: where the master's log ended when the body was made, bytes.
LOG_END = "logEnd"
# Of 15 between brokers of ours: an offset that was committed to a slave while its master was away.
GIVEN_BACK = "givenBack"
RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"


class RequestCode(IntEnum):
    """The codes of requests; all that 4.9.8 names (remoting.md 3.1)."""

    SEND_MESSAGE = 10
    PULL_MESSAGE = 11
    QUERY_MESSAGE = 12
    QUERY_BROKER_OFFSET = 13
    QUERY_CONSUMER_OFFSET = 14
    UPDATE_CONSUMER_OFFSET = 15
    UPDATE_AND_CREATE_TOPIC = 17
    GET_ALL_TOPIC_CONFIG = 21
    GET_TOPIC_CONFIG_LIST = 22
    GET_TOPIC_NAME_LIST = 23
    UPDATE_BROKER_CONFIG = 25
    GET_BROKER_CONFIG = 26
    TRIGGER_DELETE_FILES = 27
    GET_BROKER_RUNTIME_INFO = 28
    SEARCH_OFFSET_BY_TIMESTAMP = 29
    GET_MAX_OFFSET = 30
    GET_MIN_OFFSET = 31
    GET_EARLIEST_MSG_STORETIME = 32
    VIEW_MESSAGE_BY_ID = 33
    HEART_BEAT = 34
    UNREGISTER_CLIENT = 35
    CONSUMER_SEND_MSG_BACK = 36
    END_TRANSACTION = 37
    GET_CONSUMER_LIST_BY_GROUP = 38
    CHECK_TRANSACTION_STATE = 39
    NOTIFY_CONSUMER_IDS_CHANGED = 40
    LOCK_BATCH_MQ = 41
    UNLOCK_BATCH_MQ = 42
    GET_ALL_CONSUMER_OFFSET = 43
    GET_ALL_DELAY_OFFSET = 45
    CHECK_CLIENT_CONFIG = 46
    UPDATE_AND_CREATE_ACL_CONFIG = 50
    DELETE_ACL_CONFIG = 51
    GET_BROKER_CLUSTER_ACL_INFO = 52
    UPDATE_GLOBAL_WHITE_ADDRS_CONFIG = 53
    GET_TIMER_METRICS = 61              # of RocketMQ 5
    PUT_KV_CONFIG = 100
    GET_KV_CONFIG = 101
    DELETE_KV_CONFIG = 102
    REGISTER_BROKER = 103
    UNREGISTER_BROKER = 104
    GET_ROUTEINFO_BY_TOPIC = 105
    GET_BROKER_CLUSTER_INFO = 106
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201
    GET_TOPIC_STATS_INFO = 202
    GET_CONSUMER_CONNECTION_LIST = 203
    GET_PRODUCER_CONNECTION_LIST = 204
    WIPE_WRITE_PERM_OF_BROKER = 205
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206
    DELETE_SUBSCRIPTIONGROUP = 207
    GET_CONSUME_STATS = 208
    SUSPEND_CONSUMER = 209
    RESUME_CONSUMER = 210
    RESET_CONSUMER_OFFSET_IN_CONSUMER = 211
    RESET_CONSUMER_OFFSET_IN_BROKER = 212
    ADJUST_CONSUMER_THREAD_POOL = 213
    WHO_CONSUME_THE_MESSAGE = 214
    DELETE_TOPIC_IN_BROKER = 215
    DELETE_TOPIC_IN_NAMESRV = 216
    GET_KVLIST_BY_NAMESPACE = 219
    RESET_CONSUMER_CLIENT_OFFSET = 220
    GET_CONSUMER_STATUS_FROM_CLIENT = 221
    INVOKE_BROKER_TO_RESET_OFFSET = 222
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS = 223
    GET_TOPICS_BY_CLUSTER = 224
    QUERY_TOPIC_CONSUME_BY_WHO = 300
    REGISTER_FILTER_SERVER = 301
    REGISTER_MESSAGE_FILTER_CLASS = 302
    QUERY_CONSUME_TIME_SPAN = 303
    GET_SYSTEM_TOPIC_LIST_FROM_NS = 304
    GET_SYSTEM_TOPIC_LIST_FROM_BROKER = 305
    CLEAN_EXPIRED_CONSUMEQUEUE = 306
    GET_CONSUMER_RUNNING_INFO = 307
    QUERY_CORRECTION_OFFSET = 308
    CONSUME_MESSAGE_DIRECTLY = 309
    SEND_MESSAGE_V2 = 310
    GET_UNIT_TOPIC_LIST = 311
    GET_HAS_UNIT_SUB_TOPIC_LIST = 312
    GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST = 313
    CLONE_GROUP_OFFSET = 314
    VIEW_BROKER_STATS_DATA = 315
    CLEAN_UNUSED_TOPIC = 316
    GET_BROKER_CONSUME_STATS = 317
    UPDATE_NAMESRV_CONFIG = 318
    GET_NAMESRV_CONFIG = 319
    SEND_BATCH_MESSAGE = 320
    QUERY_CONSUME_QUEUE = 321
    QUERY_DATA_VERSION = 322
    RESUME_CHECK_HALF_MESSAGE = 323
    SEND_REPLY_MESSAGE = 324
    SEND_REPLY_MESSAGE_V2 = 325
    PUSH_REPLY_MESSAGE_TO_CLIENT = 326
    ADD_WRITE_PERM_OF_BROKER = 327
    GET_ALL_PRODUCER_INFO = 328
    DELETE_EXPIRED_COMMITLOG = 329
    QUERY_TOPICS_BY_CONSUMER = 343     # this one and those below: of 5.x
    QUERY_SUBSCRIPTION_BY_CONSUMER = 345
    GET_TOPIC_CONFIG = 351
    GET_SUBSCRIPTIONGROUP_CONFIG = 352
    LITE_PULL_MESSAGE = 361
    RECALL_MESSAGE = 370
    QUERY_ASSIGNMENT = 400
    SET_MESSAGE_REQUEST_MODE = 401
    GET_REPLICATION = 32001            # only ours: a stock broker says that it does not know it
    HEAR_OF_TABLES = 32002             # likewise
    GRPC_CALL = 32003                  # of the gRPC front, which is no peer's business
    GRPC_SETTINGS = 32004              # likewise
    GET_STANDING = 32005               # of ours alone: processes and latencies
    GET_POP_STATE = 32006              # likewise: deliveries of POP that wait for an ack
    POP_MESSAGE = 200050               # this one and those below: of 5.x
    ACK_MESSAGE = 200051
    PEEK_MESSAGE = 200052
    CHANGE_MESSAGE_INVISIBLETIME = 200053
    NOTIFICATION = 200054
    POLLING_INFO = 200055
    BATCH_ACK_MESSAGE = 200151


class ResponseCode(IntEnum):
    """How a request ended; all that 4.9.8 names (remoting.md 3.2)."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    TRANSACTION_FAILED = 4
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    VERSION_NOT_SUPPORTED = 15
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    TOPIC_EXIST_ALREADY = 18
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    FILTER_DATA_NOT_EXIST = 27
    FILTER_DATA_NOT_LATEST = 28
    INVALID_PARAMETER = 29             # of 5.x
    TRANSACTION_SHOULD_COMMIT = 200
    TRANSACTION_SHOULD_ROLLBACK = 201
    TRANSACTION_STATE_UNKNOW = 202
    TRANSACTION_STATE_GROUP_WRONG = 203
    NO_BUYER_ID = 204
    NOT_IN_CURRENT_UNIT = 205
    CONSUMER_NOT_ONLINE = 206
    CONSUME_MSG_TIMEOUT = 207
    NO_MESSAGE = 208
    UPDATE_AND_CREATE_ACL_CONFIG_FAILED = 209
    DELETE_ACL_CONFIG_FAILED = 210
    UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED = 211
    POLLING_FULL = 209                 # these two of 5.x: their numbers mean this there
    POLLING_TIMEOUT = 210
    FLOW_CONTROL = 215
    ILLEGAL_OPERATION = 604            # of 5.x


class LanguageCode(IntEnum):
    """The language of the sender (remoting.md 1.6)."""

    JAVA = 0
    CPP = 1
    DOTNET = 2
    PYTHON = 3
    DELPHI = 4
    ERLANG = 5
    RUBY = 6
    OTHER = 7
    HTTP = 8
    GO = 9
    PHP = 10
    OMS = 11
    RUST = 12


_OLD_VERSIONS = (
    "V3_0_0_SNAPSHOT", "V3_0_0_ALPHA1", "V3_0_0_BETA1", "V3_0_0_BETA2", "V3_0_0_BETA3",
    "V3_0_0_BETA4", "V3_0_0_BETA5", "V3_0_0_BETA6_SNAPSHOT", "V3_0_0_BETA6",
    "V3_0_0_BETA7_SNAPSHOT", "V3_0_0_BETA7", "V3_0_0_BETA8_SNAPSHOT", "V3_0_0_BETA8",
    "V3_0_0_BETA9_SNAPSHOT", "V3_0_0_BETA9", "V3_0_0_FINAL",
)
_VERSION_TEXT = re.compile(r"V?(\d+)[._](\d+)[._](\d+)([_-]SNAPSHOT)?", re.IGNORECASE)
VERSION_HIGHER = 612


def version_ordinal(text: str) -> int:
    """The protocol ordinal of a version like `4.9.8` (409) or `V3_0_7_SNAPSHOT` (remoting.md 1.6).

    Raises ValueError, naming the text, when no release of the protocol has that name.
    """
    if text.upper() in _OLD_VERSIONS:
        return _OLD_VERSIONS.index(text.upper())
    match = _VERSION_TEXT.fullmatch(text)
    if match is None:
        raise ValueError(f"version {text!r}: expected numbers like 4.9.8")
    major, minor, patch = (int(part) for part in match.group(1, 2, 3))
    ordinal = _release_ordinal(major, minor, patch)
    if ordinal is None:
        raise ValueError(f"version {text!r}: not in the version list of the protocol")
    return ordinal - 1 if match.group(4) else ordinal


def _release_ordinal(major: int, minor: int, patch: int) -> int | None:
    if major in (4, 5) and minor <= 9 and patch <= 9:
        return 213 + 200 * (major - 4) + 20 * minor + 2 * patch
    if major != 3:
        return None
    if minor == 0 and patch <= 15:
        return 15 + 2 * patch
    if minor in (1, 2) and patch <= 9:
        return 27 + 20 * minor + 2 * patch
    if 3 <= minor <= 9 and 1 <= patch <= 9:
        return 85 + 18 * (minor - 3) + 2 * patch
    return None


def _version_names() -> dict[int, str]:
    names = dict(enumerate(_OLD_VERSIONS))
    for major in (3, 4, 5):
        for minor in range(10):
            for patch in range(16):
                ordinal = _release_ordinal(major, minor, patch)
                if ordinal is not None and ordinal > 15:
                    names[ordinal] = f"V{major}_{minor}_{patch}"
                    names[ordinal - 1] = f"V{major}_{minor}_{patch}_SNAPSHOT"
    return names


_VERSION_NAMES = _version_names()
VERSION_4_9_8 = version_ordinal("4.9.8")


def version_text(ordinal: int) -> str:
    """The name that tools print for a version ordinal, such as `V4_9_8` for 409."""
    return _VERSION_NAMES.get(ordinal, "HIGHER_VERSION")


# Figures of the transaction check, and how GET_BROKER_RUNTIME_INFO (28) names them.
TRANSACTION_KEYS = {
    "pending": "transactionPending", "oldest_s": "transactionOldestSeconds",
    "checks": "transactionChecks", "given_up": "transactionGivenUp", "rounds": "transactionRounds",
}
