"""
Requests of tools that a consumer answers; the broker passes question and answer on.

broker.md 10.4, remoting.md 4.4, 4.8 (RocketMQ 4.9.8: AdminBrokerProcessor, Broker2Client).
"""
from __future__ import annotations

from dataclasses import replace

from mqcore.broker.core import Core
from mqcore.broker.request import Answer, FieldError, Fields, Request, answers, refused
from mqcore.broker.requests import grpc_relay
from mqcore.broker.tables.client_calls import CallEnd
from mqcore.broker.tables.clients import Client
from mqcore.wire.codes import (
    FLAG_RESPONSE,
    RequestCode,
    ResponseCode,
    version_ordinal,
    version_text,
)
from mqcore.wire.command import Command, encode
from mqcore.wire.command import request as make_request
from mqcore.wire.ids import parse_offset_message_id
from mqcore.wire.signed import OF_ACCOUNTS

RELAY_TIMEOUT_MS = 10_000
# The fields of both headers, with those of 5.x. All others stay here, above all an account's.
RELAYED = frozenset((
    "consumerGroup", "clientId", "jstackEnable", "msgId", "brokerName", "topic", "topicSysFlag",
    "groupSysFlag"))
ORDINAL_3_1_8 = version_ordinal("3.1.8") - 1       # of its snapshot, the first that can answer


@answers(RequestCode.GET_CONSUMER_RUNNING_INFO)
def running_info(core: Core, request: Request) -> Answer | None:
    """GET_CONSUMER_RUNNING_INFO (307): what a consumer has in its hands."""
    return _relay(core, request, {})


@answers(RequestCode.CONSUME_MESSAGE_DIRECTLY)
def consume_directly(core: Core, request: Request) -> Answer | None:
    """CONSUME_MESSAGE_DIRECTLY (309): a consumer gets one stored message, outside its queues."""
    fields = Fields.of(request.command)
    ext: dict[str, str | None] = {"brokerName": core.settings.broker.name}
    message_id = fields.ext.get("msgId")
    if not message_id:
        return _relay(core, request, ext)
    try:
        _, _, position = parse_offset_message_id(message_id)
    except ValueError as error:
        raise FieldError(f"header field msgId: {error}") from error
    record = core.ports.store.named_record(position)
    if record is None:
        return refused(ResponseCode.SYSTEM_ERROR, f"there is no message at position {position}")
    return _relay(core, request, ext, record)


def _relay(
    core: Core, request: Request, more: dict[str, str | None], body: bytes = b""
) -> Answer | None:
    """Ask the client that the header names, and answer with what it says."""
    fields = Fields.of(request.command)
    ext = {name: value for name, value in fields.ext.items() if name in RELAYED} | more
    group, client_id = fields.text("consumerGroup"), fields.text("clientId")
    client = _member(core, group, client_id)
    if client is None:
        return refused(
            ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online"
        )
    if core.is_grpc(client.connection):
        return grpc_relay.ask(core, request, group, client, body,
                              lambda end: _no_answer(client, end), timeout_ms=RELAY_TIMEOUT_MS)
    if client.version < ORDINAL_3_1_8:
        return refused(
            ResponseCode.SYSTEM_ERROR,
            f"the consumer <{group}> <{client_id}> has version {version_text(client.version)}:"
            " expected V3_1_8_SNAPSHOT or later",
        )

    def done(end: Command | CallEnd) -> None:
        if isinstance(end, CallEnd):
            core.answer(request, _no_answer(client, end))
        elif not request.command.is_oneway:
            core.ports.connections.send(request.connection, encode(_answer(request, end)))

    core.calls.call(
        client.connection, make_request(request.command.code, ext, body), RELAY_TIMEOUT_MS, done,
        request.now_ms,
    )
    return None


def _member(core: Core, group: str, client_id: str) -> Client | None:
    found = core.clients.consumers.get(group)
    if found is None:
        return None
    return next((one for one in found.members.values() if one.client_id == client_id), None)


def _answer(request: Request, end: Command) -> Command:
    """
    The client's own answer, its language and version too, as one to the tool's request; without
    what says whose account a client has.
    """
    ext = end.ext
    if ext is not None:
        ext = {name: value for name, value in ext.items() if name not in OF_ACCOUNTS}
    return replace(end, opaque=request.command.opaque, flag=FLAG_RESPONSE,
                   codec=request.command.codec, ext=ext)


def _no_answer(client: Client, end: CallEnd) -> Answer:
    timeout = end is CallEnd.TIMEOUT
    return refused(
        ResponseCode.CONSUME_MSG_TIMEOUT if timeout else ResponseCode.SYSTEM_ERROR,
        f"consumer {client.client_id} at {client.remote}: {end.value}",
    )
