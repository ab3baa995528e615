"""Producers and consumers for Python applications, on asyncio."""
from mqcore.client.consumer import ConsumeFrom, PushConsumer
from mqcore.client.errors import (
    MQBrokerException,
    MQClientException,
    RemotingException,
    RocketMQException,
)
from mqcore.client.listener import ConsumeContext, ConsumeStatus
from mqcore.client.message import (
    Message,
    MessageQueue,
    PullResult,
    PullStatus,
    ReceivedMessage,
    SendResult,
    SendStatus,
)
from mqcore.client.producer import Producer

__all__ = [
    "ConsumeContext",
    "ConsumeFrom",
    "ConsumeStatus",
    "MQBrokerException",
    "MQClientException",
    "Message",
    "MessageQueue",
    "Producer",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "ReceivedMessage",
    "RemotingException",
    "RocketMQException",
    "SendResult",
    "SendStatus",
]
