"""Every request that carries a name, with names that are paths, controls, separators, too long."""
from __future__ import annotations

import contextlib
import json
import random
import time
from collections.abc import Iterator, Mapping

from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.command import Codec, FrameError, encode, request
from tests.wire_live.peer import Closed, Peer, pull_fields, send_fields, topic_fields

HOSTILE = (
    "../../outside", "/tmp/outside", "a/b", "..", ".", "x\0y", "two\x01parts", "two\x02parts",
    "line\n2026-01-01 00:00:00,000 ERROR forged", "x" * 300, "é" * 80, 'quo"te\\', "a@b@c",
    "%LMQ%/../../outside", "%LMQ%../../../outside", "%RETRY%../../outside", "%DLQ%/x", "%RETRY%",
)
ZEROS = (
    "queueId", "queueOffset", "commitOffset", "offset", "delayLevel", "timestamp", "beginTime",
    "endTime", "beginTimestamp", "endTimestamp", "index", "sysFlag", "bornTimestamp", "flag",
    "reconsumeTimes", "defaultTopicQueueNums", "topicSysFlag", "e", "d", "f", "g", "h", "j",
    "tranStateTableOffset", "commitLogOffset", "suspendTimeoutMillis", "subVersion", "brokerId",
)
EIGHTS = ("maxMsgNums", "maxNum", "count", "perm", "readQueueNums", "writeQueueNums",
          "commitOrRollback")
NUMBERS = dict.fromkeys(ZEROS, "0") | dict.fromkeys(EIGHTS, "8")
NAMES = (
    "topic", "consumerGroup", "producerGroup", "group", "groupName", "srcGroup", "destGroup",
    "clientID", "clientId", "clientAddr", "defaultTopic", "originTopic", "originMsgId", "msgId",
    "key", "namespace", "brokerName", "clusterName", "cluster", "brokerAddr", "haServerAddr",
    "statsName", "statsKey", "filterGroups", "compareGroup", "value", "a", "b", "c",
    "transactionId", "subscription",
)
SWITCHES = {"order": "false", "unitMode": "false", "k": "false", "m": "false", "isForce": "true",
            "offline": "true", "removeOffset": "false", "topicFilterType": "SINGLE_TAG",
            "expressionType": "TAG"}
CLEANING = (Code.CLEAN_UNUSED_TOPIC, Code.CLEAN_EXPIRED_CONSUMEQUEUE,
            Code.DELETE_EXPIRED_COMMITLOG)
# All that there are but what brokers ask clients, and settings; what nobody knows is answered so.
CODES = sorted(code for code in Code if code not in (
    Code.CHECK_TRANSACTION_STATE, Code.NOTIFY_CONSUMER_IDS_CHANGED,
    Code.UPDATE_BROKER_CONFIG, Code.UPDATE_NAMESRV_CONFIG))


def fields_with(name: str) -> dict[str, str | None]:
    """All header fields that there are; every name is this one."""
    return {**NUMBERS, **SWITCHES, **dict.fromkeys(NAMES, name), "properties": properties(name),
            "i": properties(name)}


def properties(name: str) -> str:
    """What a client may put beside a message, with the name wherever one belongs."""
    keys = ("KEYS", "TAGS", "REAL_TOPIC", "RETRY_TOPIC", "PGROUP", "INNER_MULTI_DISPATCH",
            "CLUSTER", "UNIQ_KEY")
    return "".join(f"{key}\x01{name}\x02" for key in keys) + "REAL_QID\x012147483647\x02"


def bodies(name: str) -> dict[int, bytes]:
    """Bodies of the codes that have names in them."""
    subscription = {"topic": name, "subString": "*", "subVersion": 1, "tagsSet": [],
                    "codeSet": [], "expressionType": "TAG", "classFilterMode": False}
    consumer = {"groupName": name, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "unitMode": False,
                "subscriptionDataSet": [subscription]}
    queues = [{"topic": name, "brokerName": name, "queueId": 0}]
    lock = {"consumerGroup": name, "clientId": name, "mqSet": queues}
    topic = {"topicName": name, "readQueueNums": 8, "writeQueueNums": 8, "perm": 6}
    return {code: json.dumps(value).encode() for code, value in {
        Code.HEART_BEAT: {"clientID": name, "producerDataSet": [{"groupName": name}],
                          "consumerDataSet": [consumer]},
        Code.LOCK_BATCH_MQ: lock, Code.UNLOCK_BATCH_MQ: lock,
        Code.CHECK_CLIENT_CONFIG: {"clientId": name, "group": name,
                                   "subscriptionData": subscription},
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: {"groupName": name},
        Code.REGISTER_BROKER: {"filterServerList": [name], "topicConfigSerializeWrapper": {
            "dataVersion": {"counter": 1, "timestamp": 1}, "topicConfigTable": {name: topic}}},
    }.items()}


def requests(name: str) -> Iterator[tuple[int, Mapping[str, str | None], bytes]]:
    """Every code with all fields and its body, and the usual sends and pulls of such a topic."""
    body_of = bodies(name)
    for code in CODES:
        yield code, fields_with(name), body_of.get(code, b"body")
    for delay in ("", "DELAY\x011\x02", "TRAN_MSG\x01true\x02"):
        yield Code.SEND_MESSAGE_V2, send_fields(name, properties=properties(name) + delay), b"x"
        yield Code.SEND_MESSAGE_V2, send_fields("lawful", properties=properties(name) + delay), b"x"
    yield Code.PULL_MESSAGE, pull_fields(name, group=name), b""
    yield Code.PULL_MESSAGE, pull_fields("lawful", group=name, sys_flag=7), b""
    yield Code.UPDATE_AND_CREATE_TOPIC, topic_fields(name, 8), b""


def walk(address: str, name: str, *, answer_s: float = 1.0) -> list[tuple[int, int]]:
    """Ask everything; (code, response code) of what was answered. A connection may be ended."""
    answers = []
    for codec in (Codec.JSON, Codec.ROCKETMQ):
        peer = Peer(address)
        for code, ext, body in requests(name):
            try:
                answers.append((int(code), _asked(peer, code, ext, body, codec, answer_s)))
            except FrameError:                      # the codec has no form for such a name
                continue
            except (Closed, TimeoutError):
                peer.close()
                peer = Peer(address)
        peer.close()
    return answers


def _asked(peer: Peer, code: int, ext: Mapping[str, str | None], body: bytes, codec: Codec,
           answer_s: float) -> int:
    command = request(code, dict(ext), body, codec=codec)
    peer.send(encode(command))
    return peer.answer_to(command.opaque, answer_s).code


def run(broker_addr: str, namesrv_addr: str, seconds: float, rng: random.Random) -> None:
    end = time.monotonic() + seconds
    with Peer(broker_addr) as peer:
        peer.ask(Code.UPDATE_AND_CREATE_TOPIC, topic_fields("lawful", 1))
    while time.monotonic() < end:
        name, at = rng.choice(HOSTILE), rng.choice([broker_addr, namesrv_addr])
        with contextlib.suppress(OSError), Peer(at) as peer:
            for code, ext, body in requests(name):
                if code in CLEANING or time.monotonic() >= end:
                    continue                        # what is there is the other attacks'
                with contextlib.suppress(FrameError, Closed, TimeoutError):
                    _asked(peer, code, ext, body, Codec.JSON, 5.0)
