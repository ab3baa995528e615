"""Of each request it was decided what an account needs for it; none is open by oversight."""
from __future__ import annotations

import json

import pytest

from mqcore.acl import needs
from mqcore.broker.requests.table import HANDLERS
from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.command import request

# What only reads figures, names, settings and versions: any valid signature (docs/security.md).
# A message by its position (33) and the end of a transaction (37) are looked at where their topic
# is known (mqcore/broker/access.py).
QUESTIONS = {
    Code.GET_ALL_TOPIC_CONFIG, Code.GET_BROKER_CONFIG, Code.GET_BROKER_RUNTIME_INFO,
    Code.SEARCH_OFFSET_BY_TIMESTAMP, Code.GET_MAX_OFFSET, Code.GET_MIN_OFFSET,
    Code.GET_EARLIEST_MSG_STORETIME, Code.VIEW_MESSAGE_BY_ID, Code.END_TRANSACTION,
    Code.GET_ALL_CONSUMER_OFFSET, Code.GET_ALL_DELAY_OFFSET, Code.CHECK_CLIENT_CONFIG,
    Code.GET_BROKER_CLUSTER_ACL_INFO, Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    Code.GET_TOPIC_STATS_INFO, Code.GET_CONSUMER_CONNECTION_LIST, Code.GET_PRODUCER_CONNECTION_LIST,
    Code.GET_CONSUME_STATS, Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
    Code.QUERY_TOPIC_CONSUME_BY_WHO, Code.QUERY_CONSUME_TIME_SPAN,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, Code.GET_CONSUMER_RUNNING_INFO,
    Code.QUERY_CORRECTION_OFFSET, Code.VIEW_BROKER_STATS_DATA, Code.GET_BROKER_CONSUME_STATS,
    Code.GET_ALL_PRODUCER_INFO, Code.QUERY_TOPICS_BY_CONSUMER, Code.QUERY_SUBSCRIPTION_BY_CONSUMER,
    Code.GET_TOPIC_CONFIG, Code.GET_SUBSCRIPTIONGROUP_CONFIG, Code.HEAR_OF_TABLES,
    Code.GET_TIMER_METRICS, Code.GET_STANDING,
    Code.GRPC_CALL, Code.GRPC_SETTINGS,          # of the gRPC front, refused to every other peer
}


def test_each_request_needs_an_administrator_or_a_permission_or_is_a_question() -> None:
    decided = {*needs.ADMIN_CODES, *needs.SET_CODES, *needs._STOCK, *needs._FIELDS, *needs._BODIES}

    assert set(HANDLERS) - decided == QUESTIONS


PUB, SUB = 4, 8
BOTH = [("T", SUB), ("%RETRY%G", SUB)]
CONSUMER = {"groupName": "G", "subscriptionDataSet": [{"topic": "T"}, {"topic": "U"}]}
LOCKS = {"consumerGroup": "G", "clientId": "c", "mqSet": [
    {"topic": topic, "brokerName": "b", "queueId": 0} for topic in "TU"]}


@pytest.mark.parametrize(("code", "fields", "permissions"), [
    (Code.SEND_MESSAGE, {"topic": "T", "group": "P"}, [("T", PUB)]),
    (Code.SEND_MESSAGE_V2, {"b": "T", "a": "P"}, [("T", PUB)]),
    (Code.SEND_BATCH_MESSAGE, {"b": "T", "a": "P"}, [("T", PUB)]),
    (Code.SEND_REPLY_MESSAGE_V2, {"b": "T", "a": "P"}, [("T", PUB)]),
    (Code.SEND_MESSAGE, {"topic": "T", "b": "U", "group": "P"}, [("T", PUB), ("U", PUB)]),
    (Code.SEND_MESSAGE, {"topic": "%RETRY%G", "group": "P"},
     [("%RETRY%G", SUB), ("%RETRY%P", SUB)]),
    (Code.SEND_MESSAGE_V2, {"b": "%RETRY%G", "a": "P"}, [("%RETRY%G", SUB), ("%RETRY%P", SUB)]),
    (Code.SEND_MESSAGE_V2, {"b": "RMQ_SYS_TRACE_TOPIC", "a": "P"}, []),
    (Code.PULL_MESSAGE, {"topic": "T", "consumerGroup": "G"}, BOTH),
    (Code.LITE_PULL_MESSAGE, {"topic": "T", "consumerGroup": "G"}, BOTH),
    (Code.QUERY_CONSUMER_OFFSET, {"topic": "T", "consumerGroup": "G"}, BOTH),
    (Code.UPDATE_CONSUMER_OFFSET, {"topic": "T", "consumerGroup": "G"}, BOTH),
    (Code.CONSUMER_SEND_MSG_BACK, {"group": "G"}, [("%RETRY%G", SUB)]),
    (Code.UNREGISTER_CLIENT, {"consumerGroup": "G"}, [("%RETRY%G", SUB)]),
    (Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "G"}, [("%RETRY%G", SUB)]),
    (Code.QUERY_MESSAGE, {"topic": "T"}, [("T", SUB)]),
    (Code.QUERY_CONSUME_QUEUE, {"topic": "T"}, [("T", SUB)]),
])
def test_the_fields_of_a_request_say_what_it_touches(
    code: Code, fields: dict[str, str | None], permissions: list[tuple[str, int]],
) -> None:
    assert wanted(code, fields) == needs.Wanted(admin=False, permissions=permissions)


@pytest.mark.parametrize(("code", "body", "permissions"), [
    (Code.HEART_BEAT, {"clientID": "c", "consumerDataSet": [CONSUMER, {"groupName": "H"}]},
     [("%RETRY%G", SUB), ("T", SUB), ("U", SUB), ("%RETRY%H", SUB)]),
    (Code.LOCK_BATCH_MQ, LOCKS, [("%RETRY%G", SUB), ("T", SUB), ("U", SUB)]),
    (Code.UNLOCK_BATCH_MQ, LOCKS, [("%RETRY%G", SUB), ("T", SUB), ("U", SUB)]),
])
def test_the_body_of_a_request_says_what_it_touches(
    code: Code, body: dict[str, object], permissions: list[tuple[str, int]],
) -> None:
    assert wanted(code, {}, body) == needs.Wanted(admin=False, permissions=permissions)


def wanted(code: Code, fields: dict[str, str | None], body: object = None) -> needs.Wanted:
    turns = needs.wanted(request(code, fields, json.dumps(body).encode()), stock=False)
    while True:
        try:
            next(turns)
        except StopIteration as end:
            return end.value
