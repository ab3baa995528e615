"""Calls of the service with requests of the test's own making, by Google's gRPC."""
from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import select
import subprocess
from collections.abc import Iterator
from typing import Any

from mqcore.wire.grpc import SHAPES
from mqcore.wire.protobuf import Shapes
from tests.interop.toolchain import SOURCES, require_client
from tests.support.stock import die_with_parent

ANSWER_TIMEOUT_S = 60
# what only native code reads and writes, declared here once more
NATIVE = Shapes("""
Resource: 1 resource_namespace str, 2 name str
Status: 1 code enum, 2 message str
Duration: 1 seconds i64, 2 nanos i32
Timestamp: 1 seconds i64, 2 nanos i32
Broker: 1 name str, 2 id i32
MessageQueue: 1 topic Resource, 2 id i32, 4 broker Broker
FilterExpression: 1 type enum, 2 expression str
Digest: 1 type enum, 2 checksum str
SystemProperties: 1 tag? str, 2 keys* str, 3 message_id str, 4 body_digest Digest, 5
    body_encoding enum, 6 message_type enum, 7 born_timestamp Timestamp, 8 born_host str, 9
    store_timestamp? Timestamp, 10 store_host str, 11 delivery_timestamp? Timestamp,
    12 receipt_handle? str, 13 queue_id i32, 14 queue_offset? i64, 16 delivery_attempt? i32,
    17 message_group? str, 19 orphaned_transaction_recovery_duration? Duration
Message: 1 topic Resource, 2 user_properties map, 3 system_properties SystemProperties, 4 body bytes
SendMessageRequest: 1 messages* Message
SendResultEntry: 1 status Status, 2 message_id str, 3 transaction_id str, 4 offset i64, 5
    recall_handle str
SendMessageResponse: 1 status Status, 2 entries* SendResultEntry
ReceiveMessageRequest: 1 group Resource, 2 message_queue MessageQueue, 3 filter_expression
    FilterExpression, 4 batch_size i32, 5 invisible_duration? Duration, 6 auto_renew bool, 7
    long_polling_timeout? Duration, 8 attempt_id? str
ReceiveMessageResponse: 1 status Status, 2 message Message, 3 delivery_timestamp Timestamp
AckMessageEntry: 1 message_id str, 2 receipt_handle str
AckMessageRequest: 1 group Resource, 2 topic Resource, 3 entries* AckMessageEntry
AckMessageResultEntry: 1 message_id str, 2 receipt_handle str, 3 status Status
AckMessageResponse: 1 status Status, 2 entries* AckMessageResultEntry
ChangeInvisibleDurationRequest: 1 group Resource, 2 topic Resource, 3 receipt_handle str, 4
    invisible_duration Duration, 5 message_id str
ChangeInvisibleDurationResponse: 1 status Status, 2 receipt_handle str
ForwardMessageToDeadLetterQueueRequest: 1 group Resource, 2 topic Resource, 3 receipt_handle str, 4
    message_id str, 5 delivery_attempt i32, 6 max_delivery_attempts i32
RecallMessageRequest: 1 topic Resource, 2 recall_handle str
RecallMessageResponse: 1 status Status, 2 message_id str
PullMessageRequest: 1 group Resource, 2 message_queue MessageQueue, 3 offset i64, 4 batch_size i32,
    5 filter_expression FilterExpression, 6 long_polling_timeout Duration
PullMessageResponse: 1 status Status, 2 message Message, 3 next_offset? i64
EndTransactionRequest: 1 topic Resource, 2 message_id str, 3 transaction_id str, 4 resolution
    enum, 5 source enum
StatusOnly: 1 status Status
""")
Message = dict[str, Any]


CLIENT = {"x-mq-client-id": "client"}


def authorization(key: str, secret: str, date: str = "20261128T200000Z") -> dict[str, str]:
    digest = hmac.new(secret.encode(), date.encode(), hashlib.sha1).hexdigest()
    return {"x-mq-date-time": date, "authorization": (
        f"MQv2-HMAC-SHA1 Credential={key}, SignedHeaders=x-mq-date-time, Signature={digest}")}


class Caller:
    """One connection."""

    def __init__(self, address: str, access_key: str = "", secret_key: str = "") -> None:
        """access_key, secret_key: all calls are signed with these; empty: none is."""
        self._keys = access_key, secret_key
        (python,) = require_client("grpc")
        self._process = subprocess.Popen(
            [python, str(SOURCES / "python_grpc" / "raw.py"), address], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, preexec_fn=die_with_parent)

    def credentials(self) -> dict[str, str]:
        """The fields that a client adds to its calls (grpc.md 1.6)."""
        key, secret = self._keys
        return {} if not key else authorization(key, secret)

    def begin(self, method: str, request: bytes, metadata: dict[str, str] | None = None) -> None:
        given = {**CLIENT, **self.credentials()} if metadata is None else metadata
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(
            {"method": method, "request": request.hex(), "metadata": given}).encode() + b"\n")
        self._process.stdin.flush()

    def end(self) -> tuple[list[bytes], int]:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], ANSWER_TIMEOUT_S)
        assert ready, "no answer"
        said = json.loads(self._process.stdout.readline())
        return [bytes.fromhex(one) for one in said["messages"]], said["status"]

    def call(self, method: str, request: bytes,
             metadata: dict[str, str] | None = None) -> tuple[list[bytes], int]:
        """The messages of the answer, and the protocol's status."""
        self.begin(method, request, metadata)
        return self.end()

    def unary(self, method: str, shape: str, asked: Message, answer: str = "StatusOnly") -> Message:
        """The only message of the answer."""
        shapes = NATIVE if shape in NATIVE.names else SHAPES
        (message,), status = self.call(method, shapes.encode(shape, asked))
        assert status == 0
        return (NATIVE if answer in NATIVE.names else SHAPES).decode(answer, message)

    def send(self, topic: str, body: bytes, **system: Any) -> Message:
        """The SendMessageResponse of one message."""
        return self.unary("SendMessage", "SendMessageRequest", {"messages": [{
            "topic": {"name": topic}, "body": body,
            "system_properties": {"message_id": f"id-{body.decode(errors='replace')[:50]}",
                                  **system}}]}, "SendMessageResponse")

    def receive(self, topic: str, group: str, *, wait_s: int = 5, invisible_s: int = 10,
                **more: Any) -> tuple[int, list[Message]]:
        """Code and messages of one receive; it ends with the server's clock."""
        messages, status = self.call("ReceiveMessage", receive_request(
            topic, group, wait_s=wait_s, invisible_s=invisible_s, **more))
        assert status == 0
        said = [NATIVE.decode("ReceiveMessageResponse", one) for one in messages]
        assert "delivery_timestamp" in said[-1]
        return said[0]["status"]["code"], [one["message"] for one in said[1:-1]]

    def ack(self, topic: str, group: str, handle: str) -> int:
        return int(self.unary("AckMessage", "AckMessageRequest", {
            "group": {"name": group}, "topic": {"name": topic},
            "entries": [{"message_id": "id", "receipt_handle": handle}]},
            "AckMessageResponse")["status"]["code"])

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


def receive_request(topic: str, group: str, *, wait_s: int = 5, invisible_s: int = 10,
                    **more: Any) -> bytes:
    return NATIVE.encode("ReceiveMessageRequest", {
        "group": {"name": group}, "message_queue": {"topic": {"name": topic}}, "batch_size": 32,
        "invisible_duration": {"seconds": invisible_s},
        "long_polling_timeout": {"seconds": wait_s}, **more})


@contextlib.contextmanager
def calling(address: str, access_key: str = "", secret_key: str = "") -> Iterator[Caller]:
    caller = Caller(address, access_key, secret_key)
    try:
        yield caller
    finally:
        caller.stop()
