"""
The ports of the broker's rules to the rest of the process: the store, the shared tables, the
connections, the appender, the name servers. The coordinator gives real ones, tests give fakes.

All are called from one thread. None may block for longer than a disk read.
"""
from __future__ import annotations

from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

from mqcore.acl.rules import Rules
from mqcore.broker.registration import BrokerRegistration
from mqcore.broker.settings.model import Settings
from mqcore.broker.tables.filters import FilterData
from mqcore.broker.tables.groups import GroupConfig
from mqcore.layout import PutStatus as native
from mqcore.wire.tags import Subscription
from mqcore.wire.topics import TopicConfig


class ConsumeQueueEntry(NamedTuple):
    """One consume queue entry (store.md 3.1)."""

    position: int                # commit log position of the record
    size: int                    # bytes of the record
    tag_code: int                # Java string hash of the tags; a delivery time in the delay topic


class KeyMatches(Protocol):
    """The key index's entries for one key."""

    @property
    def positions(self) -> tuple[int, ...]:
        """Commit log positions of records whose key has the same hash, newest first, each once."""
        ...

    @property
    def oldest_ms(self) -> int:
        """Index time (whole seconds) of the last entry, ms since 1970."""
        ...

    @property
    def last_time_ms(self) -> int:
        """Store time of the newest entry of the whole index, 0 when it is empty."""
        ...

    @property
    def last_position(self) -> int:
        """Its commit log position."""
        ...


class StoreReader(Protocol):
    """Reads of the store up to the dispatched position."""

    def queue_range(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        """(first offset, next offset) of a queue; None when it has no consume queue at all."""
        ...

    def log_range(self) -> tuple[int, int]:
        """(first position, next position) of the commit log, in bytes."""
        ...

    def entry(self, topic: str, queue_id: int, offset: int) -> ConsumeQueueEntry | None:
        """The entry at a queue offset; None outside the range."""
        ...

    def record(self, position: int) -> bytes | None:
        """The whole record that starts at `position`; None when there is none (or a blank)."""
        ...

    def named_record(self, position: int) -> bytes | None:
        """The same where a peer names the position: None also for what only looks like one."""
        ...

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """When the message at a queue offset was stored, ms since 1970; -1 when there is none."""
        ...

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """The queue offset nearest to a store time (broker.md 10.2, store.md 3.5); 0 when empty."""
        ...

    def in_memory(self, position: int) -> bool:
        """False when a record lies too far behind the log's end: the 40 % rule (broker.md 6.2)."""
        ...


    def find_key(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int
    ) -> Generator[None, None, KeyMatches]:
        """
        The key index's answer (store.md 4.4), with pauses: at most count_max records, stored from
        begin_ms to end_ms. Other keys with the same hash are among them.
        """
        ...


class Background(Protocol):
    """Work that continues beside the requests."""

    def run(self, steps: Iterator[None], done: Callable[[OSError | None], None]) -> None:
        """
        Run `steps` to their end in another thread, with a breath after each; then call `done` from
        this one, with the error that ended them if there was one.
        """
        ...


class AtOnce:
    """For tests, and for callers without other work: all steps before `run` returns."""

    def run(self, steps: Iterator[None], done: Callable[[OSError | None], None]) -> None:
        try:
            for _ in steps:
                continue
        except OSError as error:
            done(error)
        else:
            done(None)


class QueueGrowth(NamedTuple):
    """Messages that became readable in a queue."""

    topic: str
    queue_id: int
    messages: int
    bytes: int                   # of their records
    calls: int                   # requests that stored them


class PullAdvance(NamedTuple):
    """Pulls of a group that found messages in a queue."""

    topic: str
    queue_id: int
    group: str
    pulls: int
    messages: int
    bytes: int                   # of their records
    took_ms: int                 # from request, or arrival of a message, to answer, summed up


class LastPull(NamedTuple):
    """The newest pull of a group that found messages in a queue."""

    topic: str
    queue_id: int
    group: str
    behind_bytes: int            # from its last message to the log's end
    behind_ms: int               # from that message's store time
    at_ms: int


class Pulls(Protocol):
    """Messages that the serving processes handed out, by queue and group."""

    def advances(self) -> Iterable[PullAdvance]:
        """
        Groups that have advanced since the last call; the first call finds everything at rest.
        """
        ...

    def last(self, behind_more_than_bytes: int = -1) -> Iterable[LastPull]:
        """Of each queue and group that was pulled in this run; or those that were so far behind."""
        ...


class Queues(Protocol):
    """The queue table as a whole, and what goes from the store by request."""

    def all(self) -> list[tuple[str, int, int]]:
        """(topic, queue id, next offset as consumers see it) of queues that had a message."""
        ...

    def some(self) -> Iterator[list[tuple[str, int, int]]]:
        """The same, a few at a time: for a walk in turns."""
        ...

    def ends(self) -> list[tuple[str, int, int]]:
        """The same with the offset of the next message to be stored, shown to consumers or not."""
        ...

    def end(self, topic: str, queue_id: int) -> int:
        """That of one queue; 0: it never had a message."""
        ...

    @property
    def alone(self) -> bool:
        """Whether too few slaves are there to acknowledge anything as a "sync-master"."""
        ...

    @property
    def taking_over(self) -> bool:
        """
        Whether consumers do not see all yet that an elected master began with (leadership FO10).
        """
        ...

    def growth(self) -> Iterable[QueueGrowth]:
        """
        New entries of each queue since the last call; a queue that rests is left out.

        The first call finds everything at rest. A queue that was removed meanwhile starts at 0.
        """
        ...

    def remove(
        self, queues: Sequence[tuple[str, int]], done: Callable[[str], None],
        unless: Callable[[str], bool] | None = None,
    ) -> Generator[None, None, None]:
        """
        Remove queues by (topic, queue id), with pauses: the next message of each gets offset 0.
        Those of topics for which `unless` says so at that moment stay; without it all go at once.

        done  called once, later: with "" when they are gone, here and, where sends wait for
              others, there; else with the reason
        """
        ...

    def delete_expired_files(self) -> None:
        """Delete commit log files that are older than the reserved time, whatever the hour."""
        ...


class Tables(Protocol):
    """
    The copies in shared memory that serving processes read. Every call may be repeated.

    publish_* raise config_table.TablesFull when there is no room for a new name.
    """

    def publish_settings(self, settings: Settings) -> None:
        """The settings of the running broker, for every other process."""
        ...

    def publish_access(self, rules: Rules) -> None:
        """Other access rules, from the next request on; only where access control is on."""
        ...

    def set_permission(self, *, readable: bool, writable: bool) -> None:
        """The broker's own permission, for what is published from now on."""
        ...

    def publish_topic(self, topic: TopicConfig, unsaved: bool = False) -> None:
        """A topic is new or has changed; unsaved: sends to it ask, as no file has it yet."""
        ...

    def remove_topic(self, name: str) -> None: ...

    def publish_group(self, group: GroupConfig) -> None:
        """A group's config is new or has changed."""
        ...

    def remove_group(self, name: str) -> None: ...

    def publish_subscription(
        self, group: str, topic: str, subscription: Subscription | None, message_model: str
    ) -> None:
        """
        An online group's subscription of a topic is new or has changed; None: it is gone.

        message_model is that of the whole group, "CLUSTERING" or "BROADCASTING".
        """
        ...

    def publish_filter(self, data: FilterData, now_ms: int) -> None:
        """A group's SQL92 filter is new or has changed."""
        ...

    def remove_filter(self, group: str, topic: str) -> None: ...

    def filters(self) -> list[tuple[str, str]]:
        """(group, topic) of all filters that are shown, an earlier coordinator's too."""
        ...

    def publish_request(
        self, kind: str, expression: str, now_ms: int, *, program: bytes | None,
        codes: Collection[int] | None,
    ) -> None:
        """An expression that a pull brought: a program or tag codes; neither: all passes."""
        ...


class Connections(Protocol):
    """The connections of all serving processes; bits 48 to 55 of an id are the serving index."""

    def send(self, connection: int, frame: bytes) -> None:
        """Queue one whole frame, with its length word; an id that is gone is ignored."""
        ...

    def offer(self, connection: int, frame: bytes) -> None:
        """As `send`, but the frame is dropped when much that was sent before is not read."""
        ...

    def close(self, connection: int) -> None: ...


class AppendStatus(IntEnum):
    """The outcome of an append (PutStatus of mqcore/layout.pxd); named as stock names them."""

    PUT_OK = native.PUT_OK
    FLUSH_DISK_TIMEOUT = native.PUT_FLUSH_TIMEOUT      # stored, but not known on disk in time
    CREATE_MAPEDFILE_FAILED = native.PUT_CREATE_FILE_FAILED
    MESSAGE_ILLEGAL = native.PUT_MESSAGE_ILLEGAL
    SERVICE_NOT_AVAILABLE = native.PUT_SERVICE_NOT_AVAILABLE
    UNKNOWN_ERROR = native.PUT_UNKNOWN_ERROR
    WRITER_RESTARTED = native.PUT_WRITER_RESTARTED     # whether it is stored is not known
    QUEUE_TABLE_FULL = native.PUT_QUEUE_TABLE_FULL
    POOL_EXHAUSTED = native.PUT_POOL_EXHAUSTED         # transient-pool: no room
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = native.PUT_LIGHT_QUEUES_FULL
    FLUSH_SLAVE_TIMEOUT = native.PUT_SLAVE_TIMEOUT     # stored, but others had it not in time
    SLAVE_NOT_AVAILABLE = native.PUT_SLAVE_NOT_AVAILABLE        # stored, and no slave is there
    DISK_FAILED = native.PUT_DISK_FAILED               # whether it is stored is not known

    @classmethod
    def _missing_(cls, value: object) -> AppendStatus:
        return cls.UNKNOWN_ERROR

    @property
    def stored(self) -> bool:
        return self in (AppendStatus.PUT_OK, AppendStatus.FLUSH_DISK_TIMEOUT,
                        AppendStatus.FLUSH_SLAVE_TIMEOUT, AppendStatus.SLAVE_NOT_AVAILABLE)


class Put(NamedTuple):
    """The end of an append; the numbers count when it is stored."""

    status: AppendStatus
    queue_offset: int = 0
    position: int = 0            # of the record in the commit log, bytes


class Appender(Protocol):
    """Stores messages of the broker's own making, as the writer does producers'."""

    def append(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: Mapping[str, str],
        *,
        born_ms: int,
        flag: int = 0,
        sys_flag: int = 0,
        reconsume_times: int = 0,
        born_host: tuple[str, int] | None = None,
        store_host: tuple[str, int] | None = None,
        waits: bool = False,
        done: Callable[[Put], None] | None = None,
    ) -> None:
        """
        Store one message; the property CLUSTER is added where it is missing.

        born_host, store_host  (ip, port) of a message that another host made or stored first
        waits                  settled only when the flush mode's promise is kept
        done                   called exactly once when it is settled, maybe before this returns;
                               without it, a message that is not stored is logged
        """
        ...


class Figures(Protocol):
    """Counts and times of the processes, for GET_BROKER_RUNTIME_INFO (remoting.md 5.5)."""

    def runtime(self) -> Mapping[str, str]:
        """Keys as stock names them (putTps, getTransferedTps, ...); only what is really known."""
        ...

    def standing(self) -> Mapping[str, Any]:
        """Processes, positions of the log, latencies (mqcore/http/standing.py)."""
        ...

    def sample(self) -> None:
        """To be called about once a second: rates are those since earlier calls."""
        ...

    def totals(self) -> tuple[int, int]:
        """Messages stored and messages handed out, since the start; they only grow."""
        ...

    def delay_offsets(self) -> Mapping[int, int] | None:
        """Delay level -> next queue offset to be delivered; None while unknown."""
        ...

    def timed(self, now_ms: int) -> Mapping[str, Any]:
        """Messages that wait for a time of delivery, by topic and hour (shm.delays)."""
        ...

    def timer_cleared(self) -> tuple[int, int]:
        """
        Messages whose recall has a smaller queue offset than the first number are in the log,
        before the second one, which is its end, or will never be.
        """
        ...


class Registrar(Protocol):
    """Sends REGISTER_BROKER (103) to every name server at once (broker.md 1.5)."""

    def register(
        self,
        registration: BrokerRegistration,
        *,
        one_way: bool,
        done: Callable[[], None] | None = None,
    ) -> None:
        """
        Start a registration and return.

        done  called exactly once when all have answered or register_timeout_ms has passed (also
              when there is no name server at all); it may be called before `register` returns.
        """
        ...
