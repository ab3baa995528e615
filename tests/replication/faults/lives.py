"""
Topics that are deleted and made again while brokers fail: each message that was acknowledged in a
topic's present life has its place in it, at every broker of the set.
"""
from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from mqcore.wire.records import decode_records
from tests.replication.faults.brokers import Broker
from tests.replication.faults.history import OK
from tests.replication.faults.torment import Torment
from tests.support.waiting import wait_until
from tests.wire_live.peer import Closed, Peer, pull_fields, send_fields, topic_fields

MESSAGES_MAX = 30                    # of one life
PAUSE_S = 0.05


@dataclass
class Life:
    """A topic since its queues were removed last; acknowledged: bodies by offset in queue 0."""

    topic: str
    number: int = 0
    acknowledged: dict[int, bytes] = field(default_factory=dict)


class Lives:
    """A client that deletes topics; leader: the broker that leads, None: none does."""

    def __init__(self, torment: Torment, leader: Callable[[], Broker | None]) -> None:
        self._torment, self._leader = torment, leader
        self._topics = itertools.count(1)
        self._present = Life("Life0")
        self._all = [self._present]
        self.deleted = 0

    async def run(self) -> None:
        """Lives until the end of the run; the last one stays."""
        while self._torment.lacks_faults or not self._present.acknowledged:
            await asyncio.to_thread(self._live, self._torment.lacks_faults)
            await asyncio.sleep(PAUSE_S)

    def _live(self, ends: bool) -> None:
        """Make the topic, send, and delete it, or leave it to the end of the run."""
        life, dice, leader = self._present, self._torment.dice, self._leader()
        if leader is None:
            return
        try:
            with Peer(leader.address) as peer:
                if peer.ask(17, topic_fields(life.topic, 1)).code != OK:
                    return
                for key in range(dice.randrange(1, MESSAGES_MAX)):
                    body = b"%s life %d message %d" % (life.topic.encode(), life.number, key)
                    answer = peer.ask(310, send_fields(life.topic, queue_id=0), body)
                    if answer.code == OK:
                        life.acknowledged[int((answer.ext or {})["queueOffset"] or -1)] = body
                if ends and dice.random() < 0.2:
                    self._begin(Life(f"Life{next(self._topics)}"))
                elif ends:
                    self._delete(peer, life)
        except (Closed, OSError, TimeoutError):
            return

    def _begin(self, life: Life) -> None:
        self._present = life
        self._all.append(life)

    def _delete(self, peer: Peer, life: Life) -> None:
        """
        A 0 says that all of the set have the marker of the removal. Without it nothing is known of
        the topic, and another one is used.
        """
        self._all.remove(life)
        self._begin(Life(f"Life{next(self._topics)}"))
        if peer.ask(215, {"topic": life.topic}).code == OK:
            self.deleted += 1
            self._torment.history.note(f"{life.topic}: life {life.number} is over")
            self._all.remove(self._present)
            self._begin(Life(life.topic, life.number + 1))

    def check(self, address: str) -> int:
        """How many messages a broker was asked for; AssertionError unless it has all."""
        for life in self._all:
            wait_until(lambda life=life: not missing(address, life),
                       f"{address} has {life.topic}, life {life.number}", 30.0)
        return sum(len(life.acknowledged) for life in self._all)


def missing(address: str, life: Life) -> dict[int, bytes]:
    """Acknowledged messages of this life that are not at their offsets."""
    found: dict[int, bytes] = {}
    end = max(life.acknowledged, default=-1) + 1
    with Peer(address) as peer:
        while len(found) < end:
            answer = peer.ask(11, pull_fields(life.topic, offset=len(found)))
            if answer.code != OK:
                break
            found.update((one.queue_offset, one.body) for one in decode_records(answer.body))
    return {offset: body for offset, body in life.acknowledged.items()
            if found.get(offset) != body}
