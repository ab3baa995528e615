"""The ways of messages that were not consumed (client.md 4.11 to 4.13)."""
from __future__ import annotations

from collections.abc import Mapping

from mqcore.wire.properties import (
    DELAY,
    MAX_RECONSUME_TIMES,
    ORIGIN_MESSAGE_ID,
    RECONSUME_TIME,
    RETRY_TOPIC,
    TRANSACTION_PREPARED,
)

RETRIES_MAX = 16                # of a group that says nothing else
UNLIMITED = -1
FIRST_DELAY_LEVEL = 3
EXPIRED_DELAY_LEVEL = 3         # of a message whose listener took too long
DEAD_LETTER = -1                # as a delay level: no more tries
RESUBMIT_S = 5.0                # what no broker took comes again here
WARN_AT = 0.8                   # of the time that a listener may take
SUSPEND_S_MIN, SUSPEND_S_MAX = 0.01, 30.0


def fallback_properties(
    properties: Mapping[str, str], *, topic: str, message_id: str, reconsume_times: int,
    retries_max: int,
) -> dict[str, str]:
    """Properties of the copy for the group's retry topic, when no broker sends it back."""
    copy = {name: value for name, value in properties.items() if name != TRANSACTION_PREPARED}
    copy.setdefault(ORIGIN_MESSAGE_ID, message_id)
    copy[RETRY_TOPIC] = topic
    copy[RECONSUME_TIME] = str(reconsume_times + 1)
    copy[MAX_RECONSUME_TIMES] = str(retries_max)
    copy[DELAY] = str(FIRST_DELAY_LEVEL + reconsume_times)
    return copy


def dead_letter_properties(
    properties: Mapping[str, str], *, topic: str, message_id: str, reconsume_times: int,
    retries_max: int,
) -> dict[str, str]:
    """Properties with which the broker puts the copy of an orderly message to the dead letters."""
    copy = fallback_properties(
        properties, topic=topic, message_id=message_id, reconsume_times=reconsume_times,
        retries_max=retries_max)
    copy[RECONSUME_TIME] = str(max(reconsume_times, retries_max))
    return copy


def comes_again(reconsume_times: int, retries_max: int) -> bool:
    """Whether an orderly message is tried again here; else it goes to the dead letters."""
    return retries_max == UNLIMITED or reconsume_times < retries_max


def suspension(seconds: float) -> float:
    """How long an orderly queue stands still after a refusal: within Java's bounds."""
    return min(max(seconds, SUSPEND_S_MIN), SUSPEND_S_MAX)


def is_overdue(started: float, now: float, timeout: float) -> bool:
    return now - started > timeout


def is_late(started: float, now: float, timeout: float) -> bool:
    """Whether it is time for a warning."""
    return now - started > timeout * WARN_AT
