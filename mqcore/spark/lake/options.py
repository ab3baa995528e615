"""The options of the sink `rocketmq-lake`."""
from __future__ import annotations

import json
from typing import Any, Final

from mqcore.spark.errors import OptionError
from mqcore.spark.lake.table import DAY, TOPIC
from mqcore.spark.options import WRITE, Option, number, one_of, size, text

PARQUET: Final = "parquet"
DELTA: Final = "delta"
ICEBERG: Final = "iceberg"
KINDS: Final = (PARQUET, DELTA, ICEBERG)
NO_PARTS: Final = "none"
PARTS: Final = (TOPIC, DAY)


def _parts(name: str, value: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(part.strip().lower() for part in value.split(",") if part.strip()))
    if found == (NO_PARTS,):
        return ()
    if not found or not set(found) <= set(PARTS):
        raise OptionError(f"{name} {value!r}: expected topic, day, or both with a comma, or none")
    return tuple(part for part in PARTS if part in found)


def properties(name: str, value: str) -> dict[str, str]:
    """A JSON object of texts; raises OptionError."""
    try:
        said = json.loads(value)
    except ValueError:
        said = None
    if not isinstance(said, dict) or not all(isinstance(one, str) for one in said.values()):
        raise OptionError(f'{name}: expected JSON as in {{"type":"rest","uri":"http://..."}}')
    return said


def _paths(name: str, value: str) -> list[str]:
    try:
        said: Any = json.loads(value)
    except ValueError:
        said = None
    if not isinstance(said, list) or not all(isinstance(one, str) for one in said):
        raise OptionError(f"{name}: expected a JSON array of the table's files")
    return said


LAKE: tuple[Option, ...] = (
    Option("tableFormat", one_of(*KINDS), on=(WRITE,), says="`parquet`, `delta` or `iceberg`;"
           " without it that of the table, of a new one `parquet`"),
    Option("partitionBy", _parts, on=(WRITE,), says="`topic,day`, `topic`, `day` or `none`; the day"
           " is that of `storeTimestamp`, UTC. Without it those of the table, of a new one those"
           " whose columns are there"),
    Option("compression", one_of("zstd", "snappy", "lz4", "gzip", "none"), "zstd", on=(WRITE,),
           says="of the files' pages"),
    Option("compressionLevel", number(1, 22), on=(WRITE,), says="of zstd and gzip"),
    Option("fileBytes", size, 512 << 20, on=(WRITE,),
           says="a task begins another file after so many, about"),
    Option("rowGroupBytes", size, 64 << 20, on=(WRITE,), says="of a row group before compression,"
           " about; a task has up to two of them in memory, whatever the partitions"),
    Option("txnAppId", text, on=(WRITE,), says="of a batch: who writes, with `txnVersion`: a number"
           " that it has written before is left out. Streams have the query's id and the batch's"
           " number"),
    Option("txnVersion", number(0), on=(WRITE,), says="see `txnAppId`"),
    Option("icebergCatalog", properties, on=(WRITE,), says="properties of a pyiceberg catalog, as"
           " JSON; without it SQLite's, in `catalog.db` in the table's folder"),
    Option("icebergTable", text, "mqcore.messages", on=(WRITE,), says="the table's name there"),
    Option("fileTag", text, "", on=(WRITE,), says="for maintenance: a word in the files' names"),
    Option("replaces", _paths, on=(WRITE,), says="for maintenance: files of the table whose rows"
           " are those of the frame, as a JSON array; they leave it with the same change"),
)
