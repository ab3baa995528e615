"""Recorded requests to the stock name server get the same answers from ours."""
import pytest

from mqcore.namesrv.handlers import Handlers
from mqcore.namesrv.kv import KeyValues
from mqcore.namesrv.routes import RouteTables
from mqcore.namesrv.runtime import RuntimeConfig
from mqcore.wire import fastjson
from mqcore.wire.command import decode, encode, request
from mqcore.wire.topics import DataVersion, TopicConfig, TopicTable, encode_registration
from tests.namesrv.harness import settings_in
from tests.support import recorded

BROKER = {"brokerName": "broker-a", "brokerAddr": "127.0.0.2:40911",
          "clusterName": "DefaultCluster", "brokerId": "0", "haServerAddr": "127.0.0.2:40912"}
ORDER_TOPICS = {"ot_15aa66c3_mqadmin_updateTopic_order1": "broker-a:8",
                "Tx6b015b83": "broker-a:4",
                "T_15aa66c3_mqadmin_updateOrderConf1": "broker-a:4"}
STOCK_SETTINGS_WITHOUT_EFFECT = {
    "serverSocketBacklog", "writeBufferHighWaterMark", "serverWorkerThreads",
    "serverSelectorThreads", "configBlackList", "writeBufferLowWaterMark",
    "serverSocketRcvBufSize", "serverAsyncSemaphoreValue", "configStorePath", "clusterTest",
    "serverSocketSndBufSize", "serverOnewaySemaphoreValue", "serverCallbackExecutorThreads",
    "rocketmqHome", "useEpollNativeSelector", "serverPooledByteBufAllocatorEnable",
}

# What differs on purpose: (request code, response code) -> our remark for a request's fields.
REMARK_DIFFERENCES = {
    # The stock text ends in a second line with a link to a page of its project.
    (105, 17): lambda ext: f"No topic route info in name server for the topic: {ext['topic']}",
    # The stock text does not name the key.
    (318, 16): lambda ext: "kvConfigPath cannot be changed while the name server runs",
}

EXCHANGES = [
    exchange for name in ("registration", "route", "namesrv-admin")
    for exchange in recorded.exchanges(name) if exchange.code != 305       # 305 asks a broker
]


@pytest.fixture
def handlers(tmp_path):
    """A name server in the state that the recorded one was in, as far as requests show it."""
    settings = settings_in(tmp_path, listen_port=39876)
    key_values = KeyValues(settings.kv_file)
    made = Handlers(RouteTables(), key_values, RuntimeConfig(settings))
    topics = [
        TopicConfig("TBW102", 8, 8, 7), TopicConfig("T_15aa66c3_node_dlq1", 1, 1, 6),
        *(TopicConfig(f"T{number}") for number in range(391)),
    ]
    table = TopicTable(DataVersion(1, 1), {topic.name: topic for topic in topics})
    made.handle(request(103, dict(BROKER), encode_registration(table)), 1, 0)
    return made


def prepare(handlers, exchange):
    """The state that this one exchange was recorded in."""
    ext, code = exchange.request.header.get("extFields") or {}, exchange.code
    recorded_body = exchange.response.body_text if exchange.response else None
    if (code == 103 and recorded_body) or code == 219 or (
        code == 101 and ext["namespace"] == "ORDER_TOPIC_CONFIG"
    ):
        wanted = fastjson.loads(recorded_body)["table"] if recorded_body else ORDER_TOPICS
        for key, value in wanted.items():
            fields = {"namespace": "ORDER_TOPIC_CONFIG", "key": key, "value": value}
            handlers.handle(request(100, fields), 1, 0)
    if code == 322:
        slave = {**BROKER, "brokerId": "1", "brokerAddr": ext["brokerAddr"]}
        version = DataVersion.from_json(fastjson.loads(recorded_body))
        handlers.handle(request(103, slave, encode_registration(TopicTable(version))), 1, 0)


def shape(value):
    """Names and kinds of a JSON value, for lists of names that depend on the recorded run."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return sorted({str(shape(item)) for item in value})
    return type(value).__name__


@pytest.mark.parametrize("exchange", EXCHANGES, ids=str)
def test_a_recorded_request_gets_the_recorded_answer(handlers, exchange):
    prepare(handlers, exchange)
    ours = handlers.handle(decode(exchange.request.payload), 2, 0)
    if exchange.response is None:
        assert exchange.oneway
        assert ours.code == 0
        return

    theirs = decode(exchange.response.payload)
    ours = decode(encode(ours)[4:])
    assert (ours.code, ours.opaque, ours.flag, ours.language, ours.version, ours.codec) == (
        theirs.code, theirs.opaque, theirs.flag, theirs.language, theirs.version, theirs.codec
    )
    assert ours.ext == theirs.ext
    difference = REMARK_DIFFERENCES.get((exchange.code, theirs.code))
    if difference is None:
        assert ours.remark == theirs.remark
    else:
        assert ours.remark == difference(exchange.request.header.get("extFields"))
        assert ours.remark != theirs.remark
    compare_bodies(exchange.code, ours.body, theirs.body)


def compare_bodies(code, ours, theirs):
    if code == 319:
        keys = {line.partition("=")[0] for line in theirs.decode().splitlines()}
        our_keys = {line.partition("=")[0] for line in ours.decode().splitlines()}
        assert keys - our_keys == STOCK_SETTINGS_WITHOUT_EFFECT
    elif code == 304:
        ours, theirs = fastjson.loads(ours), fastjson.loads(theirs)
        assert set(ours.pop("topicList")) == set(theirs.pop("topicList"))
        assert ours == theirs
    elif code in (206, 224):
        assert shape(fastjson.loads(ours)) == shape(fastjson.loads(theirs))
    elif theirs[:1] == b"{" and code in (103, 219):
        assert fastjson.loads(ours) == fastjson.loads(theirs)      # a map: its order is free
    else:
        assert ours == theirs                                       # routes: every byte
