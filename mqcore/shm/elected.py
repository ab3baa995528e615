"""What the words of an election say, for people and tools."""
from __future__ import annotations

import time

from mqcore.layout import LEADERSHIP_FOLLOWS, LEADERSHIP_LEADS, LEADERSHIP_NONE
from mqcore.participants import HA_MASTER, HA_SLAVE, Participant
from mqcore.shm.leadership import LeadershipPen
from mqcore.shm.members import member_id
from mqcore.shm.segment import Segment

ROLES = {LEADERSHIP_NONE: "none", LEADERSHIP_FOLLOWS: "follows", LEADERSHIP_LEADS: "leads"}
NS_A_MS = 1_000_000


def election(segment: Segment) -> dict[str, str | int]:
    """
    Of a broker whose set elects who leads; nothing of others.

    epoch          of the last election that is known
    leader         member's id, 0: nobody is known to lead
    in_sync        ids of the set
    waited_for     of those that have to have what is acknowledged
    lease_left_ms  for so long it may acknowledge; 0: it may not
    etcd_silent_ms  since etcd answered; -1: it never did
    """
    pen = LeadershipPen(segment)
    if pen.requested[0] == LEADERSHIP_NONE or not _hears(segment):
        return {}
    now_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    leader = pen.leader() or (0, 0, "", "", 0, [])
    return {
        "role": ROLES[pen.role[0]], "epoch": leader[4], "leader": leader[1],
        "in_sync": _ids(leader[5]), "waited_for": _ids(sorted(map(member_id, pen.members))),
        "lease_left_ms": max(0, pen.deadline_ns - now_ns) // NS_A_MS,
        "etcd_silent_ms": (now_ns - pen.heard_ns) // NS_A_MS if pen.heard_ns else -1}


def _ids(members: list[int]) -> str:
    return ",".join(map(str, members)) or "-"


def role_of(segment: Segment) -> str:
    """
    Of a broker that has others of its name; empty: it is alone. middle: a slave that hands its log
    on. overtaken: a master that takes no messages, since another one has more. One that was elected
    began as a slave.
    """
    hears, sends, pen = _hears(segment), _runs(segment, HA_MASTER), LeadershipPen(segment)
    if hears and sends and not pen.leads:
        return "middle"
    if not hears and pen.role[0] == LEADERSHIP_FOLLOWS:
        return "overtaken"
    return "master" if sends else "slave" if hears else ""


def _hears(segment: Segment) -> bool:
    return _runs(segment, HA_SLAVE)


def _runs(segment: Segment, row: Participant) -> bool:
    """Whether the process has run since the start."""
    return bool(segment.slot(row.slot)["incarnation"] > 0)
