"""Of each request it was decided what an account needs for it; none is open by oversight."""
from __future__ import annotations

from mqcore.acl import needs
from mqcore.broker.requests.table import HANDLERS
from mqcore.wire.codes import RequestCode as Code

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
}


def test_each_request_needs_an_administrator_or_a_permission_or_is_a_question() -> None:
    decided = {*needs.ADMIN_CODES, *needs.SET_CODES, *needs._STOCK, *needs._FIELDS, *needs._BODIES}

    assert set(HANDLERS) - decided == QUESTIONS
