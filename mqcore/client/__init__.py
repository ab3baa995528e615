"""Producers and consumers for Python applications."""
from mqcore.client.admin import Admin, AdminError, AsyncAdmin
from mqcore.client.batches import RawBatch, ReadGap, arrow_schema
from mqcore.client.blocking_producer import Producer
from mqcore.client.blocking_transaction import Transaction, TransactionProducer
from mqcore.client.config import ClientConfig
from mqcore.client.consumer import AsyncPushConsumer, ConsumeFrom
from mqcore.client.core.compression import Compression
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
from mqcore.client.listener import ConsumeContext, ConsumeStatus
from mqcore.client.many import SendManyError
from mqcore.client.message import (
    Message,
    MessageQueue,
    PullResult,
    PullStatus,
    ReceivedMessage,
    SendResult,
    SendStatus,
)
from mqcore.client.producer import AsyncProducer
from mqcore.client.reader import AsyncReader, Reader
from mqcore.client.replies import create_reply
from mqcore.client.transaction import (
    AsyncTransaction,
    AsyncTransactionProducer,
    LocalTransactionState,
    TransactionSendResult,
)

__all__ = [
    "AccessDenied",
    "Admin",
    "AdminError",
    "AsyncAdmin",
    "AsyncProducer",
    "AsyncPushConsumer",
    "AsyncReader",
    "AsyncTransaction",
    "AsyncTransactionProducer",
    "BrokerError",
    "ClientConfig",
    "ClientError",
    "ClosedError",
    "Compression",
    "ConfigError",
    "ConnectError",
    "ConsumeContext",
    "ConsumeFrom",
    "ConsumeStatus",
    "Credentials",
    "LocalTransactionState",
    "MQBrokerException",
    "MQClientException",
    "Message",
    "MessageQueue",
    "MessageTooLarge",
    "NoRouteError",
    "Producer",
    "PullResult",
    "PullStatus",
    "QueueFull",
    "RawBatch",
    "ReadGap",
    "Reader",
    "ReceivedMessage",
    "RemotingConnectException",
    "RemotingError",
    "RemotingException",
    "RemotingTimeoutException",
    "RemotingTooMuchRequestException",
    "RequestTimeout",
    "RequestTimeoutException",
    "RocketMQError",
    "RocketMQException",
    "SendManyError",
    "SendResult",
    "SendStatus",
    "Transaction",
    "TransactionProducer",
    "TransactionSendResult",
    "arrow_schema",
    "create_reply",
]
