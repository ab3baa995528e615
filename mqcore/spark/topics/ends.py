"""How far a stream's queues go: asked for now and then, and borne with while brokers are away."""
from __future__ import annotations

import logging
import time

from mqcore.client.errors import RocketMQError
from mqcore.client.message import MessageQueue
from mqcore.spark.errors import SparkSourceError
from mqcore.spark.topics.catalog import Catalog, Offsets, catalog_of
from mqcore.spark.topics.topic_read import TopicRead

PAUSE_S = 0.2
AGAIN_S = 2.0                           # after which a broker that is away is asked again

log = logging.getLogger("mqcore.spark")


class Ends:
    """
    The ends of all queues of a stream.

    A queue that cannot be asked keeps its last known end, and others go on; when that lasts longer
    than the option `timeout`, it is an error, or a line in the log without `failOnDataLoss`.
    """

    def __init__(self, reading: TopicRead) -> None:
        self._reading = reading
        self._known: Offsets = {}
        self._asked_s: float | None = None
        self._failing_since: float | None = None
        self._away: dict[str, tuple[float, str]] = {}       # broker -> when to ask again, and why

    def latest(self) -> Offsets:
        """The ends, at most `pollInterval` old. Raises SparkSourceError."""
        now = time.monotonic()
        if self._asked_s is None or now - self._asked_s >= self._reading.options["pollInterval"]:
            self._ask()
            self._asked_s = time.monotonic()
        return self._known

    def _ask(self) -> None:
        while True:
            try:
                with catalog_of(self._reading.options) as catalog:
                    trouble = self._ask_catalog(catalog)
            except RocketMQError as error:
                trouble = str(error)
            if trouble is None:
                self._failing_since = None
                return
            now = time.monotonic()
            self._failing_since = self._failing_since or now
            if now - self._failing_since >= self._reading.options["timeout"]:
                if self._reading.fails or not self._known:
                    raise SparkSourceError(f"reading {self._reading.subject}: {trouble}") from None
                log.warning("%s; the stream waits", trouble)
                return
            if self._known:
                return
            time.sleep(PAUSE_S)

    def _ask_catalog(self, catalog: Catalog) -> str | None:
        """Ask for all; what is wrong, in words."""
        queues, gone = self._reading.subject.queues(catalog)
        now = time.monotonic()
        waiting = {name: why for name, (due, why) in self._away.items() if now < due}
        ends, away = catalog.known_ends(
            queue for queue in queues if queue.broker_name not in waiting)
        self._away = {name: known for name, known in self._away.items() if name in waiting} | {
            name: (time.monotonic() + AGAIN_S, str(error)) for name, error in away.items()}
        if self._known or not self._away:
            self._known = {**self._known, **ends}
        if gone:
            return (f"topic {gone[0]} has no route (any more): no name server of nameServer knows"
                    " it")
        return next((f"broker {name}: {why}" for name, (_, why) in self._away.items()), None)

    def begins(self, queues: list[MessageQueue]) -> Offsets:
        """The first offsets of queues that are new. Raises RocketMQError."""
        with catalog_of(self._reading.options) as catalog:
            return catalog.begins(queues)
