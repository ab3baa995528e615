"""Name servers: key and value tables, settings, write permission of brokers (client.md 6.2)."""
from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from mqcore.client.admin import arguments
from mqcore.client.admin.bodies import document, header_number, properties_text, settings_of
from mqcore.client.admin.link import SUCCESS, Link, Target, limited
from mqcore.wire.codes import RequestCode, ResponseCode


class NameServerCalls(Link):
    """AsyncAdmin's calls to name servers; changes go to each one."""

    @limited
    async def kv(self, namespace: str, key: str) -> str | None:
        """The value of `key` in a namespace of a name server's table (101); None: there is none."""
        answer = await self._ask_name_server(RequestCode.GET_KV_CONFIG, {
            "namespace": arguments.text(namespace, "namespace"), "key": arguments.text(key, "key"),
        }, accept=(*SUCCESS, ResponseCode.QUERY_NOT_FOUND))
        return (answer.ext or {}).get("value") if answer.code in SUCCESS else None

    @limited
    async def kv_of(self, namespace: str) -> Mapping[str, str]:
        """All keys and values of a namespace (219)."""
        answer = await self._ask_name_server(
            RequestCode.GET_KVLIST_BY_NAMESPACE,
            {"namespace": arguments.text(namespace, "namespace")},
            accept=(*SUCCESS, ResponseCode.QUERY_NOT_FOUND))
        if answer.code not in SUCCESS:
            return MappingProxyType({})
        return MappingProxyType(document(answer, "name server").table("table"))

    @limited
    async def put_kv(self, namespace: str, key: str, value: str) -> None:
        """Set the value of `key` in a namespace (updateKvConfig)."""
        await self._to_each("setting a value", RequestCode.PUT_KV_CONFIG, {
            "namespace": arguments.text(namespace, "namespace"), "key": arguments.text(key, "key"),
            "value": arguments.text(value, "value")})

    @limited
    async def delete_kv(self, namespace: str, key: str) -> None:
        """Delete `key` from a namespace (deleteKvConfig); also when it is not there."""
        await self._to_each("deleting a value", RequestCode.DELETE_KV_CONFIG, {
            "namespace": arguments.text(namespace, "namespace"), "key": arguments.text(key, "key")})

    @limited
    async def name_server_config(self, name_server: str | None = None) -> Mapping[str, str]:
        """All settings of one name server (319).

        name_server   `host:port`; None: one that answers
        """
        if name_server is None:
            return settings_of((await self._ask_name_server(RequestCode.GET_NAMESRV_CONFIG)).body)
        arguments.address(name_server, "name_server")
        return settings_of((await self._ask(name_server, RequestCode.GET_NAMESRV_CONFIG)).body)

    @limited
    async def update_name_server_config(self, settings: Mapping[str, object]) -> None:
        """Change settings of all name servers (318); BrokerError 16: one that may not change."""
        body = properties_text(arguments.pairs(settings, "settings"))
        await self._write(
            "changing settings of name servers", self._all_name_servers(),
            lambda target: self._ask(target.address, RequestCode.UPDATE_NAMESRV_CONFIG, body=body))

    @limited
    async def wipe_write_perm(self, broker_name: str) -> dict[str, int]:
        """Let no new messages come to the broker `broker_name`: its topics are not writable (205).

        Holds until the broker registers a change. Returns the count of topics by name server.
        """
        return await self._perm(RequestCode.WIPE_WRITE_PERM_OF_BROKER, "wipeTopicCount",
                                broker_name)

    @limited
    async def add_write_perm(self, broker_name: str) -> dict[str, int]:
        """Make the topics of `broker_name` readable and writable (327); returns as
        `wipe_write_perm`.
        """
        return await self._perm(RequestCode.ADD_WRITE_PERM_OF_BROKER, "addTopicCount", broker_name)

    async def _perm(self, code: RequestCode, count: str, broker_name: str) -> dict[str, int]:
        arguments.text(broker_name, "broker_name")

        async def one(target: Target) -> int:
            answer = await self._ask(target.address, code, {"brokerName": broker_name})
            return header_number(answer, count, target.address)

        answers = await self._write(
            f"changing the permission of broker {broker_name}", self._all_name_servers(), one)
        return {target.address: topics for target, topics in answers}

    async def _to_each(self, what: str, code: RequestCode, ext: dict[str, str | None]) -> None:
        await self._write(what, self._all_name_servers(),
                          lambda target: self._ask(target.address, code, dict(ext)))
