"""
Subscribers of a FastAPI application.

    from mqcore.contrib.faststream.fastapi import RocketMQRouter

    router = RocketMQRouter("host:9876")
    app = FastAPI()
    app.include_router(router)

The router is one of FastAPI's: its functions depend on others by FastAPI's `Depends`, and its
broker starts and stops with the application; HTTP paths send by `router.broker`. FastAPI has to be
installed.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any

from fastapi import params
from fastapi.datastructures import Default
from faststream._internal.fastapi.context import Context, ContextRepo, Logger
from faststream._internal.fastapi.router import StreamRouter

from mqcore.client import ReceivedMessage
from mqcore.contrib.faststream import broker as brokers
from mqcore.contrib.faststream import messages
from mqcore.contrib.faststream.publisher import RocketMQPublisher

__all__ = ["Context", "ContextRepo", "Logger", "RocketMQBroker", "RocketMQMessage",
           "RocketMQRouter"]

# -- what functions of subscribers, and what these depend on, may ask for by type
RocketMQMessage = Annotated[messages.RocketMQMessage, Context("message")]
RocketMQBroker = Annotated[brokers.RocketMQBroker, Context("broker")]

_NO_MODEL = Default(None)               # FastAPI's: the function's own annotation


class RocketMQRouter(StreamRouter[ReceivedMessage]):
    """An APIRouter with a RocketMQBroker (`router.broker`) and its subscribers and publishers."""

    broker_class = brokers.RocketMQBroker
    broker: brokers.RocketMQBroker

    def __init__(
        self, namesrv: str | list[str] = brokers.DEFAULT_URL, *,
        context: ContextRepo | None = None, schema_url: str | None = "/asyncapi", **options: Any,
    ) -> None:
        """
        namesrv     `host:port;host:port`, a list, or a `rocketmq://` URL
        context     FastStream's; None: one of its own
        schema_url  where the application serves the AsyncAPI documents; None: nowhere
        options     of RocketMQBroker (group, topic_queues, client, middlewares ...) and of
                    APIRouter (prefix, dependencies, lifespan ...); `specification_tags` are the
                    broker's tags
        Raises ConfigError for a bad option of the client, TypeError for one that nobody knows.
        """
        super().__init__(namesrv, context=context, schema_url=schema_url, **options)

    def subscriber(
        self, topic: str, *, dependencies: Iterable[params.Depends] = (),
        response_model: Any = _NO_MODEL, response_model_include: Any = None,
        response_model_exclude: Any = None, response_model_by_alias: bool = True,
        response_model_exclude_unset: bool = False, response_model_exclude_defaults: bool = False,
        response_model_exclude_none: bool = False, **options: Any,
    ) -> Callable[[Callable[..., Any]], Any]:
        """
        Call a function, which may depend on others as FastAPI's do, with the messages of a topic.

        dependencies      further ones, whose values nobody asks for
        response_model_*  as of an HTTP path: what of the returned value is sent
        options           of RocketMQBroker.subscriber: group, max_workers, filter, start ...
        """
        return super().subscriber(  # type: ignore[no-any-return]
            topic, dependencies=dependencies, response_model=response_model,
            response_model_include=response_model_include,
            response_model_exclude=response_model_exclude,
            response_model_by_alias=response_model_by_alias,
            response_model_exclude_unset=response_model_exclude_unset,
            response_model_exclude_defaults=response_model_exclude_defaults,
            response_model_exclude_none=response_model_exclude_none, **options)

    def publisher(self, topic: str, **options: Any) -> RocketMQPublisher:
        """Send to a topic what functions return; `options` are RocketMQBroker.publisher's."""
        return self.broker.publisher(topic, **options)
