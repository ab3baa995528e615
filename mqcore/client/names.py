"""All names of the client that applications use, for type checkers; `mqcore.client` has them."""
from mqcore.client.admin import Admin, AdminError, AsyncAdmin
from mqcore.client.config import ClientConfig
from mqcore.client.consume.hooked import CallResult, ConsumeHookContext, FilterHookContext
from mqcore.client.consume.iterate import AsyncConsumer, BlockingDelivery, Consumer, Delivery
from mqcore.client.consume.listener import ConsumeContext, ConsumeStatus, Reject, Retry
from mqcore.client.consume.lite_pull import AsyncLitePullConsumer, LitePullConsumer
from mqcore.client.consume.options import Sql92
from mqcore.client.consume.pull_consumer import AsyncPullConsumer, PullConsumer
from mqcore.client.consume.pulling import PullResult
from mqcore.client.consume.push import AsyncPushConsumer, PushConsumer
from mqcore.client.core.compression import Compression
from mqcore.client.core.offsets import ConsumeFrom
from mqcore.client.core.signature import Credentials
from mqcore.client.errors import (
    AccessDenied,
    BrokerError,
    ClientError,
    ClosedError,
    ConfigError,
    ConnectError,
    MessageTooLarge,
    MQBrokerException,
    MQClientException,
    NoRouteError,
    QueueFull,
    RemotingConnectException,
    RemotingError,
    RemotingException,
    RemotingTimeoutException,
    RemotingTooMuchRequestException,
    RequestTimeout,
    RequestTimeoutException,
    RocketMQError,
    RocketMQException,
)
from mqcore.client.events import (
    Connected,
    Disconnected,
    Event,
    Rebalanced,
    RouteChanged,
    SlowListener,
)
from mqcore.client.hooks import (
    EndTransactionContext,
    SendCallContext,
    SendContext,
    add_hook,
    remove_hook,
)
from mqcore.client.message import (
    Message,
    MessageQueue,
    PullStatus,
    RecallOutcome,
    RecallResult,
    SendResult,
    SendStatus,
)
from mqcore.client.produce.blocking_producer import Producer
from mqcore.client.produce.blocking_transaction import Transaction, TransactionProducer
from mqcore.client.produce.many import SendManyError
from mqcore.client.produce.producer import AsyncProducer, assign_message_id
from mqcore.client.produce.replies import create_reply
from mqcore.client.produce.transaction import (
    AsyncTransaction,
    AsyncTransactionProducer,
    LocalTransactionState,
    TransactionSendResult,
)
from mqcore.client.read.batches import RawBatch, ReadGap, arrow_schema
from mqcore.client.read.reader import AsyncReader, Reader
from mqcore.client.received import ReceivedMessage

__all__ = [
    "AccessDenied",
    "Admin",
    "AdminError",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncLitePullConsumer",
    "AsyncProducer",
    "AsyncPullConsumer",
    "AsyncPushConsumer",
    "AsyncReader",
    "AsyncTransaction",
    "AsyncTransactionProducer",
    "BlockingDelivery",
    "BrokerError",
    "CallResult",
    "ClientConfig",
    "ClientError",
    "ClosedError",
    "Compression",
    "ConfigError",
    "ConnectError",
    "Connected",
    "ConsumeContext",
    "ConsumeFrom",
    "ConsumeHookContext",
    "ConsumeStatus",
    "Consumer",
    "Credentials",
    "Delivery",
    "Disconnected",
    "EndTransactionContext",
    "Event",
    "FilterHookContext",
    "LitePullConsumer",
    "LocalTransactionState",
    "MQBrokerException",
    "MQClientException",
    "Message",
    "MessageQueue",
    "MessageTooLarge",
    "NoRouteError",
    "Producer",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "QueueFull",
    "RawBatch",
    "ReadGap",
    "Reader",
    "Rebalanced",
    "RecallOutcome",
    "RecallResult",
    "ReceivedMessage",
    "Reject",
    "RemotingConnectException",
    "RemotingError",
    "RemotingException",
    "RemotingTimeoutException",
    "RemotingTooMuchRequestException",
    "RequestTimeout",
    "RequestTimeoutException",
    "Retry",
    "RocketMQError",
    "RocketMQException",
    "RouteChanged",
    "SendCallContext",
    "SendContext",
    "SendManyError",
    "SendResult",
    "SendStatus",
    "SlowListener",
    "Sql92",
    "Transaction",
    "TransactionProducer",
    "TransactionSendResult",
    "add_hook",
    "arrow_schema",
    "assign_message_id",
    "create_reply",
    "remove_hook",
]
