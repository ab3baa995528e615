"""
Who is connected, as tools ask for it: the members of consumer and producer groups.

broker.md 10.2, remoting.md 4.4, 5.4 (RocketMQ 4.9.8: AdminBrokerProcessor, ConsumerConnection,
ProducerConnection, ProducerTableInfo).
"""
from __future__ import annotations

from typing import Any

from mqcore.broker.clients import Client
from mqcore.broker.core import Core
from mqcore.broker.requests import Answer, Fields, Request, refused
from mqcore.wire import fastjson
from mqcore.wire.codes import LanguageCode, ResponseCode


def consumer_connections(core: Core, request: Request) -> Answer:
    """GET_CONSUMER_CONNECTION_LIST (203): 206 for a group that nobody is a member of."""
    name = Fields.of(request.command).text("consumerGroup")
    group = core.clients.consumers.get(name)
    if group is None:
        return refused(
            ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online"
        )
    return Answer(ResponseCode.SUCCESS, body=fastjson.dumps({
        "connectionSet": [_connection(client) for client in group.members.values()],
        "consumeFromWhere": group.from_where,
        "consumeType": group.consume_type,
        "messageModel": group.message_model,
        "subscriptionTable": {
            topic: subscription.as_json() for topic, subscription in group.subscriptions.items()
        },
    }))


def producer_connections(core: Core, request: Request) -> Answer:
    """GET_PRODUCER_CONNECTION_LIST (204): 1 for a group that nobody was a member of."""
    name = Fields.of(request.command).text("producerGroup")
    members = core.clients.producers.get(name)
    if members is None:
        return refused(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
    return Answer(ResponseCode.SUCCESS, body=fastjson.dumps({
        "connectionSet": [_connection(client) for client in members.values()],
    }))


def all_producers(core: Core, request: Request) -> Answer:
    """GET_ALL_PRODUCER_INFO (328): every producer group with its members."""
    return Answer(ResponseCode.SUCCESS, body=fastjson.dumps({"data": {
        group: [
            {
                "clientId": client.client_id, "language": _language(client.language),
                "lastUpdateTimestamp": client.heartbeat_ms, "remoteIP": "/" + client.remote,
                "version": client.version,
            }
            for client in members.values()
        ]
        for group, members in core.clients.producers.items()
    }}))


def _connection(client: Client) -> dict[str, Any]:
    return {
        "clientAddr": client.remote, "clientId": client.client_id,
        "language": _language(client.language), "version": client.version,
    }


def _language(value: int | None) -> str | None:
    """The name of a language code; None, which is left out, for one that 4.9.8 does not know."""
    return LanguageCode(value).name if value in set(LanguageCode) else None
