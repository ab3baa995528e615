"""The broker and its routers."""
from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from fast_depends import dependency_provider
from faststream._internal.broker import BrokerUsecase
from faststream._internal.broker.registrator import Registrator
from faststream._internal.broker.router import ArgsContainer, BrokerRouter, SubscriberRoute
from faststream._internal.configs import BrokerConfig
from faststream._internal.constants import EMPTY
from faststream._internal.context.repository import ContextRepo
from faststream._internal.di import FastDependsConfig
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream._internal.logger import DefaultLoggerStorage, make_logger_state
from faststream._internal.logger.logging import get_broker_logger
from faststream.message import gen_cor_id
from faststream.middlewares import AckPolicy
from faststream.response.publish_type import PublishType
from faststream.specification.schema import BrokerSpec

from mqcore.client import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    BrokerError,
    ClientConfig,
    NoRouteError,
    ReceivedMessage,
    RocketMQError,
)
from mqcore.contrib.faststream.messages import RocketMQMessage, RocketMQPublishCommand
from mqcore.contrib.faststream.publisher import (
    PublisherConfig,
    PublisherSpecConfig,
    RocketMQPublisher,
    RocketMQPublisherSpecification,
    Sender,
)
from mqcore.contrib.faststream.subscriber import (
    RocketMQSubscriber,
    RocketMQSubscriberSpecification,
    SubscriberConfig,
    SubscriberSpecConfig,
)

DEFAULT_URL = "rocketmq://localhost:9876"
REQUEST_S = 3.0


@dataclass(kw_only=True)
class RocketMQBrokerConfig(BrokerConfig):
    """What a broker or router was told, and how subscribers of it join their groups."""

    producer: Any = field(default_factory=Sender)
    client_options: dict[str, Any] = field(default_factory=dict, repr=False)
    topic_queues: int = 0

    async def join(self, group: str, topic: str, options: Mapping[str, Any]) -> AsyncConsumer:
        """A member of a group, started; raises RocketMQError."""
        if self.topic_queues:
            await self._make_topic(topic)
        consumer = AsyncConsumer(group, topic, ack="manual", **{**self.client_options, **options})
        await consumer.start()
        return consumer

    async def _make_topic(self, topic: str) -> None:
        options = dict(self.client_options)
        async with AsyncAdmin(options.pop("namesrv"), **options) as admin:
            try:
                await admin.topic_route(topic)
            except (BrokerError, NoRouteError):
                await admin.create_topic(topic, queues=self.topic_queues)


class RocketMQRegistrator(Registrator[ReceivedMessage, RocketMQBrokerConfig]):
    """Makes subscribers and publishers."""

    def subscriber(
        self, topic: str, *, group: str | None = None, max_workers: int = 1,
        ack_policy: AckPolicy = EMPTY, no_reply: bool = False, dependencies: Sequence[Any] = (),
        parser: Any = None, decoder: Any = None, codec: Any = None, persistent: bool = True,
        title: str | None = None, description: str | None = None, include_in_schema: bool = True,
        **options: Any,
    ) -> Any:
        """
        Call a function with the messages of a topic.

        group        its members share the messages; None: `faststream-TOPIC`
        max_workers  calls at a time
        options      of AsyncConsumer: filter, start, broadcast, max_retries, handler_timeout ...
        The others are FastStream's.
        """
        calls: CallsCollection[Any] = CallsCollection()
        made = RocketMQSubscriber(
            SubscriberConfig(topic=topic, group=group, max_workers=max_workers, options=options,
                             no_reply=no_reply, _outer_config=self.config, _ack_policy=ack_policy),
            RocketMQSubscriberSpecification(
                self.config, SubscriberSpecConfig(
                    topic=topic, title_=title, description_=description,
                    include_in_schema=include_in_schema), calls),
            calls)
        super().subscriber(made, persistent=persistent)
        return made.add_call(parser_=parser or self._parser, decoder_=decoder or self._decoder,
                             codec_=codec, dependencies_=dependencies)

    def publisher(
        self, topic: str, *, tags: str | None = None, headers: Mapping[str, Any] | None = None,
        persistent: bool = True, title: str | None = None, description: str | None = None,
        schema: Any = None, include_in_schema: bool = True,
    ) -> RocketMQPublisher:
        """Send to a topic what functions return, or what `publish` is given.

        tags, headers   of each message that has none of its own
        """
        made = RocketMQPublisher(
            PublisherConfig(topic=topic, tags=tags, headers=dict(headers or {}),
                            _outer_config=self.config),
            RocketMQPublisherSpecification(self.config, PublisherSpecConfig(
                topic=topic, title_=title, description_=description, schema_=schema,
                include_in_schema=include_in_schema)))
        super().publisher(made, persistent=persistent)
        return made

    def include_router(self, router: Any, **options: Any) -> None:
        """Take over the subscribers and publishers of a router; raises TypeError."""
        if not isinstance(router, RocketMQRegistrator):
            raise TypeError("Router must be an instance of RocketMQRegistrator, got"
                            f" {type(router).__name__} instead.")
        super().include_router(router, **options)


class RocketMQRoutePublisher(ArgsContainer):
    """A publisher of a RocketMQRoute: the arguments of `publisher`."""

    def __init__(self, topic: str, **options: Any) -> None:
        super().__init__(topic, **options)


class RocketMQRoute(SubscriberRoute):
    """A subscriber of a router's `handlers`: a function, and the arguments of `subscriber`."""

    def __init__(self, call: Any, topic: str, *,
                 publishers: Iterable[RocketMQRoutePublisher] = (), **options: Any) -> None:
        super().__init__(call, topic, publishers=publishers, **options)


class RocketMQRouter(RocketMQRegistrator, BrokerRouter[ReceivedMessage, RocketMQBrokerConfig]):
    """Subscribers and publishers that a broker includes later."""

    def __init__(
        self, prefix: str = "", handlers: Iterable[RocketMQRoute] = (), *,
        dependencies: Sequence[Any] = (), middlewares: Sequence[Any] = (),
        routers: Iterable[Any] = (), parser: Any = None, decoder: Any = None,
        include_in_schema: bool | None = None, ack_policy: AckPolicy = EMPTY,
    ) -> None:
        super().__init__(
            handlers=handlers, routers=routers, config=RocketMQBrokerConfig(
                prefix=prefix, ack_policy=ack_policy, broker_dependencies=dependencies,
                broker_middlewares=middlewares, broker_parser=parser, broker_decoder=decoder,
                include_in_schema=include_in_schema))


class _LoggerStorage(DefaultLoggerStorage):
    """The logger `faststream.access.rocketmq`, its lines with topic and group."""

    def __init__(self) -> None:
        super().__init__()
        self._level = logging.INFO
        self._widths = {"topic": 5, "group": 5}

    def set_level(self, level: int) -> None:
        self._level = level

    def register_subscriber(self, params: dict[str, Any]) -> None:
        for name, width in self._widths.items():
            self._widths[name] = max(width, len(params.get(name, "")))

    def get_logger(self, *, context: Any) -> Any:
        logger = self._get_logger_ref()
        if not logger:
            fields = " | ".join(f"%({name})-{width}s" for name, width in self._widths.items())
            logger = get_broker_logger(
                name="rocketmq", default_context=dict.fromkeys(self._widths, ""),
                message_id_ln=10, context=context, log_level=self._level,
                fmt=f"%(asctime)s %(levelname)-8s - {fields} | %(message_id)-10s - %(message)s")
            self._logger_ref.add(logger)
        return logger


def _name_servers(options: Mapping[str, Any]) -> str:
    """What may be shown of where the broker is: a URL has a secret. Raises ConfigError."""
    known = {option.name for option in fields(ClientConfig)}    # others are told with a hint, later
    config = ClientConfig(**{name: value for name, value in options.items() if name in known})
    return ";".join(config.name_servers) or config.namesrv_domain


class RocketMQBroker(RocketMQRegistrator,
                     BrokerUsecase[ReceivedMessage, AsyncProducer, RocketMQBrokerConfig]):
    """FastStream over RocketMQ: `broker = RocketMQBroker("host:9876")`."""

    _connection: AsyncProducer | None

    def __init__(
        self, namesrv: str | list[str] = DEFAULT_URL, *, group: str = "faststream",
        topic_queues: int = 0, client: Mapping[str, Any] | None = None,
        graceful_timeout: float | None = 15.0, decoder: Any = None, parser: Any = None,
        codec: Any = None, dependencies: Sequence[Any] = (), middlewares: Sequence[Any] = (),
        routers: Iterable[Any] = (), ack_policy: AckPolicy = EMPTY, id_generator: Any = gen_cor_id,
        specification_url: str | None = None, protocol: str | None = None,
        protocol_version: str | None = None, description: str | None = None,
        tags: Iterable[Any] = (), security: Any = None, logger: Any = EMPTY,
        log_level: int = logging.INFO, apply_types: bool = True, serializer: Any = EMPTY,
        provider: Any = None, context: Any = None,
    ) -> None:
        """
        namesrv       `host:port;host:port`, a list, or a `rocketmq://` URL
        group         of its producer
        topic_queues  topics that subscribers find missing are made, with so many queues; 0: they
                      wait for somebody else to make them
        client        further options of every role of the client: tls, credentials ...
        specification_url   in the AsyncAPI document; None: the name servers, `host:port;host:port`
        The others are FastStream's. Raises ConfigError, naming a bad option.
        """
        options = {"namesrv": namesrv, **(client or {})}
        self._group = group
        shown = specification_url or _name_servers(options)
        super().__init__(
            routers=routers,
            config=RocketMQBrokerConfig(
                producer=Sender(parser, decoder), client_options=options,
                topic_queues=topic_queues, broker_middlewares=middlewares, broker_parser=parser,
                broker_decoder=decoder, broker_codec=codec, broker_dependencies=dependencies,
                graceful_timeout=graceful_timeout, ack_policy=ack_policy,
                id_generator=id_generator, extra_context={"broker": self},
                logger=make_logger_state(logger=logger, log_level=log_level,
                                         default_storage_cls=_LoggerStorage),
                fd_config=FastDependsConfig(
                    use_fastdepends=apply_types, serializer=serializer,
                    provider=provider or dependency_provider, context=context or ContextRepo())),
            specification=BrokerSpec(
                url=[shown], description=description, protocol=protocol or "rocketmq",
                protocol_version=protocol_version or "4.9", tags=tags, security=security))

    async def _connect(self) -> AsyncProducer:
        producer = AsyncProducer(self._group, **self.config.broker_config.client_options)
        await producer.start()
        self.config.producer.connect(producer, self.config.fd_config._serializer,
                                     self.config.broker_codec)
        return producer

    async def start(self) -> None:
        """Connect and start all subscribers; raises RocketMQError."""
        await self.connect()
        await super().start()

    async def stop(self, exc_type: Any = None, exc_val: Any = None, exc_tb: Any = None) -> None:
        """Stop all subscribers, then the producer."""
        await super().stop(exc_type, exc_val, exc_tb)
        producer, self._connection = self._connection, None
        if producer is not None:
            await producer.close()
        self.config.producer.disconnect()

    async def ping(self, timeout: float | None = None) -> bool:
        """Whether it is connected and a name server answers within `timeout` seconds (5)."""
        if self._connection is None:
            return False
        options = dict(self.config.broker_config.client_options)
        try:
            async with AsyncAdmin(options.pop("namesrv"), timeout=timeout or 5.0,
                                  **options) as admin:
                await admin.system_topics()
        except RocketMQError:
            return False
        return True

    async def publish(
        self, message: Any = None, topic: str = "", *, tags: str | None = None,
        key: str | None = None, shard: object = None, delay_level: int = 0,
        headers: Mapping[str, Any] | None = None, correlation_id: str | None = None,
        reply_to: str = "",
    ) -> Any:
        """
        Send a message; returns the client's SendResult.

        tags, key, delay_level   as of the client's Message
        shard                    messages of equal shards go to one queue, in order
        headers                  user properties
        reply_to                 the topic that what a subscriber returns is sent to
        Raises RocketMQError.
        """
        return await self._basic_publish(
            RocketMQPublishCommand(
                message, topic=topic, tags=tags, key=key, shard=shard, delay_level=delay_level,
                headers=headers, correlation_id=correlation_id or self.config.id_generator(),
                reply_to=reply_to, _publish_type=PublishType.PUBLISH),
            producer=self.config.producer)

    async def request(
        self, message: Any = None, topic: str = "", *, timeout: float = REQUEST_S,
        headers: Mapping[str, Any] | None = None, correlation_id: str | None = None,
    ) -> RocketMQMessage:
        """Send a message and wait `timeout` seconds for what a subscriber returns; raises
        RequestTimeout, RocketMQError."""
        answer: RocketMQMessage = await self._basic_request(
            RocketMQPublishCommand(
                message, topic=topic, timeout=timeout, headers=headers,
                correlation_id=correlation_id or self.config.id_generator(),
                _publish_type=PublishType.REQUEST),
            producer=self.config.producer)
        return answer
