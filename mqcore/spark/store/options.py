"""The options of the source `rocketmq-store`, and which columns each kind of rows has."""
from __future__ import annotations

from typing import Final

from mqcore.spark.columns import COLUMNS, Column
from mqcore.spark.options import READ, Option, moment, names, number, one_of, size, text, truth
from mqcore.store.cutting import INDEX, QUEUES
from mqcore.store.log.folders import LOG

STORE: tuple[Option, ...] = (
    Option("what", one_of(LOG, QUEUES, INDEX), LOG, on=(READ,),
           says="`commitlog`: messages; `consumequeue`, `index`: the entries of these files"),
    Option("commitLogPaths", names, on=(READ,), says="the folders of the commit log, separated by"
           " commas, where it is not in the store's folder"),
    Option("topic", names, on=(READ,), says="only these topics, separated by commas",
           also=("topics", "subscribe")),
    Option("queueIds", names, on=(READ,), says="only queues with these numbers"),
    Option("startingTimestamp", moment, on=(READ,), says="what was stored then or later"),
    Option("endingTimestamp", moment, on=(READ,), says="what was stored before it"),
    Option("transactions", one_of("all", "committed"), "all", on=(READ,),
           says="`committed`: no half messages, nor what settled them; `all`: as they lie there"),
    Option("failOnDamage", truth, True, on=(READ,), says="fail at what cannot be read; else a row"
           " with the column `damage` says what, and reading goes on behind it"),
    Option("columns", text, on=(READ,), says="only these columns, separated by commas; a schema"
           " says the same"),
    Option("propertiesAs", one_of("map", "json"), "map", on=(READ,),
           says="`properties` as a map, or as a JSON string"),
    Option("brokerName", text, on=(READ,), says="what the column `brokerName` says: a store does"
           " not know it"),
    Option("splitBytes", size, 256 << 20, on=(READ,), says="bytes of the log for one task, about"),
    Option("minPartitions", number(1, 1_000_000), 1, on=(READ,),
           says="at least so many tasks, if there is enough to read"),
    Option("pushFilters", truth, False, on=(READ,), says="has no effect any more: Spark 4.3 gives"
           " all queries of a frame the filters of one; `topic`, `queueIds` and times narrow a"
           " read"),
    Option("indexSlots", number(1, 100_000_000), on=(READ,),
           says="hash slots of an index file; else found out from the files"),
    Option("force", truth, False, on=(READ,),
           says="also while a broker runs on the store: a moving picture"),
)

# What rows do not have, so that nothing can be chosen by it.
NOT_FOR: Final[dict[str, tuple[str, ...]]] = {
    LOG: (),
    QUEUES: ("startingTimestamp", "endingTimestamp", "transactions", "brokerName"),
    INDEX: ("topic", "queueIds", "startingTimestamp", "endingTimestamp", "transactions",
            "brokerName"),
}

LOG_COLUMNS: tuple[Column, ...] = (
    *(column for column in COLUMNS if column.name != "gapEnd"),
    Column("damage", "string", is_extra=True),
)
QUEUE_COLUMNS: tuple[Column, ...] = (
    Column("topic", "string"),
    Column("queueId", "int"),
    Column("queueOffset", "bigint"),
    Column("commitLogOffset", "bigint"),
    Column("size", "int"),
    Column("tagsCode", "bigint"),
    Column("unitTagsCode", "bigint", is_extra=True),
    Column("unitStoreTimestamp", "timestamp", is_extra=True),
)
INDEX_COLUMNS: tuple[Column, ...] = (
    Column("file", "string"),
    Column("entry", "int"),
    Column("keyHash", "int"),
    Column("commitLogOffset", "bigint"),
    Column("storeTimestamp", "timestamp"),
    Column("seconds", "int"),
    Column("previous", "int"),
)
KNOWN: Final = {LOG: LOG_COLUMNS, QUEUES: QUEUE_COLUMNS, INDEX: INDEX_COLUMNS}
