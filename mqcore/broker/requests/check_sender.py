"""
The coordinator's part of transaction checks: whom to ask, and offsets to keep.

broker.md 5.4, 5.6 (RocketMQ 4.9.8: AbstractTransactionalMessageCheckListener, Broker2Client,
TransactionalMessageBridge). The frames come ready made; any instance of the producer group may be
asked, and each in its turn.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain, islice

from mqcore.broker.core import Core
from mqcore.broker.tables.clients import Client
from mqcore.wire.codes import GIVEN_UP_TOPIC, HALF_TOPIC, LENGTH_WORD_SIZE, OP_TOPIC
from mqcore.wire.command import decode
from mqcore.wire.properties import REAL_TOPIC
from mqcore.wire.records import decode_record

GROUP = "CID_RMQ_SYS_TRANS"
QUEUE_COUNT = 1
TURNS_MAX = 65_536                      # groups whose turn is remembered
TRIES_MAX = 3                           # members looked at for one that reads


def figures(said: Mapping[str, int] | None, now_ms: int) -> dict[str, int]:
    """
    Figures of the transaction-check process (mqcore/shm/check_ring.pyx), for people: the
    keys of TRANSACTION_KEYS; empty before its first word.

    pending: half messages without an end; oldest_s: how long ago the oldest was
    sent; since the start of the broker checks (questions), given_up and rounds.
    """
    if said is None:
        return {}
    born_ms = said["oldest_born_ms"]
    age_s = max(0, now_ms - born_ms) // 1000 if born_ms and said["pending"] else 0
    return {"pending": said["pending"], "oldest_s": age_s, "checks": said["checks"],
            "given_up": said["given_up"], "rounds": said["rounds"]}


class CheckSender:
    """Round robin over the producers of each group."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._turns: dict[str, int] = {}
        self._unread: set[int] = set()          # open connections

    def ask(self, group: str, frame: bytes) -> bool:
        """
        Send a check to one producer of `group`; False: none is there: the next round asks.

        One that reads what it is sent, if there is one among the next TRIES_MAX; else the last of
        these, where it is dropped when too much is unread (broker.md 5.6; answers N6 of
        mqcore/net/serving/answers.pxd).
        """
        members = self._core.clients.producers.get(group)
        if members and self._core.access.on:
            members = self._allowed(members, frame)
        if not members:
            return False
        if len(self._turns) >= TURNS_MAX:
            self._turns.clear()
        turn = self._turns.get(group, 0) % len(members)
        in_turn = chain(islice(members, turn, None), members)
        for connection in islice(in_turn, min(TRIES_MAX, len(members))):
            turn += 1
            if connection not in self._unread:
                break
        self._turns[group] = turn
        self._core.ports.connections.offer(connection, frame)
        return True

    def _allowed(self, members: Mapping[int, Client], frame: bytes) -> dict[int, Client]:
        """Those who may publish to the topic: any client can say that it is of the group."""
        record = decode_record(decode(frame[LENGTH_WORD_SIZE:]).body)
        topic = record.properties.get(REAL_TOPIC, record.topic)
        access = self._core.access
        return {connection: client for connection, client in members.items()
                if access.may_be_asked(client.account, topic)}

    def reading(self, connection: int, *, reads: bool) -> None:
        """Whether a connection reads what it is sent; one that is gone counts as reading."""
        if reads:
            self._unread.discard(connection)
        else:
            self._unread.add(connection)

    def forget(self, gone: Callable[[int], bool]) -> None:
        """These connections ended with their serving process."""
        self._unread = {one for one in self._unread if not gone(one)}

    def progress(self, half_offset: int, op_offset: int, now_ms: int) -> None:
        """
        Both queues are settled below these offsets: kept in consumerOffset.json, as in stock. The
        half topic is there from the process's first word on; the op topic never is (broker.md 9.2);
        that of the given up is when it has messages, also those of before a kill.
        """
        self.need_topic(HALF_TOPIC, now_ms)
        if self._core.ports.queues.end(GIVEN_UP_TOPIC, 0):
            self.need_topic(GIVEN_UP_TOPIC, now_ms)
        self._core.offsets.commit(GROUP, HALF_TOPIC, 0, half_offset)
        self._core.offsets.commit(GROUP, OP_TOPIC, 0, op_offset)

    def need_topic(self, name: str, now_ms: int) -> None:
        """A topic of the broker's own, made on demand (broker.md 9.2)."""
        self._core.topics.create_on_demand(name, QUEUE_COUNT, now_ms)
