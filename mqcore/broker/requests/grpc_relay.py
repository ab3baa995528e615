"""
Requests of tools that a consumer by gRPC answers (grpc.md 1.7; RocketMQ 5.3.3:
ProxyClientRemotingProcessor, ClientActivity).

The front makes commands of Telemetry from the questions, with their opaque as nonce. What the
client answers comes as GRPC_SETTINGS; here it becomes the body that a consumer of 4.x answers with.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mqcore.broker.core import Core
from mqcore.broker.request import Answer, Request, refused
from mqcore.broker.tables.client_calls import CallEnd
from mqcore.broker.tables.clients import Client
from mqcore.wire import fastjson
from mqcore.wire.codes import RequestCode, ResponseCode, version_text
from mqcore.wire.command import Command
from mqcore.wire.command import request as make_request
from mqcore.wire.grpc import StatusCode
from mqcore.wire.numbers import I32_MAX, whole_number

RESULTS: dict[int, str] = {
    StatusCode.OK: "CR_SUCCESS", StatusCode.FAILED_TO_CONSUME_MESSAGE: "CR_LATER",
    StatusCode.MESSAGE_CORRUPTED: "CR_RETURN_NULL",
}


def ask(
    core: Core, request: Request, group: str, client: Client, record: bytes,
    failed: Callable[[CallEnd], Answer], *, timeout_ms: int,
) -> Answer | None:
    """
    Ask a client for its stacks (307), or to consume a stored message (309).

    record  of the message, as the log has it; empty for 307
    failed  the answer to the tool where the client gives none
    """
    directly = request.command.code == RequestCode.CONSUME_MESSAGE_DIRECTLY
    if directly and not record:
        return refused(ResponseCode.SYSTEM_ERROR,
                       "header field msgId: expected the broker's id of a stored message")
    if not directly and (request.command.ext or {}).get("jstackEnable") != "true":
        return Answer(ResponseCode.SUCCESS, body=_running_info(core, group, client, None))

    def done(end: Command | CallEnd) -> None:
        if isinstance(end, CallEnd):
            core.answer(request, failed(end))
            return
        body = end.body if directly else _running_info(
            core, group, client, end.body.decode("utf-8", "replace"))
        core.answer(request, Answer(ResponseCode.SUCCESS, body=body))

    core.calls.call(client.connection, make_request(request.command.code, {}, record), timeout_ms,
                    done, request.now_ms)
    return None


def answered(core: Core, request: Request, said: dict[str, Any]) -> None:
    """A client answers a question; an answer that is not waited for is passed over."""
    stack, verified = said.get("thread_stack_trace"), said.get("verify_message_result")
    nonce = whole_number(str((stack or verified or {}).get("nonce", "")), 0, I32_MAX)
    if nonce is None:
        return
    status = said.get("status") or {}
    body = (stack.get("thread_stack_trace", "").encode() if stack is not None
            else _direct_result(status.get("code", 0), status.get("message", "")))
    core.calls.answered(request.connection, Command(ResponseCode.SUCCESS, opaque=nonce, body=body))


def _running_info(core: Core, group: str, client: Client, stacks: str | None) -> bytes:
    """The broker's knowledge of a member, and its stacks."""
    found = core.clients.consumers.get(group)
    body: dict[str, Any] = {
        "properties": {
            "PROP_CONSUME_TYPE": found.consume_type if found is not None else None,
            "PROP_CONSUMEORDERLY": "false", "PROP_CLIENT_VERSION": version_text(client.version),
            "PROP_NAMESERVER_ADDR": "", "PROP_THREADPOOL_CORE_SIZE": "0"},
        "subscriptionSet": [] if found is None else [
            one.as_json() for _, one in sorted(found.subscriptions.items())],
        "mqTable": {}, "statusTable": {},
    }
    if stacks is not None:
        body["jstack"] = stacks
    return fastjson.dumps(body)


def _direct_result(code: int, text: str) -> bytes:
    return fastjson.dumps({
        "order": False, "autoCommit": True, "spentTimeMills": 0,
        "consumeResult": RESULTS.get(code, "CR_THROW_EXCEPTION"),
        "remark": text or "from a client by gRPC"})
