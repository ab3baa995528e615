"""What RocketMQ's own properties of a message mean, for readers of one."""
from __future__ import annotations

MEANINGS = {
    "KEYS": "what its sender gave to find it by",
    "TAGS": "what its sender gave to filter by",
    "UNIQ_KEY": "the id that its producer gave it",
    "WAIT": "whether its producer waited until it was stored",
    "DELAY": "the level of its delay",
    "TIMER_DELIVER_MS": "when it is to be delivered",
    "RETRY_TOPIC": "the topic that it was sent to, before a consumer failed",
    "REAL_TOPIC": "the topic that it goes to",
    "REAL_QID": "the queue that it goes to",
    "ORIGIN_MESSAGE_ID": "the broker's id of the message that this one repeats",
    "RECONSUME_TIME": "how often consumers have tried it",
    "MAX_RECONSUME_TIMES": "after so many tries it becomes a dead letter",
    "CONSUME_START_TIME": "when a consumer began with it",
    "TRAN_MSG": "it was sent in a transaction",
    "TRANSACTION_CHECK_TIMES": "how often its producer was asked about the transaction",
    "PGROUP": "the group of its producer",
    "CLUSTER": "the cluster that took it",
    "MSG_REGION": "the region of the broker that took it",
    "TRACE_ON": "whether its broker lets it be traced",
    "CORRELATION_ID": "which reply belongs to which request",
    "REPLY_TO_CLIENT": "the client that waits for the reply",
    "TTL": "how long its sender waits for a reply, in ms",
    "MSG_TYPE": "what kind of message it is",
    "REDRIVE_FROM": "the dead letter that this is a copy of",
}
