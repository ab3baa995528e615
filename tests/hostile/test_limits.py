"""What a single bad request gets: the stock broker's code and a reason, or a closed connection."""
from __future__ import annotations

import struct
from collections.abc import Mapping

import pytest

from mqcore.layout import FRAME_LENGTH_MAX
from mqcore.wire import fastjson
from mqcore.wire.command import Codec, encode, request
from mqcore.wire.records import BatchItem, encode_batch
from tests.hostile.watch import Watch
from tests.support.mqcore_process import MqcoreProcess
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer, pull_fields, send_fields
from tests.wire_live.state import State

BODY_MAX = 4 << 20
Fields = Mapping[str, str | None]


def frame(header: bytes, body: bytes = b"", *, word: int | None = None) -> bytes:
    """A frame from raw parts; word: a header word that need not be true."""
    word = len(header) if word is None else word
    return struct.pack(">II", 4 + len(header) + len(body), word) + header + body


GOOD = encode(request(105, {"topic": "T"}))
BINARY = encode(request(105, {"topic": "T"}, codec=Codec.ROCKETMQ))
NONSENSE = {
    "a frame above 16 MiB": struct.pack(">I", FRAME_LENGTH_MAX + 1) + GOOD[4:],
    "the longest length there is": b"\x7f\xff\xff\xff",
    "a negative length": b"\xff\xff\xff\xff",
    "a frame without header word": struct.pack(">I", 3) + b"\0\0\0",
    "a header longer than its frame": frame(GOOD[8:], word=len(GOOD)),
    "an unknown codec": frame(GOOD[8:], word=7 << 24 | len(GOOD) - 8),
    "an empty header": frame(b""),
    "no JSON": frame(b"{]"),
    "JSON that is no object": frame(b"[1,2,3]"),
    "JSON null": frame(b"null"),
    "JSON nested too deeply": frame(b'{"code":105,"extFields":{"a":' + b"[" * 100_000),
    "a cut string": frame(b'{"code":105,"opaque":1,"remark":"'),
    "a code that is no number": frame(b'{"code":"send","opaque":1,"flag":0}'),
    "an opaque out of range": frame(b'{"code":105,"opaque":99999999999,"flag":0}'),
    "extFields that are no object": frame(b'{"code":105,"opaque":1,"flag":0,"extFields":7}'),
    "a huge header that is no JSON": frame(b'{"code":' + b"9" * 500_000),
    "a binary header of 20 bytes": frame(BINARY[8:28], word=1 << 24 | 20),
    "a binary remark longer than its header": frame(
        BINARY[8:21] + b"\x7f\xff\xff\xff" + BINARY[25:], word=1 << 24 | len(BINARY) - 8),
    "a binary field longer than its header": frame(
        BINARY[8:29] + b"\x00\x05topic\x00\x00\x10\x00T", word=1 << 24 | 21 + 12),
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(600),
    "HTTP": b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
}


@pytest.mark.parametrize("server", ["broker", "name server"])
@pytest.mark.parametrize("data", NONSENSE.values(), ids=NONSENSE.keys())
def test_nonsense_closes_its_own_connection_with_one_log_line(
    target: MqcoreProcess, watch: Watch, honest: State, server: str, data: bytes
) -> None:
    address = target.broker_addr if server == "broker" else target.namesrv_addr
    with Peer(address) as good, Peer(address) as bad:
        mine = "{}:{}".format(*bad.socket.getsockname())
        bad.send(data)
        assert bad.is_closed(5)
        wait_until(lambda: len([line for line in watch.new_lines() if mine in line]) == 1,
                   "a log line")
        (line,) = [line for line in watch.new_lines() if mine in line]
        assert "closed: " in line
        assert good.ask(105, {"topic": "TBW102"}).code == (3 if server == "broker" else 0)


@pytest.fixture(scope="module")
def topic(target: MqcoreProcess) -> str:
    with State(target.broker_addr) as peer:
        peer.topic("Limits", 4)
    return "Limits"


def send(**changed: str | None) -> Fields:
    return {**send_fields("Limits"), **changed}


def pull(**changed: str | None) -> Fields:
    return {**pull_fields("Limits"), **changed}


def heartbeat(**changed: object) -> bytes:
    subscription = {"topic": "Limits", "subString": "A", "subVersion": 1, "codeSet": [65],
                    "tagsSet": ["A"], **changed}
    return fastjson.dumps({"clientID": "c", "consumerDataSet": [
        {"groupName": "Limited", "subscriptionDataSet": [subscription]}]})


BATCH = encode_batch([BatchItem(b"one", {"a": "1"}), BatchItem(b"two", {"a": "2"})])
REFUSED: dict[str, tuple[int, Fields, bytes, int, tuple[str, ...]]] = {
    # name: (request code, fields, body, answered code, what the remark names)
    "queueId as text": (310, send(e="first"), b"x", 1, ("e", "number")),
    "queueId beyond 32 bits": (310, send(e="4294967296"), b"x", 1, ("e", "2147483647")),
    "a queue that the topic has not": (310, send(e="4"), b"x", 1, ("queue 4", "less than 4")),
    "bornTimestamp missing": (310, send(g=None), b"x", 1, ("g", "missing")),
    "flag as text": (310, send(h="high"), b"x", 1, ("h", "number")),
    "topic missing": (310, send(b=None), b"x", 1, ("b", "missing")),
    "topic empty": (310, send(b=""), b"x", 1, ()),          # a binary header has no empty fields
    "topic with illegal characters": (310, send(b="a b"), b"x", 1, ("topic", "a b")),
    "topic like a path": (310, send(b="../../x"), b"x", 1, ("topic",)),
    "topic of 128 characters": (310, send(b="t" * 128), b"x", 1, ("topic", "127")),
    "batch to a topic of 128 characters": (320, send(b="t" * 128), BATCH, 1, ("topic", "127")),
    "a system topic": (310, send(b="SCHEDULE_TOPIC_XXXX"), b"x", 16, ("SCHEDULE_TOPIC_XXXX",)),
    "properties of 32768 bytes": (310, send(i="k\x01" + "v" * 32_766), b"x", 13, ("32767",)),
    "properties of 300 kB": (310, send(i="k\x01" + "v" * 300_000), b"x", 13, ("32767",)),
    "a body above 4 MiB": (310, send(), bytes(BODY_MAX + 1), 13, ("body", str(BODY_MAX))),
    "a batch above 4 MiB": (
        320, send(m="true"), encode_batch([BatchItem(bytes(BODY_MAX), {})]), 13,
        ("body", str(BODY_MAX))),
    "an empty batch": (320, send(m="true"), b"", 1, ("batch",)),
    "a batch cut in its second item": (320, send(m="true"), BATCH[:-3], 1, ("batch",)),
    "a batch with a wrong size": (
        320, send(m="true"), struct.pack(">i", 7) + BATCH[4:], 1, ("batch", "size")),
    "a batch with a negative body length": (
        320, send(m="true"), BATCH[:16] + b"\xff\xff\xff\xff" + BATCH[20:], 1, ("batch",)),
    "a batch that is text": (320, send(m="true"), b"hello, broker", 1, ("batch",)),
    "a delayed batch": (320, send(m="true", i="DELAY\x013\x02"), BATCH, 13, ("batch",)),
    "a batch in a transaction": (320, send(m="true", f="4"), BATCH, 13, ()),
    "DELAY as text": (310, send(i="DELAY\x01soon\x02"), b"x", 1, ("DELAY", "number")),
    "pull: queueOffset as text": (11, pull(queueOffset="end"), b"", 1, ("queueOffset", "number")),
    "pull: maxMsgNums missing": (11, pull(maxMsgNums=None), b"", 1, ("maxMsgNums", "missing")),
    "pull: a queue that is not there": (11, pull(queueId="4"), b"", 1, ("queue 4", "0 to 3")),
    "pull: an unknown topic": (11, pull(topic="NotThere"), b"", 17, ("NotThere",)),
    "pull: a tag expression without a tag": (11, pull(subscription="||"), b"", 23, ()),
    "heartbeat: a version beyond 64 bits": (34, {}, heartbeat(subVersion=2**70), 1, (
        "subVersion", str(2**63 - 1))),
    "heartbeat: a tag code beyond 32 bits": (34, {}, heartbeat(codeSet=[2**40]), 1, (
        "codeSet", str(2**31 - 1))),
    "heartbeat: no JSON": (34, {}, b"{{", 1, ("body", "JSON")),
    "heartbeat: a list": (34, {}, b"[]", 1, ("body", "object")),
    "lock: no JSON": (41, {}, b"\xff\xff", 1, ("body", "JSON")),
    "an unknown code": (12345, {}, b"", 3, ("12345",)),
    "a request of 1 MiB": (34, {}, bytes(1 << 20), 1, ("393216",)),
}


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_a_bad_request_is_refused_with_field_and_limit(
    watch: Watch, honest: State, topic: str, codec: Codec,
    case: tuple[int, Fields, bytes, int, tuple[str, ...]],
) -> None:
    code, fields, body, wanted, named = case
    end = honest.queue_end(topic, 0)
    answer = honest.ask(code, fields, body, codec=codec)

    assert answer.code == wanted, answer.remark
    assert answer.remark
    assert [word for word in named if word not in answer.remark] == [], answer.remark
    assert answer.codec == codec
    assert honest.queue_end(topic, 0) == end          # nothing was stored


def test_a_heartbeat_with_names_that_nothing_can_have_is_refused_and_harms_nobody(
    watch: Watch, honest: State
) -> None:
    for group, topic in (("G" * 300, "T"), ("G", "t" * 222), ("a/b", "T"), ("G", "..")):
        with pytest.raises(AssertionError, match=r"may be called|topic"):
            honest.consumer(group, topic)
    honest.consumer("G-lawful", "T")


def test_the_largest_body_and_the_longest_topic_and_properties_are_taken(
    watch: Watch, honest: State, topic: str
) -> None:
    cluster = len("\x02CLUSTER\x01DefaultCluster")
    longest = "k\x01" + "v" * (32_767 - cluster - 2)
    body = bytes(range(256)) * (BODY_MAX // 256)
    name = "t" * 127
    honest.topic(name, 1)
    for fields in (send(i=longest), send(b=name)):
        assert honest.ask(310, fields, body).code == 0

    wait_until(lambda: honest.queue_end(name, 0) == 1, "the message in its queue")
    (record,) = honest.stored(name)
    assert record.body == body
