"""
This broker's registration at name servers (REGISTER_BROKER, 103).

broker.md 1.5, remoting.md 4.7.1 (RocketMQ 4.9.8: BrokerController, BrokerOuterAPI,
RegisterBrokerBody). The body is always sent uncompressed: the compressed form loses flags.
"""
from __future__ import annotations

import zlib
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mqcore.wire import fastjson
from mqcore.wire.topics import DataVersion, TopicConfig

if TYPE_CHECKING:
    from mqcore.broker.settings.model import Settings


@dataclass(slots=True, frozen=True)
class BrokerRegistration:
    """Header fields and body of one REGISTER_BROKER request; the same for every name server."""

    ext: dict[str, str | None]
    body: bytes


def build(
    settings: Settings, version: DataVersion, topics: Iterable[TopicConfig]
) -> Generator[None, None, BrokerRegistration]:
    """
    A registration of `topics` under the whole table's data version; made with pauses.

    A broker that lacks read or write shows every topic with its own permission instead
    (broker.md 1.5).
    """
    broker = settings.broker
    if broker.permission != 6:
        topics = [
            TopicConfig(
                topic.name, topic.read_queue_count, topic.write_queue_count, broker.permission
            )
            for topic in topics
        ]
    body = yield from fastjson.dumps_in_turns({
        "filterServerList": [], "topicConfigSerializeWrapper": {
            "dataVersion": version.as_json(),
            "topicConfigTable": {topic.name: topic for topic in topics}}})
    ext: dict[str, str | None] = {
        **identity(settings),
        "haServerAddr": settings.ha_addr,
        "compressed": "false",
        "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF),
    }
    return BrokerRegistration(ext, body)


def identity(settings: Settings) -> dict[str, str | None]:
    """The fields that name this broker: of 103, of UNREGISTER_BROKER (104), of 322."""
    return {
        "brokerName": settings.broker.name,
        "brokerAddr": settings.advertised_addr,
        "clusterName": settings.broker.cluster,
        "brokerId": str(settings.broker_id),
    }
