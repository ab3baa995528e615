"""Requests that look something up and change nothing: who left does not need the answer."""
from __future__ import annotations

from mqcore.wire.codes import RequestCode

LOOKS = frozenset((
    RequestCode.GET_BROKER_RUNTIME_INFO, RequestCode.GET_BROKER_CONFIG,
    RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.GET_ALL_DELAY_OFFSET,
    RequestCode.GET_TIMER_METRICS,
    RequestCode.GET_TOPIC_STATS_INFO, RequestCode.GET_CONSUME_STATS,
    RequestCode.GET_BROKER_CONSUME_STATS, RequestCode.VIEW_BROKER_STATS_DATA,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP, RequestCode.GET_CONSUMER_CONNECTION_LIST,
    RequestCode.GET_PRODUCER_CONNECTION_LIST, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
    RequestCode.QUERY_CONSUME_TIME_SPAN, RequestCode.QUERY_CONSUME_QUEUE,
    RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, RequestCode.GET_MAX_OFFSET,
    RequestCode.GET_MIN_OFFSET, RequestCode.GET_EARLIEST_MSG_STORETIME,
    RequestCode.HEAR_OF_TABLES, RequestCode.GET_STANDING))
