"""When a held queue is pulled, and what an answer means for it (client.md 4.8, 4.9)."""
from __future__ import annotations

from enum import Enum
from typing import Any

from mqcore.client.core.process_queue import ProcessQueue
from mqcore.client.core.rebalance import Limits
from mqcore.client.message import PullStatus
from mqcore.wire.codes import ResponseCode

FULL_LOOK_S = 0.05              # a full queue is looked at again after this at the latest
FAILED_S = 1.0
FLOW_CONTROL_S = 0.02
FORGOTTEN_CODES = frozenset({   # the broker does not know the member (any more): say it again
    ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
})


class Full(Enum):
    """Why a queue is not pulled for now."""

    COUNT = "messages"
    BYTES = "bytes"
    SPAN = "span of offsets"


def full(queue: ProcessQueue[Any], limits: Limits, *, orderly: bool) -> Full | None:
    """The limit that is reached; None: pull. The span matters only where order does not."""
    if queue.message_count > limits.count_max:
        return Full.COUNT
    if queue.byte_count > limits.bytes_max:
        return Full.BYTES
    if not orderly and queue.span > limits.span_max:
        return Full.SPAN
    return None


class NextStep(Enum):
    """The step after an answer."""

    PULL = "pull again at once"
    RESTART = "give the queue up and begin at the corrected offset"


def step(status: PullStatus) -> NextStep:
    return NextStep.RESTART if status is PullStatus.OFFSET_ILLEGAL else NextStep.PULL


def pause(code: int | None) -> float:
    """Seconds until the next pull after an error with this response code (None: transport)."""
    return FLOW_CONTROL_S if code == ResponseCode.FLOW_CONTROL else FAILED_S
