"""FastStream's tests for brokers, over this one: test_faststream.py runs a copy of it in a pytest
of its own, with their tests in its path. BROKER is the name server's address."""
import asyncio
import os
from unittest.mock import AsyncMock, MagicMock
from uuid import uuid4

import pytest
from faststream import BaseMiddleware
from faststream._internal.context import ContextRepo

from mqcore.contrib.faststream import (
    RocketMQBroker,
    RocketMQRoute,
    RocketMQRoutePublisher,
    RocketMQRouter,
    TestRocketMQBroker,
)
from mqcore.contrib.faststream.testing import PassingSender
from tests.brokers.base.basic import BaseTestcaseConfig
from tests.brokers.base.codec import CodecTestcase
from tests.brokers.base.consume import BrokerRealConsumeTestcase
from tests.brokers.base.include_router import IncludePublisherTestcase, IncludeSubscriberTestcase
from tests.brokers.base.middlewares import (
    ExceptionMiddlewareTestcase,
    MiddlewaresOrderTestcase,
    MiddlewareTestcase,
)
from tests.brokers.base.parser import CustomParserTestcase
from tests.brokers.base.publish import BrokerPublishTestcase
from tests.brokers.base.requests import RequestsTestcase
from tests.brokers.base.router import RouterLocalTestcase, RouterTestcase
from tests.brokers.base.testclient import BrokerTestclientTestcase


@pytest.fixture
def queue():
    return str(uuid4())


@pytest.fixture
def event():
    return asyncio.Event()


event2 = event3 = event


@pytest.fixture
def mock():
    return MagicMock()


@pytest.fixture
def mock2():
    return MagicMock()


@pytest.fixture
def async_mock():
    return AsyncMock()


@pytest.fixture
def context():
    return ContextRepo()


class Real(BaseTestcaseConfig):
    timeout = 10.0

    def get_broker(self, apply_types=False, **kwargs):
        return RocketMQBroker(os.environ["BROKER"], apply_types=apply_types, topic_queues=1,
                              **kwargs)

    def get_router(self, **kwargs):
        return RocketMQRouter(**kwargs)


class Memory(Real):
    def patch_broker(self, *brokers, **kwargs):
        return TestRocketMQBroker(*brokers, **kwargs)


class FourTimes(BaseMiddleware):
    async def consume_scope(self, call_next, msg):
        msg.body *= 4
        return await call_next(msg)


class Asking(RequestsTestcase):
    def get_middleware(self, **kwargs):
        return FourTimes


class Routes:
    route_class = RocketMQRoute
    publisher_class = RocketMQRoutePublisher


class TestConsume(Real, BrokerRealConsumeTestcase): ...
class TestPublish(Real, BrokerPublishTestcase): ...
class TestParser(Real, CustomParserTestcase): ...
class TestMiddlewares(Real, MiddlewareTestcase): ...
class TestExceptions(Real, ExceptionMiddlewareTestcase): ...
class TestRequests(Real, Asking): ...
class TestRouter(Routes, Real, RouterTestcase): ...
class TestIncludeSubscriber(Real, IncludeSubscriberTestcase): ...
class TestIncludePublisher(Real, IncludePublisherTestcase): ...
class TestMemoryOrder(Memory, MiddlewaresOrderTestcase): ...
class TestMemoryCodec(Memory, CodecTestcase): ...
class TestMemoryRequests(Memory, Asking): ...
class TestMemoryRouter(Routes, Memory, RouterLocalTestcase): ...


class TestMemory(Memory, BrokerTestclientTestcase):
    async def test_broker_gets_patched_attrs_within_cm(self):
        await super().test_broker_gets_patched_attrs_within_cm(PassingSender)
