"""What tests do with a session and a broker."""
from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from mqcore.client import Message, Producer
from mqcore.client.admin import Admin
from tests.support.waiting import wait_until

NUMBERS = itertools.count(1)
PYTHON = "rocketmq-python"          # tests know the source in Python by this name


def python_source() -> type:
    """The source in Python under a name of its own: `rocketmq` is the one in the JVM."""
    from mqcore.spark.topics.source import RocketMQ

    class InPython(RocketMQ):
        @classmethod
        def name(cls) -> str:
            return PYTHON

    return InPython


class World:
    def __init__(self, spark: Any, namesrv: str) -> None:
        self.spark = spark
        self.source = "rocketmq"
        self.namesrv = namesrv
        self.producer = Producer("tests", namesrv=namesrv, batch_count=16,
                                 send_timeout=60.0)          # slow machines
        self.admin = Admin(namesrv=namesrv)

    def __enter__(self) -> Self:
        self.producer.start()
        self.admin.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.producer.close()
        self.admin.close()

    @cached_property
    def broker_name(self) -> str:
        return self.admin.clusters()[0].brokers[0].broker_name

    def topic(self, queues: int = 4) -> str:
        """A new one."""
        name = f"spark-{next(NUMBERS)}"
        self.admin.create_topic(name, queues=queues)
        return name

    def send(self, topic: str, count: int, *, begin: int = 0, body: int = 100, **message: Any
             ) -> None:
        """Messages of numbers from `begin` on, in all queues."""
        sent = self.producer.send_many([
            Message(topic, f"{number}:".ljust(body, "x"), tags=f"t{number % 3}",
                    keys=[f"k{number}"], properties={"n": str(number)}, **message)
            for number in range(begin, begin + count)])
        last = {one.queue: one.queue_offset for one in sent if "delay" not in message}
        for queue, offset in last.items():          # a broker tells it a moment later
            wait_until(lambda queue=queue, offset=offset: self.admin.max_offset(queue) > offset,
                       f"{queue} has what was sent")

    def read(self, topic: str | None = None, *, schema: str | None = None, **options: Any) -> Any:
        """The frame of a batch read."""
        return self._source(self.spark.read, topic, schema, options)

    def stream(self, topic: str | None = None, **options: Any) -> Any:
        """The frame of a stream."""
        return self._source(self.spark.readStream, topic, None, options)

    def _source(self, reader: Any, topic: str | None, schema: str | None,
                options: Mapping[str, Any]) -> Any:
        reader = reader.format(self.source).option("nameServer", self.namesrv)
        if topic is not None:
            reader = reader.option("topic", topic)
        for name, value in options.items():
            reader = reader.option(name, value)
        return (reader if schema is None else reader.schema(schema)).load()

    def write(self, frame: Any, topic: str | None = None, **options: Any) -> None:
        """Write a batch."""
        writer = frame.write.format("rocketmq").option("nameServer", self.namesrv).mode("append")
        if topic is not None:
            writer = writer.option("topic", topic)
        for name, value in options.items():
            writer = writer.option(name, value)
        writer.save()

    def run(self, frame: Any, checkpoint: Path, sink: str = "rocketmq", **options: Any) -> Any:
        """Run a stream up to what is there now; the ended query."""
        writer = frame.writeStream.format(sink).option("checkpointLocation", str(checkpoint))
        if sink == "rocketmq":
            writer = writer.option("nameServer", self.namesrv)
        for name, value in options.items():
            writer = writer.option(name, value)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return query

    def numbers(self, frame: Any) -> list[int]:
        """The numbers of the messages in a frame, in order."""
        rows = frame.selectExpr("cast(split(cast(body as string), ':')[0] as int) n").collect()
        return sorted(row["n"] for row in rows)


class KeptSession:
    """The session of all tests, for a command, which must not end it."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)

    def stop(self) -> None:
        """It goes on."""


def forget_commit(checkpoint: Path, batch: int) -> None:
    """As if the driver had died when a batch was done, and before that was written down."""
    for path in (checkpoint / "commits").iterdir():
        if path.name in (str(batch), f".{batch}.crc"):
            path.unlink()
