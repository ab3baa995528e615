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
               size > 0 AS isEntry, NOT (size > 0) OR (size = {CQ_FILLER_RECORD_SIZE}
                   AND commitLogOffset = 0 AND tagsCode <> 0) AS isGarbage
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

# -- a difference that 64 bits do not hold is a large one, in Java and in our own index
_SINCE: Final = ("IF({0} <= 0, 0, LEAST(GREATEST(COALESCE(try_subtract(timeMs, {0}) DIV 1000, "
                 "2147483647), 0), 2147483647))")
_WRONG_SECONDS: Final = f"""wanted IS NOT NULL AND seconds <> {_SINCE.format('beginMs')}
             AND NOT (entry = 1 AND number > 0 AND seconds = {_SINCE.format('beforeEndMs')})"""


def in_placed(first: int, end: int) -> dict[FindingKind, str]:
    """The same of the index; entries of stretches that cannot be read may be among the strays."""
    return {
        FindingKind.FOUND_INDEX_STRAY:
            f"wanted IS NULL AND position >= {first} AND position < {end}",
        FindingKind.FOUND_INDEX_BEYOND: f"position >= {end}",
        FindingKind.FOUND_INDEX_HEADER: "wanted IS NOT NULL AND (entry = 1 AND beginMs <> timeMs"
                                        " OR entry = nextEntry - 1 AND endMs <> timeMs)",
        FindingKind.FOUND_INDEX_SECONDS: _WRONG_SECONDS}


_NOTHING: Final = """
        SELECT 0 AS kind, '' AS topic, 0 AS queueId, '' AS file, 0L AS position, 0L AS detail,
               0L AS expected, 0L AS found WHERE FALSE"""


def _together(queries: list[str]) -> str:
    """One query of findings; empty: there is nothing to look for."""
    return "\n      UNION ALL".join([_NOTHING, *queries]) if queries else ""


def queue_findings(first: int, end: int, damaged_from: int, there: Collection[FindingKind]) -> str:
    """
    first, end    of the log
    damaged_from  from there on numbers may have gaps (walk VL3)
    there         what there is, or may be; empty, where that is nothing
    """
    kind = FindingKind
    lookups = {
        kind.FOUND_OFFSET_GAP: f"""
        SELECT {int(kind.FOUND_OFFSET_GAP)}, topic, queueId, NULL, position, beforePosition,
               try_add(before, 1L), queueOffset
        FROM (SELECT *, LAG(queueOffset) OVER (PARTITION BY topic, queueId ORDER BY position)
                     AS before, LAG(position) OVER (
                         PARTITION BY topic, queueId ORDER BY position) AS beforePosition
              FROM entries WHERE side = 0)
        WHERE before >= -1 AND queueOffset > try_add(before, 1L)
              AND position < {damaged_from}""",
        kind.FOUND_ENTRY_STRAY: f"""
        SELECT {int(kind.FOUND_ENTRY_STRAY)}, topic, queueId, NULL, position, queueOffset, 0L,
               position
        FROM there t LEFT ANTI JOIN entries e ON t.topic = e.topic AND t.queueId = e.queueId
             AND t.queueOffset = e.queueOffset AND t.position = e.position
        WHERE isEntry AND NOT isFiller AND position >= {first} AND position < {end}""",
        kind.FOUND_ENTRY_BEYOND: f"""
        SELECT {int(kind.FOUND_ENTRY_BEYOND)}, topic, queueId, NULL, position, queueOffset,
               CAST({end} AS BIGINT), position
        FROM there WHERE isEntry AND NOT isFiller AND position >= {end}""",
        kind.FOUND_ENTRY_GARBAGE: f"""
        SELECT {int(kind.FOUND_ENTRY_GARBAGE)}, topic, queueId, NULL, 0L, queueOffset, 0L,
               CAST(size AS BIGINT)
        FROM there WHERE isGarbage""",
        kind.FOUND_ENTRY_ORDER: f"""
        SELECT {int(kind.FOUND_ENTRY_ORDER)}, topic, queueId, NULL, position, queueOffset,
               beforePosition, position
        FROM ordered WHERE NOT isFiller AND position <= beforePosition""",
        kind.FOUND_ENTRY_HOLE: f"""
        SELECT {int(kind.FOUND_ENTRY_HOLE)}, o.topic, o.queueId, NULL, 0L,
               COALESCE(before + 1, d.first), 0L, position
        FROM ordered o JOIN disk d ON d.topic = o.topic AND d.queueId = o.queueId
        WHERE queueOffset > COALESCE(before + 1, d.first)"""}
    for each, condition in IN_LOG.items():
        detail, expected = ("detail", "0L") if each == kind.FOUND_FIELD else ("0L", "expected")
        lookups[each] = f"""
        SELECT {int(each)}, NULL, NULL, NULL, position, {detail}, {expected}, found
        FROM logged WHERE {condition}"""
    shown = {
        kind.FOUND_ENTRY_POSITION: "position, foundPosition",
        kind.FOUND_ENTRY_SIZE: "size, foundSize",
        kind.FOUND_ENTRY_TAG: "IF(delivery >= 0, delivery, tagsCode), foundTags",
        kind.FOUND_EXT_UNIT: "tagsCode, foundTags"}
    for each, condition in IN_JUDGED.items():
        lookups[each] = f"""
        SELECT {int(each)}, topic, queueId, NULL, position, queueOffset, {shown[each]}
        FROM judged WHERE {condition}"""
    return _together([text for each, text in lookups.items() if each in there])


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
        COUNT(restarted) AS restarted,
        IF(COUNT_IF(side = 0) = 0, 0L, COALESCE(try_subtract(MAX(IF(side = 0, queueOffset, NULL)),
            MIN(IF(side = 0, queueOffset, NULL))), -2L) - COUNT_IF(side = 0) + 1) AS gaps,
        {_counts(IN_JUDGED)}"""
    on_disk = f"""
        COUNT_IF(isEntry) AS entries, MAX(queueOffset) + 1 AS end, COUNT_IF(isGarbage) AS garbage,
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
        FROM (SELECT topic, queueId, IF(isEntry, queueOffset, NULL) AS queueOffset,
                     IF(isEntry, position, NULL) AS position, isEntry AND isFiller AS isFiller,
                     isEntry, isGarbage FROM there)
        GROUP BY topic, queueId"""


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


def index_findings(first: int, end: int, first_file_counts: bool, there: Collection[FindingKind],
                   *, torn: bool) -> str:
    """
    first_file_counts  it is known what the first entry of all counts its seconds from
    there              of `in_placed`: what there is, or may be; empty, where that is nothing
    torn               there are stretches that cannot be read
    """
    kind, field = FindingKind, IndexField
    unread = ("LEFT ANTI JOIN stretches s ON position >= s.begin AND position < s.further"
              if torn else "")
    since = _SINCE.format
    lookups = {
        kind.FOUND_INDEX_STRAY: f"""
        SELECT {int(kind.FOUND_INDEX_STRAY)}, NULL, NULL, file, position, CAST(entry AS BIGINT), 0L,
               CAST(keyHash AS BIGINT)
        FROM placed {unread}
        WHERE wanted IS NULL AND position >= {first} AND position < {end}""",
        kind.FOUND_INDEX_BEYOND: f"""
        SELECT {int(kind.FOUND_INDEX_BEYOND)}, NULL, NULL, file, position, entry, {end}, keyHash
        FROM placed WHERE position >= {end}""",
        kind.FOUND_INDEX_HEADER: f"""
        SELECT {int(kind.FOUND_INDEX_HEADER)}, NULL, NULL, file, position,
               {int(field.INDEX_FIELD_BEGIN_TIME)}, timeMs, beginMs
        FROM placed WHERE wanted IS NOT NULL AND entry = 1 AND beginMs <> timeMs
      UNION ALL
        SELECT {int(kind.FOUND_INDEX_HEADER)}, NULL, NULL, file, position,
               {int(field.INDEX_FIELD_END_TIME)}, timeMs, endMs
        FROM placed WHERE wanted IS NOT NULL AND entry = nextEntry - 1 AND endMs <> timeMs""",
        kind.FOUND_INDEX_SECONDS: f"""
        SELECT {int(kind.FOUND_INDEX_SECONDS)}, NULL, NULL, file, position, entry,
               IF(entry = 1 AND number > 0, {since('beforeEndMs')}, {since('beginMs')}), seconds
        FROM placed WHERE {_WRONG_SECONDS}
             AND NOT (entry = 1 AND number = 0 AND {str(not first_file_counts).upper()})"""}
    return _together([text for each, text in lookups.items() if each in there])


def index_counts(first: int, end: int, *, torn: bool) -> str:
    """
    Keys of the log, how many are in the index, once or twice, and how many are not; in rows of
    their own the entries of what the log has no more, and of stretches that cannot be read. And
    what is wrong in entries.
    """
    wrong = in_placed(first, end)
    nulls = ", NULL" * len(wrong)
    counted = f"""
        SELECT COALESCE(SUM(wanted), 0) AS keys,
               COALESCE(SUM(LEAST(wanted, there)), 0) AS keys_matched,
               COALESCE(SUM(GREATEST(there - wanted, 0)), 0) AS keys_doubled,
               COALESCE(SUM(GREATEST(wanted - there, 0)), 0) AS keys_missing,
               COALESCE(MIN(IF(wanted > there, position, NULL)), -1) AS keys_missing_first,
               NULL AS keys_expired, NULL AS keys_passed
               {"".join(f", NULL AS {kind.name}" for kind in wrong)}
        FROM (SELECT w.position, w.wanted, COALESCE(t.there, 0) AS there FROM wanted w
              LEFT JOIN (SELECT position, keyHash, COUNT(*) AS there
                         FROM placed WHERE position >= {first} AND position < {end}
                         GROUP BY position, keyHash) t
              ON t.position = w.position AND t.keyHash = w.keyHash)
      UNION ALL
        SELECT NULL, NULL, NULL, NULL, NULL, COUNT_IF(position < {first}), NULL, {_counts(wrong)}
        FROM placed"""
    return counted + (f"""
      UNION ALL
        SELECT NULL, NULL, NULL, NULL, NULL, NULL, COUNT(*){nulls}
        FROM placed LEFT SEMI JOIN stretches s ON position >= s.begin AND position < s.further
        WHERE wanted IS NULL AND position >= {first} AND position < {end}""" if torn else "")


def numbers(row: Any) -> dict[str, int]:
    """What is not NULL."""
    return {name: int(value) for name, value in row.asDict().items() if value is not None}
