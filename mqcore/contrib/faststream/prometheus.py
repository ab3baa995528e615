"""
Counts and times of messages for Prometheus: FastStream's own metrics, with `broker="rocketmq"`.

    registry = CollectorRegistry()
    broker = RocketMQBroker(middlewares=[RocketMQPrometheusMiddleware(registry=registry)])

prometheus_client has to be installed.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from faststream._internal.constants import EMPTY
from faststream.prometheus import ConsumeAttrs, PrometheusMiddleware
from prometheus_client import CollectorRegistry

from mqcore.contrib.faststream.messages import RocketMQMessage, RocketMQPublishCommand

__all__ = ["RocketMQPrometheusMiddleware"]


class _Described:
    """What the metrics say of messages; their topic is the handler's and the destination's name."""

    messaging_system = "rocketmq"

    def get_consume_attrs_from_message(self, msg: RocketMQMessage) -> ConsumeAttrs:
        """Of a message that was received."""
        return {"message_size": len(msg.body), "destination_name": msg.raw_message.topic,
                "messages_count": 1}

    def get_publish_destination_name_from_cmd(self, cmd: RocketMQPublishCommand) -> str:
        """Of one that is sent."""
        return str(cmd.destination)


class RocketMQPrometheusMiddleware(PrometheusMiddleware[Any, RocketMQPublishCommand]):
    """Counts received, processed and published messages, their sizes and times."""

    def __init__(
        self, *, registry: CollectorRegistry, app_name: str = EMPTY,
        metrics_prefix: str = "faststream",
        received_messages_size_buckets: Sequence[float] | None = None,
        custom_labels: Mapping[str, str | Callable[[Any], str]] | None = None,
    ) -> None:
        """
        registry        of prometheus_client; one middleware for each, or another prefix
        app_name        the label `app_name`; EMPTY: metrics_prefix
        metrics_prefix  what the metrics' names begin with
        received_messages_size_buckets   bytes
        custom_labels   further ones: a text, or a function of the client's message; of what is
                        published that is None
        """
        super().__init__(
            settings_provider_factory=lambda _: _Described(), registry=registry, app_name=app_name,
            metrics_prefix=metrics_prefix,
            received_messages_size_buckets=received_messages_size_buckets,
            custom_labels=dict(custom_labels or {}))
