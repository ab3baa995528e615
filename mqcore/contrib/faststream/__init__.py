"""
A broker for FastStream: `from mqcore.contrib.faststream import RocketMQBroker`.

A subscriber is a member of a consumer group; its function's end acks the message, an exception has
it come again. `TestRocketMQBroker` runs an application without a broker.
"""
from mqcore.contrib.faststream.broker import (
    RocketMQBroker,
    RocketMQRoute,
    RocketMQRoutePublisher,
    RocketMQRouter,
)
from mqcore.contrib.faststream.messages import RocketMQMessage, RocketMQPublishCommand
from mqcore.contrib.faststream.publisher import RocketMQPublisher
from mqcore.contrib.faststream.subscriber import RocketMQSubscriber
from mqcore.contrib.faststream.testing import TestRocketMQBroker

__all__ = ["RocketMQBroker", "RocketMQMessage", "RocketMQPublishCommand", "RocketMQPublisher",
           "RocketMQRoute", "RocketMQRoutePublisher", "RocketMQRouter", "RocketMQSubscriber",
           "TestRocketMQBroker"]
