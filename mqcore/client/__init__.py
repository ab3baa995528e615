"""
Producers and consumers for Python applications.

A name is loaded when it is asked for: a broker takes only the connections from here, and a program
that only sends loads no consumer.
"""
from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# module of `mqcore.client` -> its names that applications use; mqcore.client.names has them for
# type checkers
_NAMES = {
    "admin.asynchronous": "AsyncAdmin",
    "admin.blocking": "Admin",
    "admin.link": "AdminError",
    "config": "ClientConfig",
    "consume.hooked": "CallResult ConsumeHookContext FilterHookContext",
    "consume.iterate": "AsyncConsumer BlockingDelivery Consumer Delivery",
    "consume.listener": "ConsumeContext ConsumeStatus Reject Retry",
    "consume.lite_pull": "AsyncLitePullConsumer LitePullConsumer",
    "consume.options": "Sql92",
    "consume.pull_consumer": "AsyncPullConsumer PullConsumer",
    "consume.pulling": "PullResult",
    "consume.push": "AsyncPushConsumer PushConsumer",
    "core.compression": "Compression",
    "core.offsets": "ConsumeFrom",
    "core.signature": "Credentials",
    "errors": (
        "AccessDenied BrokerError ClientError ClosedError ConfigError ConnectError "
        "MessageTooLarge MQBrokerException MQClientException NoRouteError QueueFull "
        "RemotingConnectException RemotingError RemotingException RemotingTimeoutException "
        "RemotingTooMuchRequestException RequestTimeout RequestTimeoutException RocketMQError "
        "RocketMQException"),
    "events": "Connected Disconnected Event Rebalanced RouteChanged SlowListener",
    "hooks": "EndTransactionContext SendCallContext SendContext add_hook remove_hook",
    "message": (
        "Message MessageQueue PullStatus RecallOutcome RecallResult SendResult SendStatus"),
    "produce.blocking_producer": "Producer",
    "produce.blocking_transaction": "Transaction TransactionProducer",
    "produce.many": "SendManyError",
    "produce.producer": "AsyncProducer assign_message_id",
    "produce.replies": "create_reply",
    "produce.transaction": (
        "AsyncTransaction AsyncTransactionProducer LocalTransactionState TransactionSendResult"),
    "read.batches": "RawBatch ReadGap arrow_schema",
    "read.reader": "AsyncReader Reader",
    "received": "ReceivedMessage",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

if TYPE_CHECKING:
    from mqcore.client.names import *  # noqa: F403, all names, and only for type checkers
else:                                   # these take a misspelled name for a known one
    __all__ = sorted(_MODULES)

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module 'mqcore.client' has no attribute {name!r}")
        found = getattr(import_module(f"mqcore.client.{_MODULES[name]}"), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
