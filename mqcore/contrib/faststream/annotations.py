"""What functions of subscribers may ask for by type: `async def f(body, m: RocketMQMessage)`."""
from typing import Annotated

from faststream import Context

from mqcore.contrib.faststream import broker as brokers
from mqcore.contrib.faststream import messages

RocketMQMessage = Annotated[messages.RocketMQMessage, Context("message")]
RocketMQBroker = Annotated[brokers.RocketMQBroker, Context("broker")]

__all__ = ["RocketMQBroker", "RocketMQMessage"]
