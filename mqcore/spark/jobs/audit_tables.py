"""
What the job `store-audit` finds, by joins: the log's records against queues and index. Each finding
has the numbers that verification's native passes give (mqcore/store/verify/findings.pxd).
"""
from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from mqcore.layout import CQ_FILLER_RECORD_SIZE
from mqcore.spark.store.entries import EXT_LAST
from mqcore.store.verify.findings import FindingKind, IndexField

# Where no record is in other queues than its own.
PLAIN: Final = """
    SELECT topic, queueId, queueOffset, position, size, bodyLength, tagsCode, delivery, storeTime,
           side
    FROM logged WHERE kind = 'entry'"""
# Of the queues: `entries` are those that the log asks for, `there` those that are in files.
QUEUE_VIEWS: Final = {
    "resolved": """
        SELECT e.topic, CASE WHEN e.side = 0 THEN e.queueId WHEN z.topic IS NOT NULL THEN 0
                             WHEN d.topic IS NOT NULL THEN e.queueId END AS queueId,
               e.queueOffset, e.position, e.size, e.bodyLength, e.tagsCode, e.delivery, e.storeTime,
               e.side
        FROM logged e
        LEFT JOIN disk z ON e.side = 2 AND z.topic = e.topic AND z.queueId = 0
        LEFT JOIN disk d ON e.side > 0 AND d.topic = e.topic AND d.queueId = e.queueId
        WHERE e.kind = 'entry'""",
    "entries": "SELECT * FROM resolved WHERE queueId IS NOT NULL",
    "there": f"""
        SELECT topic, queueId, queueOffset, commitLogOffset AS position, size, tagsCode,
               unitTagsCode, unix_micros(unitStoreTimestamp) DIV 1000 AS unitTime,
               size = {CQ_FILLER_RECORD_SIZE} AND commitLogOffset = 0 AS isFiller,
               size > 0 AS isEntry
        FROM queued""",
    "matched": """
        SELECT e.*, t.position AS foundPosition, t.size AS foundSize, t.tagsCode AS foundTags,
               t.unitTagsCode, t.unitTime,
               MAX(CASE WHEN t.position = e.position THEN 1 ELSE 0 END) OVER (
                   PARTITION BY e.topic, e.queueId, e.queueOffset) AS isVouched,
               MAX(e.restart) OVER (PARTITION BY e.topic, e.queueId) AS restarted
        FROM (SELECT *, CASE WHEN queueOffset <= LAG(queueOffset) OVER (
                  PARTITION BY topic, queueId ORDER BY position) THEN position END AS restart
              FROM entries) e
        LEFT JOIN (SELECT * FROM there WHERE isEntry AND NOT isFiller) t
        ON t.topic = e.topic AND t.queueId = e.queueId AND t.queueOffset = e.queueOffset""",
    "judged": f"""
        SELECT *, CASE
            WHEN foundPosition IS NULL AND position < restarted THEN 'superseded'
            WHEN foundPosition IS NULL THEN 'missing'
            WHEN foundPosition = position THEN 'matched'
            WHEN foundPosition > position AND isVouched = 1 THEN 'superseded'
            ELSE 'wrong' END AS state,
          CASE WHEN foundPosition <> position THEN 'fits'
            WHEN delivery >= 0 AND foundTags = delivery THEN 'fits'
            WHEN delivery >= 0 AND foundTags = tagsCode THEN 'plain'
            WHEN delivery >= 0 THEN 'wrong'
            WHEN foundTags <= {EXT_LAST} AND unitTagsCode = tagsCode AND unitTime = storeTime
            THEN 'fits'
            WHEN foundTags <= {EXT_LAST} THEN 'unit'
            WHEN foundTags <> tagsCode THEN 'wrong' ELSE 'fits' END AS tagState
        FROM matched""",
    "ordered": """
        SELECT *,
               LAG(queueOffset) OVER (PARTITION BY topic, queueId ORDER BY queueOffset) AS before,
               LAG(CASE WHEN isFiller THEN NULL ELSE position END) IGNORE NULLS OVER (
                   PARTITION BY topic, queueId ORDER BY queueOffset) AS beforePosition
        FROM there WHERE isEntry""",
}


# What is wrong in a row by itself, in SQL: it is counted first, and looked for only where it is.
IN_LOG: Final = {
    FindingKind.FOUND_FIELD: "kind = 'fault'",
    FindingKind.FOUND_BAD_RECORD: "kind = 'trouble'",
    FindingKind.FOUND_NO_BLANK: "kind = 'oddEnd' AND found = 0",
    FindingKind.FOUND_BLANK_SIZE: "kind = 'oddEnd' AND found <> 0",
}
IN_JUDGED: Final = {
    FindingKind.FOUND_ENTRY_POSITION: "state = 'wrong'",
    FindingKind.FOUND_ENTRY_SIZE: "state = 'matched' AND foundSize <> size",
    FindingKind.FOUND_ENTRY_TAG: "state = 'matched' AND tagState = 'wrong'",
    FindingKind.FOUND_EXT_UNIT: "state = 'matched' AND tagState = 'unit'",
}


def queue_findings(first: int, end: int, damaged_from: int, there: Collection[FindingKind]) -> str:
    """
    first, end    of the log
    damaged_from  from there on numbers may have gaps (VL3)
    there         of IN_LOG, IN_JUDGED and holes: what there is
    """
    kind = FindingKind
    queries = [f"""
        SELECT {int(kind.FOUND_OFFSET_GAP)} AS kind, topic, queueId, CAST(NULL AS STRING) AS file,
               position, beforePosition AS detail, try_add(before, 1L) AS expected,
               queueOffset AS found
        FROM (SELECT *, LAG(queueOffset) OVER (PARTITION BY topic, queueId ORDER BY position)
                     AS before, LAG(position) OVER (
                         PARTITION BY topic, queueId ORDER BY position) AS beforePosition
              FROM entries WHERE side = 0)
        WHERE before >= -1 AND queueOffset > try_add(before, 1L)
              AND position < {damaged_from}""", f"""
        SELECT {int(kind.FOUND_ENTRY_STRAY)}, topic, queueId, NULL, position, queueOffset, 0L,
               position
        FROM there t LEFT ANTI JOIN entries e ON t.topic = e.topic AND t.queueId = e.queueId
             AND t.queueOffset = e.queueOffset AND t.position = e.position
        WHERE isEntry AND NOT isFiller AND position >= {first} AND position < {end}""", f"""
        SELECT IF(isBeyond, {int(kind.FOUND_ENTRY_BEYOND)}, {int(kind.FOUND_ENTRY_GARBAGE)}), topic,
               queueId, NULL, IF(isBeyond, position, 0L), queueOffset,
               IF(isBeyond, CAST({end} AS BIGINT), 0L), IF(isBeyond, position, CAST(size AS BIGINT))
        FROM (SELECT *, isEntry AND NOT isFiller AND position >= {end} AS isBeyond FROM there)
        WHERE isBeyond OR NOT isEntry OR isFiller AND tagsCode <> 0""", f"""
        SELECT {int(kind.FOUND_ENTRY_ORDER)}, topic, queueId, NULL, position, queueOffset,
               beforePosition, position
        FROM ordered WHERE NOT isFiller AND position <= beforePosition"""]
    for each, condition in IN_LOG.items():
        detail, expected = ("detail", "0L") if each == kind.FOUND_FIELD else ("0L", "expected")
        queries += [f"""
        SELECT {int(each)}, NULL, NULL, NULL, position, {detail}, {expected}, found
        FROM logged WHERE {condition}"""] if each in there else []
    shown = {
        kind.FOUND_ENTRY_POSITION: "position, foundPosition",
        kind.FOUND_ENTRY_SIZE: "size, foundSize",
        kind.FOUND_ENTRY_TAG: "IF(delivery >= 0, delivery, tagsCode), foundTags",
        kind.FOUND_EXT_UNIT: "tagsCode, foundTags"}
    for each, condition in IN_JUDGED.items():
        queries += [f"""
        SELECT {int(each)}, topic, queueId, NULL, position, queueOffset, {shown[each]}
        FROM judged WHERE {condition}"""] if each in there else []
    if kind.FOUND_ENTRY_HOLE in there:
        queries.append(f"""
        SELECT {int(kind.FOUND_ENTRY_HOLE)}, o.topic, o.queueId, NULL, 0L,
               COALESCE(before + 1, d.first), 0L, position
        FROM ordered o JOIN disk d ON d.topic = o.topic AND d.queueId = o.queueId
        WHERE queueOffset > COALESCE(before + 1, d.first)""")
    return "\n      UNION ALL".join(queries)


def log_counts(lost_topic: str) -> str:
    """Of the log as a whole; `lost`: where records may be missing from, but for what it has."""
    return f"""
        SELECT COUNT(IF(kind = 'unqueued' OR side = 0, 1, NULL)) AS records,
               COALESCE(SUM(IF(kind = 'unqueued' OR side = 0, size, 0)), 0) AS bytes,
               COUNT(IF(kind = 'unqueued', 1, NULL)) AS unqueued,
               COALESCE(SUM(IF(kind = 'passed', found, 0)), 0) AS blanks,
               COALESCE(MIN_BY(storeTime, IF(storeTime IS NULL, NULL, position)), 0)
                   AS first_time_ms,
               COALESCE(MAX(storeTime), 0) AS last_time_ms,
               COUNT_IF(kind = 'entry' AND side > 0) AS sides,
               MIN(IF(kind = 'trouble' OR kind = 'unqueued' AND length(topic) <= {len(lost_topic)}
                      AND startswith('{lost_topic}', topic) AND topic <> '', position, NULL))
                   AS lost,
               {_counts(IN_LOG)}
        FROM logged"""


def _counts(kinds: Mapping[FindingKind, str]) -> str:
    return ", ".join(f"COUNT_IF({condition}) AS {kind.name}" for kind, condition in kinds.items())


def queue_counts(first: int, end: int) -> str:
    """Of each queue: what the log has of it (inLog), and what its files have."""
    in_log = f"""
        SUM(IF(side = 0, 1, 0)) AS records,
        SUM(IF(side = 0, size, 0)) AS bytes, SUM(IF(side = 0, bodyLength, 0)) AS body_bytes,
        COALESCE(MIN_BY(storeTime, IF(side = 0, position, NULL)), 0) AS first_time_ms,
        COALESCE(MAX_BY(storeTime, IF(side = 0, position, NULL)), 0) AS last_time_ms,
        SUM(IF(state = 'matched', 1, 0)) AS matched,
        SUM(IF(state = 'missing', 1, 0)) AS missing,
        COALESCE(MIN(IF(state = 'missing', queueOffset, NULL)), 0) AS missing_first,
        SUM(IF(state = 'superseded', 1, 0)) AS superseded,
        SUM(IF(state = 'matched' AND tagState = 'plain', 1, 0)) AS plain_delays,
        {_counts(IN_JUDGED)}"""
    on_disk = f"""
        COUNT(*) AS entries, MAX(queueOffset) + 1 AS end,
        COALESCE(MIN(IF(NOT isFiller AND position >= {first} AND position < {end},
                        queueOffset, NULL)), -1) AS first_live,
        SUM(IF(NOT isFiller AND position >= {first} AND position < {end}, 1, 0)) AS live,
        SUM(IF(NOT isFiller AND position < {first}, 1, 0)) AS expired,
        SUM(IF(isFiller, 1, 0)) AS fillers,
        SUM(IF(NOT isFiller AND position >= {end}, 1, 0)) AS beyond"""
    return f"""
        SELECT topic, queueId, STRUCT({in_log}) AS inLog, NULL AS onDisk
        FROM judged GROUP BY topic, queueId
      UNION ALL
        SELECT topic, queueId, NULL, STRUCT({on_disk})
        FROM there WHERE isEntry GROUP BY topic, queueId"""


# Of the index: `wanted` are the log's keys, `indexed` the entries, `heads` the files' headers.
INDEX_VIEWS: Final = {
    "wanted": """
        SELECT position, keyHash, COUNT(*) AS wanted, MAX(storeTime) AS timeMs
        FROM keyed GROUP BY position, keyHash""",
    "placed": """
        SELECT i.file, h.number, i.entry, i.keyHash, i.commitLogOffset AS position, i.seconds,
               h.beginMs, h.endMs, h.nextEntry, h.beforeEndMs, w.wanted, w.timeMs
        FROM indexed i JOIN heads h ON h.file = i.file
        LEFT JOIN wanted w ON w.position = i.commitLogOffset AND w.keyHash = i.keyHash""",
}


def index_findings(first: int, end: int, first_file_counts: bool, *, torn: bool) -> str:
    """
    first_file_counts  it is known what the first entry of all counts its seconds from
    torn               there are stretches that cannot be read
    """
    kind, field = FindingKind, IndexField
    unread = ("LEFT ANTI JOIN stretches s ON position >= s.begin AND position < s.further"
              if torn else "")
    # -- a difference that 64 bits do not hold is a large one, in Java and in our own index
    since = ("IF({0} <= 0, 0, LEAST(GREATEST(COALESCE(try_subtract(timeMs, {0}) DIV 1000, "
             "2147483647), 0), 2147483647))").format
    return f"""
        SELECT {int(kind.FOUND_INDEX_STRAY)} AS kind, CAST(NULL AS STRING) AS topic,
               CAST(NULL AS INT) AS queueId, file, position, CAST(entry AS BIGINT) AS detail,
               0L AS expected, CAST(keyHash AS BIGINT) AS found
        FROM placed {unread}
        WHERE wanted IS NULL AND position >= {first} AND position < {end}
      UNION ALL
        SELECT {int(kind.FOUND_INDEX_BEYOND)}, NULL, NULL, file, position, entry, {end}, keyHash
        FROM placed WHERE position >= {end}
      UNION ALL
        SELECT {int(kind.FOUND_INDEX_HEADER)}, NULL, NULL, file, position,
               {int(field.INDEX_FIELD_BEGIN_TIME)}, timeMs, beginMs
        FROM placed WHERE wanted IS NOT NULL AND entry = 1 AND beginMs <> timeMs
      UNION ALL
        SELECT {int(kind.FOUND_INDEX_HEADER)}, NULL, NULL, file, position,
               {int(field.INDEX_FIELD_END_TIME)}, timeMs, endMs
        FROM placed WHERE wanted IS NOT NULL AND entry = nextEntry - 1 AND endMs <> timeMs
      UNION ALL
        SELECT {int(kind.FOUND_INDEX_SECONDS)}, NULL, NULL, file, position, entry,
               IF(entry = 1 AND number > 0, {since('beforeEndMs')}, {since('beginMs')}), seconds
        FROM placed WHERE wanted IS NOT NULL AND seconds <> {since('beginMs')}
             AND NOT (entry = 1 AND number > 0 AND seconds = {since('beforeEndMs')})
             AND NOT (entry = 1 AND number = 0 AND {str(not first_file_counts).upper()})"""


def index_counts(first: int, end: int, *, torn: bool) -> str:
    """
    Keys of the log, how many are in the index, once or twice, and how many are not; in rows of
    their own the entries of what the log has no more, and of stretches that cannot be read.
    """
    counted = f"""
        SELECT COALESCE(SUM(wanted), 0) AS keys,
               COALESCE(SUM(LEAST(wanted, there)), 0) AS keys_matched,
               COALESCE(SUM(GREATEST(there - wanted, 0)), 0) AS keys_doubled,
               COALESCE(SUM(GREATEST(wanted - there, 0)), 0) AS keys_missing,
               COALESCE(MIN(IF(wanted > there, position, NULL)), -1) AS keys_missing_first,
               NULL AS keys_expired, NULL AS keys_passed
        FROM (SELECT w.position, w.wanted, COALESCE(t.there, 0) AS there FROM wanted w
              LEFT JOIN (SELECT position, keyHash, COUNT(*) AS there
                         FROM placed WHERE position >= {first} AND position < {end}
                         GROUP BY position, keyHash) t
              ON t.position = w.position AND t.keyHash = w.keyHash)
      UNION ALL
        SELECT NULL, NULL, NULL, NULL, NULL, COUNT(*), NULL FROM placed WHERE position < {first}"""
    return counted + (f"""
      UNION ALL
        SELECT NULL, NULL, NULL, NULL, NULL, NULL, COUNT(*)
        FROM placed LEFT SEMI JOIN stretches s ON position >= s.begin AND position < s.further
        WHERE wanted IS NULL AND position >= {first} AND position < {end}""" if torn else "")


def numbers(row: Any) -> dict[str, int]:
    """What is not NULL."""
    return {name: int(value) for name, value in row.asDict().items() if value is not None}
