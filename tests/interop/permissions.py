"""
A matrix of requests and of what accounts may do with them: at a stock broker, at one of ours that
lets pass what stock does, and at one that asks for what a request touches (docs/security.md).
"""
from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.properties import encode_properties
from mqcore.wire.records import decode_record
from tests.acl.test_broker import Signer, heartbeat
from tests.interop.accounts import ACCOUNTS, ADMIN, BY_DEFAULT, IDLER, OURS, READER, REFUSALS, Side
from tests.support.waiting import wait_until
from tests.wire_live.peer import pull_fields, send_fields

TOPIC, GROUP, OTHERS = "Matrix", "readers", "others"
Fields = Mapping[str, str | None]

OK, NONE, ADMINS = "ok", "permission", "admin"
ALL, NEEDS_DEFAULT, NEEDS_READ, NOBODYS = (
    (OK, OK, OK), (NONE, NONE, OK), (NONE, OK, OK), (ADMINS, ADMINS, ADMINS))
WHO = (IDLER, ACCOUNTS[READER], BY_DEFAULT)     # nothing; SUB on all topics, `others`; all defaults


@dataclass
class Row:
    """
    A request, and what becomes of it when WHO ask.

    stock      at stock, and at ours that does as stock
    touched    at ours that asks for what it touches; None: the same
    """

    name: str
    code: int
    ext: Fields
    body: bytes
    stock: tuple[str, str, str]
    touched: tuple[str, str, str] | None = None


def short(topic: str, group: str, **more: str) -> dict[str, str | None]:
    return {**send_fields(topic), "a": group, **more}


LONG_NAMES = dict(zip("abcdefghijkm", (
    "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag",
    "bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode", "batch"), strict=True))


def long(topic: str, group: str) -> dict[str, str | None]:
    return {LONG_NAMES[name]: value for name, value in short(topic, group).items()}


def retry(group: str) -> str:
    return f"%RETRY%{group}"


def rows(half: Fields, there: str) -> list[Row]:
    """half: the end of a transaction to TOPIC, there: the position of a message of TOPIC."""
    queue: dict[str, str | None] = {"topic": TOPIC, "queueId": "0"}
    progress = {**queue, "consumerGroup": GROUP, "commitOffset": "0"}
    locks = json.dumps({"clientId": "c", "consumerGroup": GROUP, "mqSet": [
        {"topic": TOPIC, "brokerName": OURS, "queueId": 0}]}).encode()
    back: dict[str, str | None] = {"offset": there, "delayLevel": "0", "unitMode": "false"}
    found = [
        Row("send", Code.SEND_MESSAGE, long(TOPIC, "PG"), b"x", NEEDS_DEFAULT),
        Row("send v2", Code.SEND_MESSAGE_V2, short(TOPIC, "PG"), b"x", NEEDS_DEFAULT),
        Row("send, retry topic", Code.SEND_MESSAGE, long(retry(GROUP), "PG"), b"x", ALL,
            NEEDS_DEFAULT),
        Row("send v2, retry topic", Code.SEND_MESSAGE_V2, short(retry(GROUP), GROUP), b"x",
            NEEDS_DEFAULT),
        Row("send v2, own group, its retry topic", Code.SEND_MESSAGE_V2,
            short(retry(OTHERS), OTHERS), b"x", NEEDS_READ),
        Row("send v2, own group, another's retry topic", Code.SEND_MESSAGE_V2,
            short(retry(GROUP), OTHERS), b"x", NEEDS_READ, NEEDS_DEFAULT),
        Row("send v2, trace", Code.SEND_MESSAGE_V2, short("RMQ_SYS_TRACE_TOPIC", "PG"), b"x", ALL),
        Row("batch", Code.SEND_BATCH_MESSAGE, short(TOPIC, "PG", m="true"), b"", ALL,
            NEEDS_DEFAULT),
        Row("reply", Code.SEND_REPLY_MESSAGE, long(TOPIC, "PG"), b"x", ALL, NEEDS_DEFAULT),
        Row("reply v2", Code.SEND_REPLY_MESSAGE_V2, short(TOPIC, "PG"), b"x", ALL, NEEDS_DEFAULT),
        Row("end of a transaction", Code.END_TRANSACTION, half, b"", ALL, NEEDS_DEFAULT),
        Row("sent back", Code.CONSUMER_SEND_MSG_BACK, {**back, "group": GROUP}, b"",
            NEEDS_DEFAULT),
        Row("pull", Code.PULL_MESSAGE, pull_fields(TOPIC, group=GROUP), b"", NEEDS_DEFAULT),
        Row("pull, own group", Code.PULL_MESSAGE, pull_fields(TOPIC, group=OTHERS), b"",
            NEEDS_READ),
        Row("pull of what waits", Code.PULL_MESSAGE,
            pull_fields("SCHEDULE_TOPIC_XXXX", group=GROUP), b"", NEEDS_DEFAULT,
            (NONE, NONE, NONE)),
        Row("light pull", Code.LITE_PULL_MESSAGE, pull_fields(TOPIC, group=GROUP), b"", ALL,
            NEEDS_DEFAULT),
        Row("by key", Code.QUERY_MESSAGE, {
            "topic": TOPIC, "key": "k", "maxNum": "3", "beginTimestamp": "0",
            "endTimestamp": "9"}, b"", NEEDS_READ),
        Row("by position", Code.VIEW_MESSAGE_BY_ID, {"offset": there}, b"", ALL, NEEDS_READ),
        Row("offset", Code.QUERY_CONSUMER_OFFSET, progress, b"", ALL, NEEDS_DEFAULT),
        Row("commit", Code.UPDATE_CONSUMER_OFFSET, progress, b"", NEEDS_DEFAULT),
        Row("heartbeat", Code.HEART_BEAT, {}, heartbeat(GROUP, TOPIC), NEEDS_DEFAULT),
        Row("goodbye", Code.UNREGISTER_CLIENT, {"clientID": "c", "consumerGroup": GROUP}, b"",
            NEEDS_DEFAULT),
        Row("members", Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": GROUP}, b"",
            NEEDS_DEFAULT),
        Row("lock", Code.LOCK_BATCH_MQ, {}, locks, ALL, NEEDS_DEFAULT),
        Row("unlock", Code.UNLOCK_BATCH_MQ, {}, locks, ALL, NEEDS_DEFAULT),
        Row("queue", Code.QUERY_CONSUME_QUEUE, {**queue, "index": "0", "count": "1"}, b"", ALL,
            NEEDS_READ),
    ]
    # without what they need they do nothing; accounts are asked first
    found += [Row(code.name, code, {}, b"", NOBODYS) for code in (
        Code.UPDATE_AND_CREATE_TOPIC, Code.UPDATE_BROKER_CONFIG, Code.DELETE_TOPIC_IN_BROKER,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, Code.DELETE_SUBSCRIPTIONGROUP)]
    found += [Row(code.name, code, {}, b"", ALL, NOBODYS) for code in (
        Code.UPDATE_AND_CREATE_ACL_CONFIG, Code.DELETE_ACL_CONFIG,
        Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, Code.INVOKE_BROKER_TO_RESET_OFFSET,
        Code.CLONE_GROUP_OFFSET, Code.CLEAN_EXPIRED_CONSUMEQUEUE, Code.CLEAN_UNUSED_TOPIC,
        Code.DELETE_EXPIRED_COMMITLOG, Code.CONSUME_MESSAGE_DIRECTLY,
        Code.RESUME_CHECK_HALF_MESSAGE)]
    found += [Row(code.name, code, queue, b"", ALL) for code in (
        Code.GET_BROKER_RUNTIME_INFO, Code.GET_BROKER_CONFIG, Code.GET_ALL_TOPIC_CONFIG,
        Code.GET_MAX_OFFSET, Code.GET_MIN_OFFSET, Code.GET_EARLIEST_MSG_STORETIME,
        Code.GET_TOPIC_STATS_INFO, Code.GET_ALL_CONSUMER_OFFSET, Code.QUERY_TOPIC_CONSUME_BY_WHO,
        Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, Code.GET_BROKER_CLUSTER_ACL_INFO)]
    return found


def rows_of(side: Side) -> list[Row]:
    """The matrix, about messages of this broker."""
    properties = encode_properties({"TRAN_MSG": "true", "PGROUP": "PG", "UNIQ_KEY": "0A0B" * 8})
    with side.signer(ADMIN) as admin:
        positions = []
        for fields in (send_fields(TOPIC), send_fields(TOPIC, properties=properties, sys_flag=4)):
            answer = admin.does(Code.SEND_MESSAGE_V2, fields, b"x")
            assert answer.code == 0, (side.kind, answer)
            positions.append(str(int(((answer.ext or {})["msgId"] or "")[16:], 16)))
        there, position = positions
        wait_until(lambda: admin.does(Code.VIEW_MESSAGE_BY_ID, {"offset": position}).code == 0,
                   "the half message")
        record = decode_record(admin.does(Code.VIEW_MESSAGE_BY_ID, {"offset": position}).body)
    return rows({
        "producerGroup": "PG", "tranStateTableOffset": str(record.queue_offset),
        "commitLogOffset": position, "commitOrRollback": "12", "fromTransactionCheck": "false",
        "msgId": "0A0B" * 8, "transactionId": "0A0B" * 8}, there)


def judged(peer: Signer, row: Row) -> str:
    """
    ok, or what sort of refusal. Of several permissions that are missing stock names any one, so
    topics and groups are not told apart.
    """
    answer = peer.does(row.code, dict(row.ext), row.body)
    if "AclException" not in (answer.remark or ""):
        return OK
    assert answer.code == 1, answer
    (sort,) = (sort for words, sort in REFUSALS.items() if words in (answer.remark or ""))
    return NONE if sort in ("topic", "group") else sort


def matrix(side: Side) -> dict[str, tuple[str, ...]]:
    """By request, what WHO hear."""
    made = rows_of(side)
    found: dict[str, tuple[str, ...]] = {row.name: () for row in made}
    for account in WHO:
        with side.signer(account) as peer:
            for row in made:
                found[row.name] += (judged(peer, row),)
    return found
