"""The basis of administration: requests with limits, brokers by name, loops over them."""
from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar, Unpack, overload

from msgspec import Struct

from mqcore.client.admin import arguments
from mqcore.client.admin.bodies import document
from mqcore.client.config import ClientConfig, ClientOptions, client_config
from mqcore.client.core.options import positive_seconds
from mqcore.client.errors import (
    CODE_BROKER_NOT_FOUND,
    CODE_NO_NAME_SERVER,
    ClientError,
    ConfigError,
    NoRouteError,
    RequestTimeout,
    RocketMQError,
    broker_error,
)
from mqcore.client.network.pool import client_request
from mqcore.client.roles.instance import ClientInstance
from mqcore.client.roles.role import Role
from mqcore.wire.codes import MASTER_ID, RequestCode, ResponseCode
from mqcore.wire.command import Command, Ext
from mqcore.wire.records import RecordError
from mqcore.wire.topics import BodyError, BrokerData, TopicRoute, decode_broker_data

TIMEOUT_S: Final = 5.0              # one request (client.md 6.2)
TIME_LIMIT_S: Final = 60.0        # all that one method does
SLOW_FACTOR: Final = 3              # of requests that count or that a consumer answers
AT_ONCE_MAX: Final = 16             # requests of one loop that are under way
SUCCESS: Final = frozenset({int(ResponseCode.SUCCESS)})

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
L = TypeVar("L", bound="Link")


class Target(Struct, frozen=True):
    """A broker or name server to ask: what people call it, and its `host:port`."""

    name: str
    address: str

    def __str__(self) -> str:
        return self.name if self.name == self.address else f"{self.name} ({self.address})"


class Unreachable(Struct, frozen=True):
    """One of several that did not answer, or refused."""

    name: str
    address: str
    error: RocketMQError


class AdminError(RocketMQError):
    """
    Some of the brokers or name servers that one call was about failed.

    failures   those, each with its error
    done       the names of the brokers that did what was asked
    """

    def __init__(self, what: str, failures: Sequence[Unreachable], done: Sequence[str]) -> None:
        first = failures[0]
        told = "; ".join(f"{failure.name} ({failure.address}): {failure.error}"
                         for failure in failures)
        super().__init__(
            f"{what} failed at {len(failures)} of {len(failures) + len(done)}: {told}"
            + (f"; done at {', '.join(done)}" if done else ""),
            first.error.code, remark=first.error.remark, broker=first.address)
        self.failures: tuple[Unreachable, ...] = tuple(failures)
        self.done: tuple[str, ...] = tuple(done)
        self.retryable: bool = any(failure.error.retryable for failure in failures)


@dataclass(frozen=True, slots=True)
class Found(Sequence[T], Generic[T]):
    """
    The answers of several brokers; a sequence of `items`.

    unreachable   the brokers that are missing in it
    more          whether a limit of the call cut it
    """

    items: tuple[T, ...]
    unreachable: tuple[Unreachable, ...] = ()
    more: bool = False

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...

    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        return self.items[index]


def limited(
    method: Callable[Concatenate[L, P], Coroutine[Any, Any, R]]
) -> Callable[Concatenate[L, P], Coroutine[Any, Any, R]]:
    """A public call: the client must be open, and the whole call has a time limit."""

    @functools.wraps(method)
    async def run(self: L, /, *args: P.args, **kwargs: P.kwargs) -> R:
        self.check_running()
        try:
            async with asyncio.timeout(self.time_limit):
                return await method(self, *args, **kwargs)
        except RequestTimeout:
            raise
        except TimeoutError as error:
            raise RequestTimeout(
                f"{method.__name__} took longer than {self.time_limit} s (time_limit)",
                stored=None) from error
        except (BodyError, RecordError) as error:
            raise ClientError(f"{method.__name__}: {error}") from error

    return run


class _Instance(ClientInstance):
    """A client that may go without name servers, and registers nowhere."""

    async def start(self) -> None:
        if self.config.name_servers or self.config.namesrv_domain:
            await super().start()


class Link(Role):
    """Connections to name servers and brokers; the base of each part of AsyncAdmin."""

    def __init__(
        self, name_servers: str | Sequence[str] | None = None, /, *,
        config: ClientConfig | None = None, timeout: float = TIMEOUT_S,
        time_limit: float = TIME_LIMIT_S, **options: Unpack[ClientOptions],
    ) -> None:
        """
        name_servers   `host:port;host:port`, a list, or a `rocketmq://` URL, as the option namesrv;
                       None = the environment's NAMESRV_ADDR. With none at all, calls that name a
                       broker's address work
        config         what roles of one application have in common; `options` change it. A
                       namespace in it is not applied: names here are the brokers' own
        timeout        seconds for one request; three times that for those that count messages
        time_limit     seconds for all that one method does
        Raises ConfigError.
        """
        self.timeout: float = positive_seconds(timeout, "timeout")
        self.time_limit: float = positive_seconds(time_limit, "time_limit")
        if name_servers is not None:
            options.setdefault("namesrv", name_servers)
        self.config: ClientConfig = client_config(
            options, config, ("timeout", "time_limit", "config"))
        super().__init__(
            _Instance(self.config, heartbeat=dict, masters_only=True), type(self).__name__)

    async def _start(self) -> None:
        """Connections are made when first needed."""

    async def _stop(self, timeout: float) -> None:
        """Nothing is under way that a broker should hear of."""

    def check_running(self) -> None:
        """Raises ClosedError unless it is started, in this process, and not closed."""
        self._life.check()

    # -- requests ---------------------------------------------------------------------------------

    async def _ask(
        self, address: str, code: RequestCode, ext: Ext | None = None, body: bytes = b"", *,
        accept: Iterable[int] = SUCCESS, slow: bool = False, topic: str = "",
    ) -> Command:
        """The answer to one request; raises BrokerError for a code that is not in `accept`."""
        timeout = self.timeout * SLOW_FACTOR if slow else self.timeout
        answer = await self._instance.pool.invoke(
            address, client_request(code, ext or {}, body), timeout=timeout)
        if answer.code not in accept:
            raise broker_error(answer.code, answer.remark, address, topic=topic)
        return answer

    async def _ask_name_server(
        self, code: RequestCode, ext: Ext | None = None, *, accept: Iterable[int] = SUCCESS,
    ) -> Command:
        """The answer of one of the name servers; raises like `_ask`, NoRouteError without any."""
        answer = await self._instance.name_servers.invoke(
            client_request(code, ext or {}), timeout=self.timeout)
        if answer.code not in accept:
            raise broker_error(answer.code, answer.remark, "name server")
        return answer

    def _all_name_servers(self) -> list[Target]:
        addresses = self._instance.name_servers.addresses
        if not addresses:
            raise NoRouteError("no name server address: give namesrv", CODE_NO_NAME_SERVER)
        return [Target(address, address) for address in addresses]

    # -- addresses ---------------------------------------------------------------------------------

    async def _route(self, topic: str) -> TopicRoute | None:
        return await self._instance.name_servers.route(topic, timeout=self.timeout)

    async def _known_route(self, topic: str) -> TopicRoute:
        route = await self._route(topic)
        if route is None:
            raise NoRouteError(f"no name server knows topic {topic}",
                               int(ResponseCode.TOPIC_NOT_EXIST), topic=topic)
        return route

    async def _brokers(self) -> list[BrokerData]:
        """All brokers, by name."""
        answer = await self._ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
        table = document(answer, "name server").object("brokerAddrTable").members
        return sorted((decode_broker_data(value) for value in table.values()),
                      key=lambda broker: broker.broker_name)

    async def _readers(self, topic: str) -> list[Target]:
        """One of each broker name that has the topic; NoRouteError when no name server knows it."""
        return _some(_one_of_each((await self._known_route(topic)).brokers), f"topic {topic}")

    async def _group_readers(self, group: str) -> list[Target]:
        """Brokers that may know a group: those of its retry topic, else all."""
        route = await self._route(f"%RETRY%{group}")
        found = _one_of_each(await self._brokers() if route is None else route.brokers)
        return _some(found, f"group {group}")

    async def _address(self, broker: str, parameter: str = "broker") -> Target:
        """A broker given as `host:port`, or by its name: then its master, else any."""
        if arguments.is_address(arguments.text(broker, parameter)):
            return Target(broker, broker)
        found = [data for data in await self._brokers() if data.broker_name == broker]
        if not found or not found[0].addresses:
            raise NoRouteError(f"{parameter} {broker!r:.120}: no broker of that name is known",
                               CODE_BROKER_NOT_FOUND)
        return _one_of_each(found)[0]

    async def _masters(self, broker: str | None, cluster: str | None) -> list[Target]:
        """Where to write: one broker, the masters of a cluster, or all there are."""
        if broker is not None and cluster is not None:
            raise ConfigError("cluster: expected either a broker or a cluster, found both")
        if broker is not None:
            return [await self._address(broker)]
        if cluster is not None:
            arguments.text(cluster, "cluster")
        found = [Target(data.broker_name, data.addresses[MASTER_ID])
                 for data in await self._brokers()
                 if MASTER_ID in data.addresses and cluster in (None, data.cluster)]
        if not found:
            where = "any cluster" if cluster is None else f"cluster {cluster}"
            raise NoRouteError(f"no master of {where} is known", CODE_BROKER_NOT_FOUND)
        return found

    # -- loops ------------------------------------------------------------------------------------

    async def _each(
        self, targets: Sequence[Target], work: Callable[[Target], Awaitable[R]],
    ) -> tuple[list[tuple[Target, R]], tuple[Unreachable, ...]]:
        """Do the same with each, some at a time: what they answered, and who did not."""
        places = asyncio.Semaphore(AT_ONCE_MAX)
        answers: list[tuple[Target, R]] = []
        failures: list[Unreachable] = []

        async def one(target: Target) -> None:
            async with places:
                try:
                    answers.append((target, await work(target)))
                except RocketMQError as error:
                    failures.append(Unreachable(target.name, target.address, error))
                except (BodyError, RecordError) as error:
                    unread = ClientError(f"answer of {target.address}: {error}",
                                         broker=target.address)
                    failures.append(Unreachable(target.name, target.address, unread))

        async with asyncio.TaskGroup() as tasks:
            for target in targets:
                tasks.create_task(one(target))
        order = {target: index for index, target in enumerate(targets)}
        answers.sort(key=lambda answer: order[answer[0]])
        return answers, tuple(sorted(failures, key=lambda failure: (failure.name, failure.address)))

    async def _read(
        self, what: str, targets: Sequence[Target], work: Callable[[Target], Awaitable[R]],
    ) -> tuple[list[tuple[Target, R]], tuple[Unreachable, ...]]:
        """Like `_each`; raises when no broker answered."""
        answers, failures = await self._each(targets, work)
        if failures and not answers:
            raise _error(what, failures, [])
        return answers, failures

    async def _write(
        self, what: str, targets: Sequence[Target], work: Callable[[Target], Awaitable[R]],
    ) -> list[tuple[Target, R]]:
        """Like `_each`; raises when anybody failed, after all were tried."""
        answers, failures = await self._each(targets, work)
        if failures:
            raise _error(what, failures, [target.name for target, _ in answers])
        return answers


async def some_at_once(
    items: Iterable[T], work: Callable[[T], Awaitable[R]], count: int = AT_ONCE_MAX,
) -> list[R]:
    """The results of `work` for all items, in order; the first error ends the call."""
    numbered = enumerate(items)
    results: dict[int, R] = {}

    async def take() -> None:
        for number, item in numbered:
            results[number] = await work(item)

    tasks = [asyncio.create_task(take()) for _ in range(count)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
    return [results[number] for number in sorted(results)]


def _error(what: str, failures: Sequence[Unreachable], done: Sequence[str]) -> RocketMQError:
    if len(failures) == 1 and not done:
        return failures[0].error
    return AdminError(what, failures, done)


def _some(targets: list[Target], what: str) -> list[Target]:
    if not targets:
        raise NoRouteError(f"no broker of {what} is known", CODE_BROKER_NOT_FOUND)
    return targets


def _one_of_each(brokers: Iterable[BrokerData]) -> list[Target]:
    """The master of each broker name, else a random one of its brokers."""
    found = []
    for data in brokers:
        if data.addresses:
            address = data.addresses.get(MASTER_ID) or random.choice([*data.addresses.values()])
            found.append(Target(data.broker_name, address))
    return sorted(found, key=lambda target: target.name)


def now() -> datetime:
    """The time, with its zone."""
    return datetime.now(UTC)


def now_ms() -> int:
    return round(now().timestamp() * 1000)
