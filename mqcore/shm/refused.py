"""Why a broker refuses sends now, for people and tools."""
from __future__ import annotations

from enum import IntEnum

from mqcore.layout import Refusal

UNREADABLE, QUEUES_FAILED = "dispatcher behind", "queues failed"
ELSEWHERE = "store moved"


def word(member: IntEnum) -> str:
    """A member of a native enum as people read it: REFUSAL_DISK_FULL is `disk full`."""
    return member.name.partition("_")[2].replace("_", " ").lower()


NONE = word(Refusal.REFUSAL_NONE)
REASONS = (*(word(one) for one in Refusal if one != Refusal.REFUSAL_NONE),
           UNREADABLE, QUEUES_FAILED, ELSEWHERE)


def refusal(log: dict[str, int]) -> str:
    """One of REASONS, or NONE; log: Segment.log_state."""
    if log["elsewhere"]:
        return ELSEWHERE
    if log["unreadable"]:
        return UNREADABLE
    if log["refusal"] == Refusal.REFUSAL_NONE and log["queue_error"]:
        return QUEUES_FAILED
    return word(Refusal(log["refusal"]))
