"""What tests of our Python consumers share: topics, sends, and listeners that note what came."""
from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Coroutine, Iterable
from typing import Any

from mqcore.client import AsyncProducer, Message, ReceivedMessage
from tests.interop.ask import ask
from tests.interop.conftest import Cluster

QUEUES = 4
_numbers = itertools.count(1)


def fresh(cluster: Cluster, what: str, queues: int = QUEUES) -> tuple[str, str]:
    """A new topic and a group that nobody used."""
    topic = f"py-{what}-{cluster.kind}-{next(_numbers)}"
    answer = ask(cluster.broker_addr, 17, {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(queues),
        "writeQueueNums": str(queues), "perm": "6", "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0", "order": "false"})
    assert answer.code == 0, answer.remark
    return topic, f"{topic}-readers"


async def send(
    cluster: Cluster, topic: str, keys: Iterable[str], *, queue: int | None = None,
    tags: str | None = None, properties: dict[str, str] | None = None, body: bytes = b"x",
) -> None:
    """Send a message for each key: in turn, or to one queue."""
    async with AsyncProducer("py-senders", namesrv=cluster.namesrv_addr) as producer:
        queues = await producer._instance.routes.queues_to_publish(topic)
        chosen = next((one for one in queues if one.queue_id == queue), None)
        for key in keys:
            await producer.send(
                Message(topic, body, keys=[key], tags=tags, properties=properties), queue=chosen)


class Notes:
    """What listeners were called with."""

    def __init__(self) -> None:
        self.messages: list[ReceivedMessage] = []

    @property
    def keys(self) -> list[str]:
        return [message.keys[0] for message in self.messages]

    async def listen(self, message: ReceivedMessage) -> None:
        self.messages.append(message)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Run one scenario with a deadline."""
    async def bounded() -> None:
        async with asyncio.timeout(100):
            await scenario

    asyncio.run(bounded())


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


def running_info(cluster: Cluster, group: str, client_id: str, jstack: bool = False) -> bytes:
    """What a broker relays of a member (code 307)."""
    answer = ask(cluster.broker_addr, 307, {
        "consumerGroup": group, "clientId": client_id, "jstackEnable": str(jstack).lower()})
    assert answer.code == 0, answer.remark
    return answer.body


def consume_directly(cluster: Cluster, group: str, client_id: str, message_id: str) -> dict:
    """What a broker relays of code 309."""
    answer = ask(cluster.broker_addr, 309, {
        "consumerGroup": group, "clientId": client_id, "msgId": message_id})
    assert answer.code == 0, answer.remark
    return dict(json.loads(answer.body))
