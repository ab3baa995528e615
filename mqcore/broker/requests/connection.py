"""
Connected clients for tools: the members of consumer and producer groups.

broker.md 10.2, remoting.md 4.4, 5.4 (RocketMQ 4.9.8: AdminBrokerProcessor, ConsumerConnection,
ProducerConnection, ProducerTableInfo).
"""
from __future__ import annotations

from typing import Any

from mqcore.broker.core import Core
from mqcore.broker.request import Answer, Fields, OutcomeJob, Request, answers, json_answer, refused
from mqcore.broker.tables.clients import Client
from mqcore.wire.codes import LanguageCode, RequestCode, ResponseCode


@answers(RequestCode.GET_CONSUMER_CONNECTION_LIST)
def consumer_connections(core: Core, request: Request) -> Answer | OutcomeJob:
    """GET_CONSUMER_CONNECTION_LIST (203): 206 for a group without members."""
    name = Fields.of(request.command).text("consumerGroup")
    group = core.clients.consumers.get(name)
    if group is None:
        return refused(
            ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online"
        )
    return json_answer({
        "connectionSet": [_Connection(client) for client in group.members.values()],
        "consumeFromWhere": group.from_where,
        "consumeType": group.consume_type,
        "messageModel": group.message_model,
        "subscriptionTable": dict(group.subscriptions),
    })


@answers(RequestCode.GET_PRODUCER_CONNECTION_LIST)
def producer_connections(core: Core, request: Request) -> Answer | OutcomeJob:
    """GET_PRODUCER_CONNECTION_LIST (204): 1 for a group that never had a member."""
    name = Fields.of(request.command).text("producerGroup")
    members = core.clients.producers.get(name)
    if members is None:
        return refused(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
    return json_answer({"connectionSet": [_Connection(client) for client in members.values()]})


@answers(RequestCode.GET_ALL_PRODUCER_INFO)
def all_producers(core: Core, request: Request) -> OutcomeJob:
    """GET_ALL_PRODUCER_INFO (328): every producer group with its members."""
    data = {group: _Producers(members) for group, members in core.clients.producers.items()}
    return json_answer({"data": data})


class _Connection:
    """A member; its form is made when it is written."""

    __slots__ = ("_client",)

    def __init__(self, client: Client) -> None:
        self._client = client

    def as_json(self) -> dict[str, Any]:
        client = self._client
        return {
            "clientAddr": client.remote, "clientId": client.client_id,
            "language": _language(client.language), "version": client.version,
        }


class _Producer(_Connection):
    """The same in a list of all groups."""

    __slots__ = ()

    def as_json(self) -> dict[str, Any]:
        client = self._client
        return {
            "clientId": client.client_id, "language": _language(client.language),
            "lastUpdateTimestamp": client.heartbeat_ms, "remoteIP": "/" + client.remote,
            "version": client.version,
        }


class _Producers:
    """The members of a group at the time of writing."""

    __slots__ = ("_members",)

    def __init__(self, members: dict[int, Client]) -> None:
        self._members = members

    def as_json(self) -> list[_Producer]:
        return [_Producer(client) for client in self._members.values()]


def _language(value: int | None) -> str | None:
    """The name of a language code; None, which is left out, for one that 4.9.8 does not know."""
    return LanguageCode(value).name if value in set(LanguageCode) else None
