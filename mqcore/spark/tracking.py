"""
What a stream has done, where operators look for it: a group's offsets on the broker, and its lag.

Spark tells a source that a batch is done when the next one begins, and never of the last one. A
listener hears of each at once.
"""
from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery, StreamingQueryListener

from mqcore.client.core.options import check_group
from mqcore.client.errors import RocketMQError
from mqcore.client.message import MessageQueue
from mqcore.spark.options import ROCKETMQ, STREAM, read_options
from mqcore.spark.topics.catalog import Offsets, catalog_of
from mqcore.spark.topics.positions import from_checkpoint, nested

ROWS = "mqcoreRows"                 # an observation of a query that counts `rows` by itself

log = logging.getLogger("mqcore.spark")


@dataclass(frozen=True, slots=True)
class Progress:
    """
    One batch of a query, of the sources that are ours.

    query, batch  its id and the batch's number
    rows          that the batch had
    offsets       behind the last message read, by queue
    lag           messages of each queue that were not read yet; without queues whose end is not
                  known
    """

    query: str
    batch: int
    rows: int
    offsets: Offsets
    lag: Offsets

    @property
    def total_lag(self) -> int | None:
        """Of all queues; None when the end of one is not known."""
        return sum(self.lag.values()) if self.lag.keys() >= self.offsets.keys() else None

    def as_json(self) -> dict[str, Any]:
        return {"query": self.query, "batch": self.batch, "rows": self.rows,
                "lag": self.total_lag, "lagByQueue": nested(self.lag),
                "offsets": nested(self.offsets)}


class Tracker(StreamingQueryListener):
    """Hears of batches; `stop` ends that."""

    def __init__(
        self, session: SparkSession, options: dict[str, str], query: str | None,
        on_progress: Callable[[Progress], object] | None,
    ) -> None:
        """Raises OptionError; ConfigError for a group that cannot be."""
        self._options = read_options(options, ROCKETMQ, STREAM, "track")
        self._group = self._options["group"]
        if self._group is not None:
            check_group(self._group)
        self._session = session
        self._query = query
        self._on_progress = on_progress
        self._heard = threading.Lock()
        self._ended = threading.Condition()
        self._gone: set[str] = set()
        self._owed: Offsets = {}
        self.last: Progress | None = None

    def stop(self) -> None:
        """Hear of nothing more."""
        self._session.streams.removeListener(self)

    def wait(self, query: StreamingQuery, timeout: float = 30.0) -> bool:
        """Wait until all of a query that has ended was heard; whether it was, in time."""
        with self._ended:
            return self._ended.wait_for(lambda: str(query.id) in self._gone, timeout)

    def onQueryStarted(self, event: Any) -> None:
        """Nothing was read yet."""

    def onQueryIdle(self, event: Any) -> None:
        with self._heard:
            self._commit({})

    def onQueryProgress(self, event: Any) -> None:
        with self._heard:
            self._hear(event.progress)

    def catch_up(self, query: StreamingQuery) -> None:
        """Hear of the last batch of a query that began, or ended, before this was listening."""
        with self._heard:
            progress = query.lastProgress
            if progress is not None and (self.last is None
                                         or self.last.batch < progress["batchId"]):
                self._hear(progress)
        if not query.isActive:
            self._end(str(query.id))

    def _hear(self, progress: Any) -> None:
        if self._query not in (None, str(progress.id)):
            return
        offsets: Offsets = {}
        latest: Offsets = {}
        for source in progress.sources:
            for queue, offset in offsets_of(source.endOffset).items():
                offsets[queue] = min(offset, offsets.get(queue, offset))    # of several sources
            latest |= offsets_of(source.latestOffset)
        if not offsets:
            return
        latest |= self._ends([queue for queue in offsets if queue not in latest])
        lag = {queue: max(0, latest[queue] - offset) for queue, offset in offsets.items()
               if queue in latest}
        counted = (progress.observedMetrics or {}).get(ROWS)
        rows = progress.numInputRows if counted is None else counted["rows"] or 0
        self.last = Progress(str(progress.id), progress.batchId, rows, offsets, lag)
        log.info("%s", json.dumps(self.last.as_json()))
        self._commit(offsets)
        if self._on_progress is not None:
            self._on_progress(self.last)

    def _ends(self, queues: list[MessageQueue]) -> Offsets:
        """
        The ends of queues that Spark did not say: of a batch that is done again after a restart it
        has no end. Queues of a broker that does not answer are left out.
        """
        if not queues:
            return {}
        try:
            with catalog_of(self._options) as catalog:
                for topic in {queue.topic for queue in queues}:
                    catalog.queues(topic)
                ends, away = catalog.known_ends(queues)
        except RocketMQError as error:
            log.warning("the lag is not known: %s", error)
            return {}
        for name, why in away.items():
            log.warning("the lag of broker %s is not known: %s", name, why)
        return ends

    def onQueryTerminated(self, event: Any) -> None:
        if self._query in (None, str(event.id)):
            with self._heard:
                self._commit({})
        self._end(str(event.id))

    def _end(self, query: str) -> None:
        with self._ended:
            self._gone.add(query)
            self._ended.notify_all()

    def _commit(self, offsets: dict[MessageQueue, int]) -> None:
        """Tell brokers; what fails is told with the next batch, or at the end."""
        if self._group is None:
            return
        self._owed |= offsets
        if not self._owed:
            return
        try:
            with catalog_of(self._options) as catalog:
                catalog.commit(self._group, self._owed)
            self._owed = {}
        except RocketMQError as error:
            log.warning("offsets of group %s wait for the next batch: %s", self._group, error)


def track(
    target: SparkSession | StreamingQuery, *,
    on_progress: Callable[[Progress], object] | None = None, **options: str,
) -> Tracker:
    """
    Commit a group's offsets on the brokers after each batch of streams from `rocketmq`.

    target       a query, or a session: all of its queries
    on_progress  called with the Progress of each batch, in the listener's thread
    options      as of the source: nameServer, rocketmq.*, group (without it nothing is committed)
    Raises OptionError.
    """
    session = target if isinstance(target, SparkSession) else SparkSession.active()
    query = None if isinstance(target, SparkSession) else str(target.id)
    tracker = Tracker(session, options, query, on_progress)
    session.streams.addListener(tracker)
    if not isinstance(target, SparkSession):
        tracker.catch_up(target)
    return tracker


def offsets_of(text: str | None) -> Offsets:
    """The offsets of one of our sources; none of another's."""
    try:
        said = json.loads(text or "")
    except ValueError:
        return {}
    if not isinstance(said, dict) or set(said) != {"offsets", "v"}:
        return {}
    return from_checkpoint(said)
