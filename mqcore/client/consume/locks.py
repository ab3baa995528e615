"""Broker locks of an orderly member's queues (client.md 4.13)."""
from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from mqcore.client.errors import ClientError, RocketMQError
from mqcore.client.message import MessageQueue
from mqcore.client.network.pool import client_request
from mqcore.client.roles.instance import ClientInstance
from mqcore.wire import fastjson
from mqcore.wire.codes import RequestCode

LOCK_TIMEOUT_S = 1.0
RENEW_S = 20.0
LOCK_LIFE_S = 30.0              # a lock that was not renewed for so long does not count here
BROKER_LOCK_LIFE_S = 60.0       # ... and for so long may be another member's

log: Final = logging.getLogger("mqcore.client")


class QueueLocks:
    """Asks the masters for locks on queues, for one member."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group
        self._asked: set[MessageQueue] = set()      # may be ours, also when no answer came

    async def lock(
        self, queues: Iterable[MessageQueue]
    ) -> tuple[set[MessageQueue], set[MessageQueue]]:
        """Take or renew locks: the queues that are this member's now, and those that are not.

        Queues whose broker did not answer are in neither.
        """
        mine: set[MessageQueue] = set()
        others: set[MessageQueue] = set()
        for broker_name, wanted in _by_broker(queues).items():
            self._asked.update(wanted)
            try:
                answer = await self._instance.call(
                    self._instance.routes.master(broker_name),
                    client_request(RequestCode.LOCK_BATCH_MQ, body=self._body(wanted)),
                    timeout=LOCK_TIMEOUT_S,
                )
                locked = _queues(answer.body)
            except RocketMQError as error:
                self._instance.warn(
                    error, "locking queues of %s failed: %s", broker_name, error)
                continue
            mine |= locked & set(wanted)
            others |= set(wanted) - locked
        self._asked -= others
        return mine, others

    async def unlock_all(self) -> None:
        """Give back whatever may be locked: a cancelled `lock` too."""
        await self.unlock(set(self._asked))

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Give locks back; a failure is logged, the locks end by themselves."""
        for broker_name, given in _by_broker(queues).items():
            self._asked.difference_update(given)
            try:
                await self._instance.pool.send_oneway(
                    self._instance.routes.master(broker_name),
                    client_request(RequestCode.UNLOCK_BATCH_MQ, body=self._body(given)),
                    timeout=LOCK_TIMEOUT_S,
                )
            except RocketMQError as error:
                self._instance.warn(
                    error, "unlocking queues of %s failed: %s", broker_name, error)

    def _body(self, queues: list[MessageQueue]) -> bytes:
        return fastjson.dumps({
            "clientId": self._instance.client_id, "consumerGroup": self._group,
            "mqSet": [{"topic": q.topic, "brokerName": q.broker_name, "queueId": q.queue_id}
                      for q in queues],
        })


def _by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    found: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        found.setdefault(queue.broker_name, []).append(queue)
    return found


def _queues(body: bytes) -> set[MessageQueue]:
    try:
        return {MessageQueue(str(one["topic"]), str(one["brokerName"]), int(one["queueId"]))
                for one in fastjson.loads(body)["lockOKMQSet"]}
    except (ValueError, KeyError, TypeError) as error:
        raise ClientError("the broker answered no list of locked queues") from error
