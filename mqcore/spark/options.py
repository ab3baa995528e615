"""
The options of the sources and sinks: one table for each, from which they are checked and read.

Spark hands over keys in lower case, so names are compared without case; an unknown one is an
error that names the nearest.
"""
from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from mqcore.client.config import ClientConfig
from mqcore.client.core.signature import Credentials
from mqcore.client.errors import ConfigError
from mqcore.spark.errors import OptionError

Parse = Callable[[str, str], Any]

log = logging.getLogger("mqcore.spark")

READ: Final = "read"                # batch and stream
BATCH: Final = "batch"
STREAM: Final = "stream"
WRITE: Final = "write"

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_SIZE = re.compile(r"(\d+)\s*([kmgt]?)i?b?", re.I)
_SHIFT = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
# What Spark itself, or a user's habit with other sources, puts beside our options.
_PASSED_OVER = frozenset({"path", "checkpointlocation", "queryname"})


@dataclass(frozen=True, slots=True)
class Option:
    """
    name     as it is written in documents; compared without case
    parse    makes the value of (name, text), raises OptionError
    default  the value without it
    on       READ, BATCH, STREAM, WRITE: where it has a meaning
    says     one line for the table in docs/spark/README.md
    also     other names of it
    """

    name: str
    parse: Parse
    default: Any = None
    on: tuple[str, ...] = (READ, WRITE)
    says: str = ""
    also: tuple[str, ...] = ()


# -- kinds of values ------------------------------------------------------------------------------


def text(name: str, value: str) -> str:
    if not value.strip():
        raise OptionError(f"{name}: expected a value, not {value!r}")
    return value.strip()


def names(name: str, value: str) -> list[str]:
    """`a,b`: each once, in that order."""
    found = list(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
    if not found:
        raise OptionError(f"{name}: expected at least one name")
    return found


def truth(name: str, value: str) -> bool:
    word = value.strip().lower()
    if word not in ("true", "false"):
        raise OptionError(f"{name} {value!r}: expected true or false")
    return word == "true"


def number(low: int, high: int = (1 << 63) - 1) -> Parse:
    """A whole number of that range."""
    def parse(name: str, value: str) -> int:
        try:
            found = int(value)
        except ValueError:
            found = low - 1
        if not low <= found <= high:
            raise OptionError(f"{name} {value!r}: expected a whole number, {low} to {high}")
        return found
    return parse


def size(name: str, value: str) -> int:
    """Bytes: `65536`, `64k`, `16m`, `1g`."""
    found = _SIZE.fullmatch(value.strip())
    if found is None or int(found[1]) == 0:
        raise OptionError(f"{name} {value!r}: expected bytes, as in 65536, 64k, 16m, 1g")
    return int(found[1]) << _SHIFT[found[2].lower()]


def seconds(name: str, value: str) -> float:
    """`500ms`, `10s`, `15m`, `1h`; a bare number counts seconds."""
    found = _DURATION.fullmatch(value.strip())
    if found is None or float(found[1]) == 0:
        raise OptionError(f"{name} {value!r}: expected a time, as in 500ms, 10s, 15m, 1h")
    return float(found[1]) * _SECONDS[found[2] or "s"]


def moment(name: str, value: str) -> int:
    """Milliseconds since 1970: as such, or an ISO time with its zone."""
    word = value.strip()
    if word.isascii() and word.isdigit():
        return int(word)
    try:
        when = datetime.fromisoformat(word)
    except ValueError:
        raise OptionError(f"{name} {value!r}: expected milliseconds since 1970, or a time as in"
                          " 2026-01-31T12:00:00Z") from None
    if when.tzinfo is None:
        utc = when.replace(tzinfo=UTC).isoformat().replace("+00:00", "Z")
        raise OptionError(f"{name} {value!r}: expected a zone, as in {utc}")
    return round(when.timestamp() * 1000)


def one_of(*words: str) -> Parse:
    """One of some words, without case."""
    def parse(name: str, value: str) -> str:
        word = value.strip().lower()
        if word not in words:
            raise OptionError(f"{name} {value!r}: expected one of {', '.join(words)}")
        return word
    return parse


# -- what all sources that talk to brokers have ---------------------------------------------------

_CLIENT: tuple[Option, ...] = (
    Option("nameServer", text, says="`host:port;host:port`, or a `rocketmq://` URL;"
           " else the environment's NAMESRV_ADDR", also=("namesrv",)),
    Option("rocketmq.accessKey", text, says="requests are signed, with `rocketmq.secretKey`"),
    Option("rocketmq.secretKey", text, says="of the access key"),
    Option("rocketmq.securityToken", text, says="of temporary keys"),
    Option("rocketmq.namespace", text, "", says="prefix of all topics and groups"),
    Option("rocketmq.tls", truth, False, says="connections by TLS, verified"),
    Option("rocketmq.connectTimeout", seconds, 3.0, says="for one connection"),
    Option("rocketmq.callTimeout", seconds, 3.0, says="for routes, offsets and other small calls"),
)

ROCKETMQ: tuple[Option, ...] = (
    *_CLIENT,
    # -- what is read, and written
    Option("topic", text, says="the topic; of a sink: of all rows, whatever their column says"),
    Option("subscribe", names, on=(READ,), says="topics, separated by commas", also=("topics",)),
    Option("subscribePattern", text, on=(READ,), says="a regular expression of whole topic names;"
           " new topics join while a stream runs", also=("topicsPattern",)),
    Option("assign", text, on=(READ,),
           says='queues: `{"topic":{"broker-a":[0,1]}}`'),
    Option("group", text, says="a consumer group, whose committed offsets `startingOffsets=group`"
           " takes and `mqcore.spark.track` commits; of a sink: the producer group"),
    Option("subExpression", text, "*", on=(READ,), says="the broker's filter: tags `a || b`, or"
           " SQL92"),
    Option("subExpressionType", one_of("tag", "sql92"), "tag", on=(READ,),
           says="`tag` or `sql92`"),
    # -- from where to where
    Option("startingOffsets", text, on=(READ,), says="`earliest` (batch's default), `latest`"
           " (streams' default), `group` (a queue that was added since it committed: `earliest`),"
           " or JSON by topic, broker and queue; -2 earliest, -1 latest"),
    Option("startingTimestamp", moment, on=(READ,), says="what was stored then or later, in all"
           " queues; goes before `startingOffsetsByTimestamp` and `startingOffsets`"),
    Option("startingOffsetsByTimestamp", text, on=(READ,),
           says='the same by queue: `{"topic":{"broker-a":{"0":1767225600000}}}`'),
    Option("startingOffsetsByTimestampStrategy", one_of("error", "latest"), "error", on=(READ,),
           says="of a queue with nothing from then on: an error, or its end"),
    Option("endingOffsets", text, "latest", on=(BATCH,), says="`latest`, or JSON; -1 latest"),
    Option("endingTimestamp", moment, on=(BATCH,), says="what was stored before it"),
    Option("endingOffsetsByTimestamp", text, on=(BATCH,), says="the same by queue"),
    # -- how it is shared out
    Option("minPartitions", number(1, 1_000_000), on=(READ,),
           says="at least so many tasks: large queues are split"),
    Option("maxRecordsPerPartition", number(1), on=(READ,),
           says="offsets of one task at most: queues are split"),
    Option("maxOffsetsPerTrigger", number(1), on=(STREAM,),
           says="offsets of one micro-batch at most, shared out by backlog"),
    Option("minOffsetsPerTrigger", number(1), on=(STREAM,),
           says="a micro-batch waits for so many, up to `maxTriggerDelay`"),
    Option("maxTriggerDelay", seconds, 900.0, on=(STREAM,), says="see `minOffsetsPerTrigger`"),
    Option("maxBytesPerTrigger", size, on=(STREAM,),
           says="bytes of one micro-batch, by the size of the messages at each queue's begin"),
    # -- what comes out
    Option("columns", text, on=(READ,), says="only these columns, separated by commas; a schema"
           " says the same"),
    Option("propertiesAs", one_of("map", "json"), "map", on=(READ,),
           says="`properties` as a map, or as a JSON string"),
    Option("pushFilters", truth, False, on=(BATCH,), says="has no effect: the source filters"
           " always, and what Spark asks the one in Python for it would give to all queries of a"
           " frame"),
    Option("failOnDataLoss", truth, True, on=(READ,), says="fail when offsets of a range are not"
           " there; else they are logged, and rows of their own with the column `gapEnd`"),
    Option("stateDir", text, on=(STREAM,), says="a folder of one query, for the offsets that it"
           " began with: Spark does not keep them before the first batch is done"),
    Option("pollInterval", seconds, 0.1, on=(STREAM,),
           says="between two questions for the queues' ends"),
    Option("pullsInFlight", number(1, 256), 16, on=(READ,),
           says="requests on their way at a time, of one task"),
    Option("rowsPerBatch", number(1, 1 << 20), 4_096, on=(READ,),
           says="rows of a batch of columns, at most"),
    Option("bytesPerBatch", size, 4 << 20, on=(READ,),
           says="bytes of a batch of columns, about"),
    Option("timeout", seconds, 30.0, says="without any answer of a broker, before a task fails"),
    # -- the sink
    Option("deliveryGuarantee", one_of("at-least-once", "effectively-once"), "at-least-once",
           on=(WRITE,), says="`effectively-once`: messages have ids made of query, batch, task and"
           " row, and what a try before stored is found by them and not sent again"),
    Option("identity", text, on=(WRITE,), says="of a batch that is `effectively-once`: its name in"
           " place of one of its own; a later write of the same rows in the same order under this"
           " name sends what is not stored yet"),
    Option("rowsPerSecond", number(1), on=(WRITE,), says="that one task sends, at most"),
    Option("nullBodies", one_of("fail", "skip"), "fail", on=(WRITE,), says="rows without a body, as"
           " of messages that cannot be decompressed: an error, or left out"),
    Option("copies", truth, False, on=(WRITE,), says="rows are messages of another cluster, a task"
           " for each queue: ids, properties, born time and tries stay; what a queue has already is"
           " found at its end, and not sent again"),
    Option("sendBatchRows", number(1, 10_000), 512, on=(WRITE,),
           says="messages of one request at most"),
    Option("sendBatchBytes", size, 512 << 10, on=(WRITE,), says="bytes of one request at most"),
    Option("sendsInFlight", number(1, 256), 8, on=(WRITE,),
           says="requests on their way at a time, of one task"),
    Option("retries", number(0, 100), 5, on=(WRITE,), says="more tries of a request that failed"),
)


@dataclass(frozen=True, slots=True)
class Options:
    """The values of all options of one table that have a meaning here."""

    values: dict[str, Any] = field(repr=False)
    given: frozenset[str]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def has(self, name: str) -> bool:
        """Whether it was given."""
        return name in self.given


def read_options(
    given: Mapping[str, str], table: Sequence[Option], on: str, source: str,
) -> Options:
    """
    The options of a source, checked.

    given    as Spark hands them over
    on       BATCH, STREAM or WRITE; READ of a table that makes no difference
    source   its name, for errors
    Raises OptionError for what is unknown, cannot be, or has no meaning here.
    """
    by_key = {key.lower(): option for option in table for key in (option.name, *option.also)}
    values = {option.name: option.default for option in table}
    seen: dict[str, str] = {}
    for key, value in given.items():
        low = key.lower()
        option = by_key.get(low)
        if option is None:
            if low in _PASSED_OVER:
                continue
            raise OptionError(f"{source}: option {key} is unknown: {_hint(low, by_key)}")
        if not _applies(option, on):
            raise OptionError(f"{source}: option {option.name} has no meaning for a"
                              f" {_PLACES.get(on, on)}, only for a {_places(option)}")
        if option.name in seen:
            raise OptionError(f"{source}: options {seen[option.name]} and {key} are the same:"
                              " give one of them")
        seen[option.name] = key
        values[option.name] = option.parse(option.name, str(value))
    return Options(values, frozenset(seen))


_PLACES = {BATCH: "batch read", STREAM: "stream read", WRITE: "write", READ: "read"}


def _applies(option: Option, on: str) -> bool:
    return on in option.on or (on in (BATCH, STREAM) and READ in option.on) or (
        on == READ and any(place in option.on for place in (BATCH, STREAM)))


def _places(option: Option) -> str:
    return " or ".join(_PLACES[place] for place in option.on)


def _hint(key: str, by_key: Mapping[str, Option]) -> str:
    near = difflib.get_close_matches(key, list(by_key), 1, 0.5)
    if near:
        return f"did you mean {by_key[near[0]].name}?"
    return f"expected some of {', '.join(sorted({option.name for option in by_key.values()}))}"


def client_config(options: Options) -> ClientConfig:
    """What the client needs to know; raises OptionError."""
    key, secret = options["rocketmq.accessKey"], options["rocketmq.secretKey"]
    if (key is None) != (secret is None):
        raise OptionError("rocketmq.accessKey and rocketmq.secretKey: expected both, or none")
    try:
        credentials = None if key is None else Credentials(
            key, secret, options["rocketmq.securityToken"])
        config = ClientConfig(
            namesrv=options["nameServer"], namespace=options["rocketmq.namespace"],
            credentials=credentials, tls=options["rocketmq.tls"],
            connect_timeout=options["rocketmq.connectTimeout"],
            call_timeout=options["rocketmq.callTimeout"])
    except ConfigError as error:
        raise OptionError(f"nameServer and rocketmq.*: {error}") from None
    if not config.name_servers:
        raise OptionError("nameServer: expected host:port of a name server, as an option or in the"
                          " environment's NAMESRV_ADDR")
    return config


def tell_of_filters(options: Options) -> None:
    """Tell a user that `pushFilters` has no effect."""
    if options["pushFilters"]:
        log.warning("pushFilters has no effect: Spark gives all queries of a frame the filters of"
                    " one, and rows would be missing")


def exactly_one(options: Options, names_of_it: Iterable[str], source: str) -> str:
    """Which one of some options was given; raises OptionError for none, or several."""
    wanted = list(names_of_it)
    found = [name for name in wanted if options.has(name)]
    if len(found) != 1:
        said = " and ".join(found) if found else "none of them"
        raise OptionError(f"{source}: expected exactly one of {', '.join(wanted)}: {said} is given")
    return found[0]
