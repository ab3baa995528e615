"""Questions of a member to brokers about its group (client.md 4.2, 4.4)."""
from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from mqcore.client.errors import BrokerError, ClientError, RocketMQError
from mqcore.client.network.pool import client_request
from mqcore.client.roles.instance import ClientInstance
from mqcore.wire import fastjson
from mqcore.wire.codes import RETRY_PREFIX, RequestCode, ResponseCode
from mqcore.wire.command import Command
from mqcore.wire.tags import EXPRESSION_TAG, Subscription

MEMBERS_NAMED_MAX = 5

log: Final = logging.getLogger("mqcore.client")


class Sharing:
    """Asks for members, for what they subscribe to, and whether a filter can be."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group

    async def members(self, topic: str) -> list[str]:
        """The client ids of the group, as a topic's broker knows them; raises RocketMQError."""
        address = self._instance.routes.some_broker(topic)
        answer = await self._instance.call(address, client_request(
            RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": self._group}))
        members = _document(answer, address).get("consumerIdList")
        if not isinstance(members, list):
            raise ClientError(f"{address} answered no list of consumers", broker=address)
        return [str(member) for member in members]

    async def check_filter(self, subscription: Subscription) -> None:
        """Ask a broker whether an SQL92 filter can be; raises BrokerError when it cannot."""
        if subscription.expression_type == EXPRESSION_TAG:
            return
        body = fastjson.dumps({
            "clientId": self._instance.client_id, "group": self._group,
            "namespace": self._instance.config.namespace,
            "subscriptionData": subscription.as_json(),
        })
        try:
            address = self._instance.routes.some_broker(subscription.topic)
        except RocketMQError as error:
            log.warning("the filter of %s is not checked: %s", subscription.topic, error)
            return
        await self._instance.call(
            address, client_request(RequestCode.CHECK_CLIENT_CONFIG, body=body))

    async def warn_of_others(self, own: Mapping[str, Subscription]) -> None:
        """Name the members that are there with other subscriptions: the broker keeps one set for
        all, so messages would be missed (client.md 4.3)."""
        for topic in own:
            try:
                address = self._instance.routes.some_broker(topic)
                answer = await self._instance.call(address, client_request(
                    RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": self._group}))
                found = _document(answer, address)
            except BrokerError as error:
                if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                    log.debug("members of %s are unknown: %s", self._group, error)
                continue
            except RocketMQError as error:
                log.debug("members of %s are unknown: %s", self._group, error)
                continue
            self._compare(own, found)
            return

    def _compare(self, own: Mapping[str, Subscription], found: dict[str, Any]) -> None:
        table = found.get("subscriptionTable")
        connections = found.get("connectionSet")
        if not isinstance(table, dict) or not isinstance(connections, list):
            return
        theirs = {str(topic): str(one.get("subString")) for topic, one in table.items()
                  if isinstance(one, dict) and not str(topic).startswith(RETRY_PREFIX)}
        ours = {topic: one.expression for topic, one in own.items()}
        members = [str(one.get("clientId")) for one in connections if isinstance(one, dict)
                   and one.get("clientId") != self._instance.client_id]
        if theirs == ours or not members:
            return
        log.warning(
            "group %s is in use with other subscriptions, %s here %s: members would take each"
            " other's messages away. Those are %s", self._group, theirs, ours,
            ", ".join(sorted(members)[:MEMBERS_NAMED_MAX])
            + (f" and {len(members) - MEMBERS_NAMED_MAX} more"
               if len(members) > MEMBERS_NAMED_MAX else ""))


def _document(answer: Command, address: str) -> dict[str, Any]:
    try:
        document = fastjson.loads(answer.body) if answer.body else {}
    except ValueError as error:
        raise ClientError(f"{address} answered no JSON: {error}", broker=address) from error
    return document if isinstance(document, dict) else {}
