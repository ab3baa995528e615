"""
The sink `rocketmq`: rows to topics, in batches and streams.

At least once: a task ends when every message of it is stored. Effectively once: the id of a message
is made of query, batch, task and row. A task, which may be a repetition, looks for its first
requests by their ids, and sends what is not there.
"""
from __future__ import annotations

import hashlib
import logging
import secrets
import time
import uuid
from collections.abc import Iterator
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from mqcore.client.errors import RocketMQError
from mqcore.spark.errors import OptionError, SparkSourceError, one_line
from mqcore.spark.options import Options, client_config
from mqcore.spark.topics.catalog import Catalog, catalog_of
from mqcore.spark.topics.copies import Copies, check_columns, is_alone, plain
from mqcore.spark.topics.outbox import Chunk, Outbox
from mqcore.spark.topics.rows import Group, Grouping, checked_columns, messages
from mqcore.wire.ids import month_start_ms
from mqcore.wire.properties import UNIQ_KEY
from mqcore.wire.records import BODY_SIZE_MAX, decode_batch

GROUP = "SPARK_PRODUCER"
EFFECTIVELY_ONCE = "effectively-once"
PREFIX_BYTES = 10
INDEX_S = 0.2                       # in which a broker indexes what a try before has stored

log = logging.getLogger("mqcore.spark")


class Sent(WriterCommitMessage):
    """What a task did: messages stored by it, requests, and messages that were there already."""

    def __init__(self, rows: int, requests: int, found: int) -> None:
        self.rows = rows
        self.requests = requests
        self.found = found


class Identity:
    """The ids of a task's messages: 20 digits of the task, 12 of the message."""

    def __init__(self, prefix: bytes, number: int) -> None:
        self.prefix = prefix
        self.number = number

    @classmethod
    def of_task(cls, *parts: object) -> Identity:
        """The same for the same task of the same batch of the same query."""
        text = "/".join(map(str, parts)).encode()
        return cls(hashlib.sha256(text).digest()[:PREFIX_BYTES].hex().upper().encode(), 0)

    @classmethod
    def fresh(cls) -> Identity:
        """One that nobody else has; its second part begins as those of other clients: the time."""
        now_ms = time.time_ns() // 1_000_000
        return cls(secrets.token_hex(PREFIX_BYTES).upper().encode(),
                   (now_ms - month_start_ms(now_ms)) << 16)

    def key(self, number: int) -> str:
        """The id of one message."""
        return f"{self.prefix.decode()}{number:012X}"


class Sink:
    """What every task of a write does."""

    def __init__(self, options: Options, schema: Any) -> None:
        """Raises OptionError."""
        client_config(options)
        self._options = options
        self._columns = checked_columns(schema, options["topic"])
        # of a batch; streams have ids of their own
        self._job = options["identity"] or uuid.uuid4().hex
        if options["identity"] and options["deliveryGuarantee"] != EFFECTIVELY_ONCE:
            raise OptionError("identity: expected deliveryGuarantee effectively-once, too")
        if options["copies"]:
            check_columns(schema)

    @one_line
    def write(self, batches: Iterator[Any]) -> WriterCommitMessage:
        """Send the rows of a task; all are stored when it returns. Raises SparkSourceError."""
        options = self._options
        once = options["deliveryGuarantee"] == EFFECTIVELY_ONCE
        context = TaskContext.get()
        part, attempt = (context.partitionId(), context.attemptNumber()) if context else (0, 0)
        identity = (Identity.of_task(*self._batch(context), part) if once else Identity.fresh())
        if once and attempt > 0:
            time.sleep(INDEX_S)
        try:
            with catalog_of(options) as catalog:
                copies = Copies(options, catalog, attempt) if options["copies"] else None
                task = _Task(options, self._columns, catalog, identity, once=once, copies=copies)
                return task.run(batches)
        except RocketMQError as error:
            raise SparkSourceError(f"writing: {error}") from None


    def _batch(self, context: Any) -> tuple[object, ...]:
        """
        What names a batch: this write alone, or the option `identity`. Within `foreachBatch` the
        context has a query's id, too, and that is of all writes there.
        """
        return self._job, None


class _Task:
    def __init__(
        self, options: Options, columns: dict[str, str], catalog: Catalog, identity: Identity, *,
        once: bool, copies: Copies | None = None,
    ) -> None:
        self._options = options
        self._columns = columns
        self._catalog = catalog
        self._identity = identity
        self._copies = copies
        self._window = options["sendsInFlight"]
        self._looks_until = self._window if once and copies is None else 0  # may be stored
        self._outbox = Outbox(
            client_config(options), catalog, catalog.wrap(options["group"] or GROUP),
            in_flight=self._window, retries=options["retries"], timeout=options["timeout"],
            reads_back=once or copies is not None,
            look=None if copies is None else copies.is_stored)
        self._chunks = 0
        self._rows = 0
        self._found = 0
        self._begun = time.monotonic()

    def run(self, batches: Iterator[Any]) -> Sent:
        grouping = Grouping(self._columns, self._options["topic"], self._queues)
        try:
            for batch in batches:
                for group in grouping.groups(batch):
                    if self._copies is None:
                        self._send(group)
                    else:
                        self._copy(group, self._copies)
            self._outbox.finish()
        finally:
            self._outbox.close()
        return Sent(self._rows - self._found, self._outbox.requests, self._found)

    def _queues(self, topic: str) -> list[Any]:
        return self._catalog.queues_to_write(self._catalog.wrap(topic))

    def _send(self, group: Group) -> None:
        batch = group.batch
        bodies = batch.column(self._columns["body"])
        if bodies.null_count:
            if self._options["nullBodies"] == "fail":
                raise SparkSourceError(
                    f"{bodies.null_count} of {batch.num_rows} rows have no body, as of messages"
                    " that nobody can decompress, and brokers take none without: nullBodies=skip"
                    " (replay: --broken skip) leaves them out")
            batch = batch.filter(bodies.is_valid())
        rows = messages(batch, self._columns)
        count_max = 1 if group.delay else self._options["sendBatchRows"]
        at = 0
        topic = self._catalog.wrap(group.topic)
        while at < rows.count:
            number = self._identity.number
            body, end = rows.encode(at, count_max, self._options["sendBatchBytes"],
                                    self._identity.prefix, number)
            if len(body) > BODY_SIZE_MAX:
                raise SparkSourceError(f"a message of {len(body)} bytes: expected at most"
                                       f" {BODY_SIZE_MAX}")
            count = end - at
            chunk = Chunk(self._chunks, topic, body, count, self._identity.key(number),
                          self._identity.key(number + count - 1), group.queue)
            if group.delay:
                _alone(chunk, group.delay)
            self._submit(chunk)
            self._identity.number += count
            at = end

    def _copy(self, group: Group, copies: Copies) -> None:
        """Send what a queue does not have yet, as it is."""
        rest = plain(copies.rest(group))
        there = group.batch.num_rows - rest.batch.num_rows
        self._rows += there
        self._found += there
        columns = {name: column for name, column in self._columns.items()
                   if name in ("body", "properties", "flag")}
        rows = messages(rest.batch, columns, verbatim=True)
        topic = self._catalog.wrap(group.topic)
        count_max = 1 if is_alone(topic) else self._options["sendBatchRows"]
        for begin, stop in copies.runs(rest.batch):
            at = begin
            while at < stop:
                body, end = rows.encode(at, min(count_max, stop - at),
                                        self._options["sendBatchBytes"], b"", 0)
                chunk = Chunk(self._chunks, topic, body, end - at, "", "", group.queue)
                copies.mark(chunk, rest.batch, at, end)
                self._submit(chunk)
                at = end

    def _submit(self, chunk: Chunk) -> None:
        self._chunks += 1
        self._rows += chunk.count
        if chunk.number < self._looks_until and self._outbox.stored(chunk):
            self._found += chunk.count
            self._looks_until = chunk.number + 1 + self._window
            return
        self._pace(chunk.count)
        self._outbox.submit(chunk)

    def _pace(self, count: int) -> None:
        """Wait until so many more rows are within the rate."""
        rate = self._options["rowsPerSecond"]
        if rate is not None:
            due = self._begun + (self._rows - self._found - count) / rate
            time.sleep(max(0.0, due - time.monotonic()))


def _alone(chunk: Chunk, delay: tuple[str, str]) -> None:
    """Make a chunk of one message a send of its own: batches cannot be delayed."""
    item = decode_batch(chunk.body)[0]
    chunk.body = item.body
    chunk.flag = item.flag
    chunk.properties = {**item.properties, UNIQ_KEY: chunk.first, delay[0]: delay[1]}


class TopicWriter(Sink, DataSourceArrowWriter):
    """Writes a batch."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _say("wrote", messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _say("gave up; what tasks that ended have stored stays:", messages)


class TopicStreamWriter(Sink, DataSourceStreamArrowWriter):
    """Writes micro-batches."""

    def _batch(self, context: Any) -> tuple[object, ...]:
        if context is None:
            return super()._batch(context)
        return (context.getLocalProperty("sql.streaming.queryId") or self._job,
                context.getLocalProperty("streaming.sql.batchId"))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _say(f"batch {batchId}:", messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _say(f"batch {batchId} failed; what tasks that ended have stored stays:", messages)


def _say(what: str, messages: list[WriterCommitMessage | None]) -> None:
    sent = [one for one in messages if isinstance(one, Sent)]
    log.info("%s %d messages in %d requests; %d were there already", what,
             sum(one.rows for one in sent), sum(one.requests for one in sent),
             sum(one.found for one in sent))


def refuse_overwrite(overwrite: bool) -> None:
    """Topics only grow. Raises OptionError."""
    if overwrite:
        raise OptionError("a topic cannot be overwritten: write with mode append")
