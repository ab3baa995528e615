"""
The columns of messages in Spark: names, Spark's types, Arrow's types, and record batches of them.

The first nine are those of Apache's connector, under its names and types; `properties` is a map
here, and a JSON string as there when a schema says `string`.
"""
from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mqcore.client.native.columns import Columns, TooMuch, Want, columns
from mqcore.client.read.batches import halves
from mqcore.spark.errors import OptionError

log = logging.getLogger("mqcore.spark")

TEXTS = "array<string>"
MAP = "map<string,string>"
BROKEN_BODY = "brokenBody"          # as it is stored, where nobody can decompress it


@dataclass(frozen=True, slots=True)
class Column:
    """
    name      as Spark shows it
    type      Spark's simple name of the type
    also      other types that a schema may give it
    is_extra  it is there only for who asks for it
    """

    name: str
    type: str
    also: tuple[str, ...] = ()
    is_extra: bool = False


COLUMNS: tuple[Column, ...] = (
    Column("topic", "string"),
    Column("flag", "int"),
    Column("body", "binary"),
    Column("properties", MAP, ("string",)),
    Column("brokerName", "string"),
    Column("queueId", "int"),
    Column("queueOffset", "bigint"),
    Column("bornTimestamp", "timestamp"),
    Column("storeTimestamp", "timestamp"),
    Column("msgId", "string"),
    Column("keys", TEXTS),
    Column("tags", "string"),
    Column("commitLogOffset", "bigint"),
    Column("sysFlag", "int"),
    Column("bodyCRC", "int"),
    Column("bornHost", "string"),
    Column("storeHost", "string"),
    Column("reconsumeTimes", "int"),
    Column("preparedTransactionOffset", "bigint"),
    Column("gapEnd", "bigint", is_extra=True),
    Column(BROKEN_BODY, "binary", is_extra=True),
)
BY_NAME = {column.name: column for column in COLUMNS}
BY_LOWER_NAME = {column.name.lower(): column for column in COLUMNS}


@dataclass(frozen=True, slots=True)
class Picked:
    """The columns of one read: (name, Spark type) in their order."""

    fields: tuple[tuple[str, str], ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.fields)

    def __contains__(self, name: str) -> bool:
        return any(name == each for each, _ in self.fields)

    @property
    def ddl(self) -> str:
        """What Spark takes for a schema."""
        return ", ".join(f"{name} {kind}" for name, kind in self.fields)


def all_columns(*, without: Iterable[str] = ()) -> Picked:
    """Those that are there without asking."""
    left_out = set(without)
    return Picked(tuple((column.name, column.type) for column in COLUMNS
                        if not column.is_extra and column.name not in left_out))


def picked_by_names(text: str, *, known: Sequence[Column] = COLUMNS) -> Picked:
    """The columns that the option `columns` names, separated by commas; raises OptionError."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise OptionError("columns: expected at least one name")
    found = [_named(name, known, "columns") for name in names]
    if len({column.name for column in found}) < len(found):
        raise OptionError(f"columns {text!r}: a name stands twice")
    return Picked(tuple((column.name, column.type) for column in found))


def picked_by_schema(schema: Any, *, known: Sequence[Column] = COLUMNS) -> Picked:
    """The columns of a StructType that the user gave; raises OptionError."""
    fields = []
    for field in schema.fields:
        column = _named(field.name, known, "schema")
        kind = field.dataType.simpleString()
        if kind not in (column.type, *column.also):
            expected = " or ".join((column.type, *column.also))
            raise OptionError(f"schema: column {column.name} is {kind}: expected {expected}")
        fields.append((column.name, kind))
    return Picked(tuple(fields))


def _named(name: str, known: Sequence[Column], where: str) -> Column:
    by_lower = {column.name.lower(): column for column in known}
    column = by_lower.get(name.lower())
    if column is None:
        near = difflib.get_close_matches(name.lower(), list(by_lower), 1)
        hint = (f"did you mean {by_lower[near[0]].name}?" if near else
                f"expected some of {', '.join(column.name for column in known)}")
        raise OptionError(f"{where}: there is no column {name}: {hint}")
    return column


def arrow_type(kind: str) -> Any:
    """The Arrow type that Spark wants for its type."""
    import pyarrow as pa

    return {
        "string": pa.string(), "int": pa.int32(), "bigint": pa.int64(), "binary": pa.binary(),
        "boolean": pa.bool_(), "timestamp": pa.timestamp("us", tz="UTC"),
        MAP: pa.map_(pa.string(), pa.string()), TEXTS: pa.list_(pa.string()),
    }[kind]


def arrow_schema(picked: Picked) -> Any:
    """The pyarrow.Schema of these columns; Spark refuses any other."""
    import pyarrow as pa

    return pa.schema([pa.field(name, arrow_type(kind)) for name, kind in picked.fields])


# -- record batches of stored records --------------------------------------------------------------

_WANTS = {
    "body": Want.WANT_BODY, BROKEN_BODY: Want.WANT_BODY, "tags": Want.WANT_TAGS,
    "keys": Want.WANT_KEYS, "msgId": Want.WANT_IDS,
    "topic": Want.WANT_TOPICS, "bornHost": Want.WANT_HOSTS, "storeHost": Want.WANT_HOSTS,
}
_NUMBERS = {
    "flag": "flag", "queueId": "queue_id", "queueOffset": "queue_offset",
    "bornTimestamp": "born_time", "storeTimestamp": "store_time", "commitLogOffset": "log_position",
    "sysFlag": "sys_flag", "bodyCRC": "body_crc", "reconsumeTimes": "reconsume_times",
    "preparedTransactionOffset": "prepared_position",
}
_TEXTS = {
    "body": ("body", "body_ends"), "msgId": ("ids", "ids_ends"), "topic": ("topics", "topics_ends"),
    "bornHost": ("born_hosts", "born_hosts_ends"), "storeHost": ("store_hosts", "store_hosts_ends"),
}
TICKS = 1_000                       # of Spark's times, in a millisecond


class Cutter:
    """Makes record batches of records as brokers store them; no Python object for a message."""

    def __init__(self, picked: Picked) -> None:
        import pyarrow

        self._pa = pyarrow
        self.picked = picked
        self.schema = arrow_schema(picked)
        self._want = 0
        for name, kind in picked.fields:
            self._want |= _WANTS.get(name, 0)
            if name == "properties":
                self._want |= Want.WANT_PROPERTIES if kind == MAP else Want.WANT_JSON

    def cut_all(self, bodies: Sequence[bytes], count: int, *, broker: str | None,
                topic: str | None = None) -> Iterator[Any]:
        """
        The batches of `cut`: one, or as many as it takes where compressed bodies are too much
        together. Raises RecordError.
        """
        try:
            made = self.cut(bodies, count, broker=broker, topic=topic)
        except TooMuch:
            first, few, rest, others = halves(bodies, count)
            yield from self.cut_all(first, few, broker=broker, topic=topic)
            yield from self.cut_all(rest, others, broker=broker, topic=topic)
        else:
            yield made

    def cut(self, bodies: Sequence[bytes | memoryview], count: int, *, broker: str | None,
            topic: str | None = None) -> Any:
        """
        One pyarrow.RecordBatch of the records in `bodies`, `count` together, in their order.

        broker  its name, for all of them; None: null
        topic   for all of them; None: the one that each record has
        Bodies come out decompressed; those that cannot be, by nobody, are null. Raises RecordError
        for bytes that are no records, and where a package is missing.
        """
        made = columns(list(bodies), count, int(self._want), TICKS, broken_is_null=True,
                       broken_stays=BROKEN_BODY in self.picked)
        if made.body_missing and BROKEN_BODY not in self.picked:
            log.warning("%d of %d messages have bodies that cannot be decompressed: null",
                        made.body_missing, count)
        return self._pa.RecordBatch.from_arrays(
            [self._array(name, field.type, made, count, broker, topic)
             for (name, _), field in zip(self.picked.fields, self.schema, strict=True)],
            schema=self.schema)

    def gap(self, topic: str, broker: str, queue_id: int, begin: int, end: int) -> Any:
        """A batch of one row that says which offsets are not there: all else in it is null."""
        said = {"topic": topic, "brokerName": broker, "queueId": queue_id, "queueOffset": begin,
                "gapEnd": end}
        return self._pa.RecordBatch.from_arrays(
            [self._pa.array([said.get(name)], field.type)
             for (name, _), field in zip(self.picked.fields, self.schema, strict=True)],
            schema=self.schema)

    def _array(self, name: str, kind: Any, made: Columns, count: int, broker: str | None,
               topic: str | None) -> Any:
        pa = self._pa
        if name in _NUMBERS:
            return pa.Array.from_buffers(
                kind, count, [None, pa.py_buffer(getattr(made, _NUMBERS[name]))])
        if name == "brokerName" or (name == "topic" and topic is not None):
            return pa.repeat(pa.scalar(broker if name == "brokerName" else topic, kind), count)
        if name == BROKEN_BODY and made.body_there is not None:
            broken = (~np.frombuffer(made.body_there, np.uint8)).tobytes()
            return pa.Array.from_buffers(
                kind, count, [pa.py_buffer(broken), pa.py_buffer(made.body_ends),
                              pa.py_buffer(made.body)], count - made.body_missing)
        if name in ("gapEnd", BROKEN_BODY):
            return pa.nulls(count, kind)
        if name in _TEXTS:
            data, ends = _TEXTS[name]
            if name == "body" and made.body_there is not None:
                return pa.Array.from_buffers(
                    kind, count, [pa.py_buffer(made.body_there), pa.py_buffer(made.body_ends),
                                  pa.py_buffer(made.body)], made.body_missing)
            return self._texts(kind, count, getattr(made, ends), getattr(made, data))
        if name == "tags":
            return pa.Array.from_buffers(
                kind, count, [pa.py_buffer(made.tags_there), pa.py_buffer(made.tags_ends),
                              pa.py_buffer(made.tags)], made.tags_missing)
        if name == "keys":
            child = self._texts(pa.string(), made.key_count, made.keys_ends, made.keys)
            return pa.Array.from_buffers(
                kind, count, [None, pa.py_buffer(made.keys_rows)], children=[child])
        if kind == pa.string():
            return self._texts(kind, count, made.json_ends, made.json)
        items = pa.Array.from_buffers(
            pa.struct([kind.key_field, kind.item_field]), made.item_count, [None],
            children=[self._texts(pa.string(), made.item_count, made.names_ends, made.names),
                      self._texts(pa.string(), made.item_count, made.values_ends, made.values)])
        return pa.Array.from_buffers(
            kind, count, [None, pa.py_buffer(made.items_rows)], children=[items])

    def _texts(self, kind: Any, count: int, ends: bytes, data: bytes) -> Any:
        return self._pa.Array.from_buffers(
            kind, count, [None, self._pa.py_buffer(ends), self._pa.py_buffer(data)])
