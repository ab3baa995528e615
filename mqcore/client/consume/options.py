"""Options of consumers, checked when they are given (client.md 4.1, 9.2)."""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

from mqcore.client.config import ClientConfig, ClientOptions, client_config
from mqcore.client.core.allocate import Allocate, allocate_averagely
from mqcore.client.core.offsets import ConsumeFrom
from mqcore.client.core.options import check_topic, positive_seconds, whole
from mqcore.client.core.rebalance import BYTES_MAX, COUNT_MAX, SPAN_MAX, Limits
from mqcore.client.core.redelivery import RETRIES_MAX, UNLIMITED
from mqcore.client.errors import ConfigError
from mqcore.client.produce.producer_config import TRACE_TOPIC
from mqcore.wire.tags import (
    EXPRESSION_SQL92,
    EXPRESSION_TAG,
    SUBSCRIBE_ALL,
    Subscription,
    parse_subscription,
)

HANDLER_TIMEOUT_S = 900.0
PULL_COUNT_MAX = 1_024
CONCURRENCY_MAX = 1_000
MIB = 1024 * 1024

Start = Literal["earliest", "latest"] | datetime | float
Topics = str | Iterable[str] | Mapping[str, str]


class Sql92(str):
    """A filter over properties, `Sql92("a > 5 AND region = 'eu'")`, where a str means tags."""

    __slots__ = ()


class GroupOptions(ClientOptions, total=False):
    """The options of every consumer with a group; `GroupSettings` says what they mean."""

    config: ClientConfig | None
    filter: str
    broadcast: bool
    start: Start
    max_retries: int
    handler_timeout: float
    pull_batch: int
    pull_interval: float
    allocate: Allocate
    queue_count_max: int
    queue_bytes_max: int
    queue_span_max: int
    topic_count_max: int | None
    topic_bytes_max: int | None
    offsets_folder: str | Path | None
    trace: bool
    trace_topic: str


class PushOptions(GroupOptions, total=False):
    """The options of a push consumer; `PushSettings` says what they mean."""

    concurrency: int
    batch: int
    orderly: bool
    suspend: float
    run_in_thread: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """
    filter            of all topics that name none of their own: `TagA || TagB`, or Sql92(...)
    broadcast         every member gets all messages; offsets are in a file of this machine, what
                      fails is dropped (client.md 4.18)
    start             of a group without offsets: "latest", "earliest", a datetime, or epoch
                      seconds
    max_retries       deliveries after the first one, then to the dead letters; -1 = without end
    handler_timeout   seconds that a message may be worked on: it then comes again later
    pull_batch        messages of a pull, at most; brokers have limits of their own
    pull_interval     seconds between two pulls of a queue that has messages
    allocate          the strategy that shares queues (mqcore.client.core.allocate)
    queue_count_max   unfinished messages of a queue above which it is not pulled; the same with
                      queue_bytes_max for bodies, queue_span_max for the distance of offsets
    topic_count_max   the same for all held queues together, shared out evenly; topic_bytes_max too
    offsets_folder    of broadcasting members; None: `.rocketmq_offsets` in the home folder
    trace             write what is consumed, polled or pulled to trace_topic (client.md 7.1)
    Raises ConfigError, naming the option.
    """

    filter: str = SUBSCRIBE_ALL
    broadcast: bool = False
    start: Start = "latest"
    max_retries: int = RETRIES_MAX
    handler_timeout: float = HANDLER_TIMEOUT_S
    pull_batch: int = 32
    pull_interval: float = 0.0
    allocate: Allocate = allocate_averagely
    queue_count_max: int = COUNT_MAX
    queue_bytes_max: int = BYTES_MAX
    queue_span_max: int = SPAN_MAX
    topic_count_max: int | None = None
    topic_bytes_max: int | None = None
    offsets_folder: str | Path | None = None
    trace: bool = False
    trace_topic: str = TRACE_TOPIC

    def __post_init__(self) -> None:
        start_point(self.start)
        whole(self.max_retries, "max_retries", UNLIMITED, 2**31 - 1)
        positive_seconds(self.handler_timeout, "handler_timeout")
        whole(self.pull_batch, "pull_batch", 1, PULL_COUNT_MAX)
        if self.pull_interval:
            positive_seconds(self.pull_interval, "pull_interval")
        if not callable(self.allocate):
            raise ConfigError(f"allocate {self.allocate!r}: expected a strategy")
        whole(self.queue_count_max, "queue_count_max", 1, 65_535)
        whole(self.queue_bytes_max, "queue_bytes_max", 1, 1_024 * MIB)
        whole(self.queue_span_max, "queue_span_max", 1, 65_535)
        if self.topic_count_max is not None:
            whole(self.topic_count_max, "topic_count_max", 1, 6_553_500)
        if self.topic_bytes_max is not None:
            whole(self.topic_bytes_max, "topic_bytes_max", 1, 102_400 * MIB)
        check_topic(self.trace_topic, "trace_topic")

    @property
    def limits(self) -> Limits:
        return Limits(self.queue_count_max, self.queue_bytes_max, self.queue_span_max,
                      self.topic_count_max, self.topic_bytes_max)


@dataclass(frozen=True, slots=True, kw_only=True)
class PushSettings(GroupSettings):
    """
    concurrency       listener calls at a time
    batch             messages of a call, for listeners that take a list
    orderly           one call at a time for each queue, in its order; a member locks its queues
    suspend           seconds that an orderly queue waits before a message comes again
    run_in_thread     for listeners that block: they are called in threads of their own

    With `orderly` a message that keeps failing holds up its queue until max_retries is reached, and
    one beyond handler_timeout is only warned of: no other member may get its queue.
    """

    concurrency: int = 20
    batch: int = 1
    orderly: bool = False
    suspend: float = 1.0
    run_in_thread: bool = False

    def __post_init__(self) -> None:
        GroupSettings.__post_init__(self)
        whole(self.concurrency, "concurrency", 1, CONCURRENCY_MAX)
        whole(self.batch, "batch", 1, 1_024)
        positive_seconds(self.suspend, "suspend")


S = TypeVar("S", bound=GroupSettings)


def settings_from(
    options: Mapping[str, Any], kind: type[S], defaults: Mapping[str, Any] | None = None,
) -> tuple[ClientConfig, S]:
    """A role's options parted into the client's and its own; raises ConfigError for unknown ones.

    A broadcasting member keeps its client id over restarts (client.md 1.2).
    """
    names = [field.name for field in dataclasses.fields(kind)]
    own = {**(defaults or {}), **{name: options[name] for name in names if name in options}}
    rest = {name: value for name, value in options.items()
            if name not in names and name != "config"}
    given = client_config(rest, options.get("config"), (*names, "config"))
    settings = kind(**own)
    if settings.broadcast and given.instance_name is None:
        given = dataclasses.replace(given, instance_name="DEFAULT")
    return given, settings


def start_point(start: Start) -> tuple[ConsumeFrom, int]:
    """Where to begin, and epoch ms if it is a time; raises ConfigError."""
    if start in ("earliest", "first"):      # RocketMQ: CONSUME_FROM_FIRST_OFFSET
        return ConsumeFrom.FIRST_OFFSET, 0
    if start in ("latest", "last"):
        return ConsumeFrom.LAST_OFFSET, 0
    if isinstance(start, datetime):
        return ConsumeFrom.TIMESTAMP, round(start.timestamp() * 1000)
    if isinstance(start, int | float) and not isinstance(start, bool) and start >= 0:
        return ConsumeFrom.TIMESTAMP, round(start * 1000)
    raise ConfigError(
        f'start {start!r}: expected "earliest", "latest", a datetime, or epoch seconds')


def subscriptions_of(
    topics: Topics, filter_of_all: str, wrap: Callable[[str], str], now_ms: int
) -> dict[str, Subscription]:
    """By topic as brokers know it; raises ConfigError for a bad topic or expression."""
    if isinstance(topics, str):
        topics = [topics]
    table = dict(topics) if isinstance(topics, Mapping) else dict.fromkeys(topics, filter_of_all)
    return {wrap(topic): subscription(wrap(check_topic(topic)), expression, now_ms)
            for topic, expression in table.items()}


def subscription(topic: str, expression: str, now_ms: int) -> Subscription:
    """The subscription that one topic's filter means; raises ConfigError."""
    kind = EXPRESSION_SQL92 if isinstance(expression, Sql92) else EXPRESSION_TAG
    try:
        return parse_subscription(topic, expression, now_ms, kind)
    except (ValueError, AttributeError) as error:
        raise ConfigError(f"filter {expression!r} of {topic}: {error}") from error
