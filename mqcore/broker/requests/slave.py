"""
What a slave refuses: whatever would store a message, or change a table that is its master's.

ha.md 5, broker.md 9.6 (RocketMQ 4.9.8: DefaultMessageStore, EndTransactionProcessor,
AdminBrokerProcessor). All other requests are answered as by a master. Serving processes refuse
sends and ends of transactions that they can read by themselves, in the same words.
"""
from __future__ import annotations

from mqcore.broker.core import Core
from mqcore.broker.request import REMARK_LEFT_OVER, Answer
from mqcore.broker.requests.send_rules import answer_fields
from mqcore.wire.codes import RequestCode, ResponseCode

NOT_AVAILABLE = "service not available now: this broker is a slave, its master takes messages"
TABLE_OF_MASTER = ("Can't modify topic or subscription group from slave broker, "
                   "please execute it from master broker.")
_SENDS = frozenset((
    RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE))
_REFUSALS: dict[int, tuple[ResponseCode, str]] = {
    **dict.fromkeys(_SENDS, (ResponseCode.SERVICE_NOT_AVAILABLE, NOT_AVAILABLE)),
    RequestCode.END_TRANSACTION: (ResponseCode.SLAVE_NOT_AVAILABLE, REMARK_LEFT_OVER),
    **dict.fromkeys((
        RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, RequestCode.DELETE_SUBSCRIPTIONGROUP,
    ), (ResponseCode.SYSTEM_ERROR, TABLE_OF_MASTER)),
    **dict.fromkeys((
        RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.RESUME_CHECK_HALF_MESSAGE,
        RequestCode.RECALL_MESSAGE,
    ), (ResponseCode.SYSTEM_ERROR, ResponseCode.SERVICE_NOT_AVAILABLE.name)),
}


def refusal(core: Core, code: int) -> Answer | None:
    """What a slave answers to requests of this code; None: the same as a master."""
    found = _REFUSALS.get(code)
    if found is None:
        return None
    return Answer(*found, answer_fields(core) if code in _SENDS else None)
