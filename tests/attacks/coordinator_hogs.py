"""Requests that are valid and take the coordinator long: over the largest tables, without end."""
from __future__ import annotations

import random
import time
from collections.abc import Callable

import msgspec

from mqcore.broker.requests.table import HANDLERS
from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.command import encode, request
from tests.wire_live.peer import Closed, Peer, topic_fields

TOPIC, QUEUES = "of-many-queues", 65_535
GROUP = "of-many-queues"
AT_ONCE = 32
# What changes the broker for others, or has no long way to go.
LEFT_OUT = frozenset((
    Code.UPDATE_BROKER_CONFIG, Code.DELETE_EXPIRED_COMMITLOG, Code.DELETE_TOPIC_IN_BROKER,
    Code.CLEAN_UNUSED_TOPIC, Code.CLEAN_EXPIRED_CONSUMEQUEUE, Code.SEND_MESSAGE,
    Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE, Code.CONSUMER_SEND_MSG_BACK,
    Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2, Code.END_TRANSACTION))
CODES = sorted({int(code) for code in HANDLERS} - LEFT_OUT)
FIELDS: dict[str, str | None] = {
    "topic": TOPIC, "group": GROUP, "consumerGroup": GROUP, "producerGroup": GROUP,
    "clientID": "hog", "clientId": "hog", "queueId": "0", "offset": "0", "index": "0",
    "count": "10000", "timestamp": "0", "isForce": "true", "isOrder": "false",
    "statsName": "GROUP_GET_FALL_SIZE", "statsKey": "0@T@G", "key": "k", "beginTimestamp": "0",
    "endTimestamp": "9999999999999", "maxNum": "64", "srcGroup": GROUP, "destGroup": "copy",
    "filterGroups": "", "groupName": "no-such-group", "removeOffset": "true",
    "commitOffset": "0", "queueOffset": "0", "maxMsgNums": "1", "sysFlag": "0",
    "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0", "msgId": "",
}


def heartbeat(number: int, topics: int = 1_000) -> bytes:
    """A consumer's, of some 250 KB; each number is another one."""
    return msgspec.json.encode({
        "clientID": "hog", "producerDataSet": [], "consumerDataSet": [{
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "consumeType": "CONSUME_PASSIVELY",
            "groupName": f"hog-{part}", "messageModel": "CLUSTERING", "unitMode": False,
            "subscriptionDataSet": [{
                "classFilterMode": False, "codeSet": [], "expressionType": "TAG",
                "subString": "*", "subVersion": number, "tagsSet": [], "topic": f"T-{topic}",
            } for topic in range(topics)]} for part in range(2)]})


def bodies(code: int) -> bytes:
    if code == Code.HEART_BEAT:
        return heartbeat(1)
    if code in (Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ):
        return msgspec.json.encode({
            "consumerGroup": GROUP, "clientId": "hog", "mqSet": [
                {"topic": TOPIC, "brokerName": "any", "queueId": queue} for queue in range(4_000)]})
    return b"{}"


def make_tables(address: str) -> None:
    """A topic of as many queues as one can have."""
    with Peer(address) as peer:
        answer = peer.ask(Code.UPDATE_AND_CREATE_TOPIC, topic_fields(TOPIC, QUEUES))
        assert answer.code == 0, answer.remark


def flood(address: str, codes: list[int], is_over: Callable[[], bool]) -> None:
    """One connection that asks all of it again and again and reads the answers."""
    frames = [encode(request(code, dict(FIELDS), bodies(code))) for code in codes]
    with Peer(address) as peer:
        while not is_over():
            for _ in range(max(1, AT_ONCE // len(frames))):
                peer.send(b"".join(frames))
            try:
                while not is_over():
                    peer.receive_frame(0.2)
            except TimeoutError:
                continue


def other_heartbeats(address: str, is_over: Callable[[], bool]) -> None:
    """One connection that says something else about itself with each large heartbeat."""
    with Peer(address) as peer:
        number = 0
        while not is_over():
            number += 1
            peer.send(encode(request(Code.HEART_BEAT, {}, heartbeat(number))))
            if number % 4 == 0:
                peer.receive_frame(60.0)


def large_bodies(address: str, is_over: Callable[[], bool], topics: int = 30_000) -> None:
    """One connection with heartbeats of many megabytes, each another one, and locks as large."""
    beats = [msgspec.json.encode({"clientID": "large", "consumerDataSet": [{
        "groupName": "large", "subscriptionDataSet": [
            {"topic": f"{prefix}-{number}", "subString": "*", "subVersion": version,
             "tagsSet": [], "codeSet": [], "unknown": "x" * 250} for number in range(topics)]}]})
        for version, prefix in enumerate(("A", "B"))]
    locks = msgspec.json.encode({"consumerGroup": "large", "clientId": "large", "mqSet": [
        {"topic": f"T-{queue}", "brokerName": "any", "queueId": queue} for queue in range(60_000)]})
    asked = [(Code.HEART_BEAT, beats[0]), (Code.LOCK_BATCH_MQ, locks), (Code.HEART_BEAT, beats[1]),
             (Code.UNLOCK_BATCH_MQ, locks)]
    with Peer(address) as peer:
        while not is_over():
            for code, body in asked:
                peer.send(encode(request(code, {}, body)))
                peer.receive_frame(60.0)


def new_groups(address: str, is_over: Callable[[], bool], count: int = 3_000) -> None:
    """One connection that names one group more with each heartbeat."""
    with Peer(address) as peer:
        for number in range(count):
            if is_over():
                return
            body = msgspec.json.encode({
                "clientID": "hog", "producerDataSet": [],
                "consumerDataSet": [{"groupName": f"new-{number}", "subscriptionDataSet": []}]})
            peer.send(encode(request(Code.HEART_BEAT, {}, body)))
            if number % 32 == 31:
                for _ in range(32):
                    peer.receive_frame(60.0)


def run(broker_addr: str, namesrv_addr: str, seconds: float, rng: random.Random) -> None:
    """For the soak: one of these kinds, for so long."""
    end = time.monotonic() + seconds

    def is_over() -> bool:
        return time.monotonic() >= end

    make_tables(broker_addr)
    try:
        kind = rng.randrange(4)
        if kind == 0:
            flood(broker_addr, rng.sample(CODES, 4), is_over)
        elif kind == 1:
            other_heartbeats(broker_addr, is_over)
        elif kind == 2:
            large_bodies(broker_addr, is_over)
        else:
            new_groups(broker_addr, is_over, 500)
    except (Closed, TimeoutError):
        return                            # the broker may end such a connection
