"""
What the job `store-audit` finds, by joins: the log's records against queues and index. Each finding
has the numbers that verification's native passes give (mqcore/store/verify/findings.pxd).
"""
from __future__ import annotations

from typing import Any, Final

from mqcore.layout import CQ_FILLER_RECORD_SIZE
from mqcore.spark.store.entries import EXT_LAST
from mqcore.store.verify.findings import FindingKind, IndexField

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
               unitTagsCode, unix_micros(unitStoreTimestamp) AS unitTime,
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


def queue_findings(first: int, end: int, damaged_from: int) -> str:
    """first, end: of the log; damaged_from: from there on numbers may have gaps (VL3)."""
    kind = FindingKind
    none = "CAST(NULL AS STRING) AS file"
    return f"""
        SELECT {int(kind.FOUND_FIELD)} AS kind, CAST(NULL AS STRING) AS topic,
               CAST(NULL AS INT) AS queueId, {none}, position, detail, 0L AS expected, found
        FROM logged WHERE kind = 'fault'
      UNION ALL
        SELECT {int(kind.FOUND_BAD_RECORD)}, NULL, NULL, NULL, position, 0L, expected, found
        FROM logged WHERE kind = 'trouble'
      UNION ALL
        SELECT IF(found = 0, {int(kind.FOUND_NO_BLANK)}, {int(kind.FOUND_BLANK_SIZE)}), NULL, NULL,
               NULL, position, 0L, expected, found
        FROM logged WHERE kind = 'oddEnd'
      UNION ALL
        SELECT {int(kind.FOUND_OFFSET_GAP)}, topic, queueId, NULL, position, beforePosition,
               before + 1, queueOffset
        FROM (SELECT *, LAG(queueOffset) OVER (PARTITION BY topic, queueId ORDER BY position)
                     AS before, LAG(position) OVER (
                         PARTITION BY topic, queueId ORDER BY position) AS beforePosition
              FROM entries WHERE side = 0)
        WHERE queueOffset > before + 1 AND position < {damaged_from}
      UNION ALL
        SELECT {int(kind.FOUND_ENTRY_POSITION)}, topic, queueId, NULL, position, queueOffset,
               position, foundPosition FROM judged WHERE state = 'wrong'
      UNION ALL
        SELECT {int(kind.FOUND_ENTRY_SIZE)}, topic, queueId, NULL, position, queueOffset, size,
               foundSize FROM judged WHERE state = 'matched' AND foundSize <> size
      UNION ALL
        SELECT {int(kind.FOUND_ENTRY_TAG)}, topic, queueId, NULL, position, queueOffset,
               IF(delivery >= 0, delivery, tagsCode), foundTags
        FROM judged WHERE state = 'matched' AND tagState = 'wrong'
      UNION ALL
        SELECT {int(kind.FOUND_EXT_UNIT)}, topic, queueId, NULL, position, queueOffset, tagsCode,
               foundTags
        FROM judged WHERE state = 'matched' AND tagState = 'unit'
      UNION ALL
        SELECT {int(kind.FOUND_ENTRY_STRAY)}, topic, queueId, NULL, position, queueOffset, 0L,
               position
        FROM there t LEFT ANTI JOIN entries e ON t.topic = e.topic AND t.queueId = e.queueId
             AND t.queueOffset = e.queueOffset AND t.position = e.position
        WHERE isEntry AND NOT isFiller AND position >= {first} AND position < {end}
      UNION ALL
        SELECT {int(kind.FOUND_ENTRY_BEYOND)}, topic, queueId, NULL, position, queueOffset,
               CAST({end} AS BIGINT), position
        FROM there WHERE isEntry AND NOT isFiller AND position >= {end}
      UNION ALL
        SELECT {int(kind.FOUND_ENTRY_ORDER)}, topic, queueId, NULL, position, queueOffset,
               beforePosition, position
        FROM ordered WHERE NOT isFiller AND position <= beforePosition
      UNION ALL
        SELECT {int(kind.FOUND_ENTRY_GARBAGE)}, topic, queueId, NULL, 0L, queueOffset, 0L,
               CAST(size AS BIGINT)
        FROM there WHERE NOT isEntry OR isFiller AND tagsCode <> 0
      UNION ALL
        SELECT {int(kind.FOUND_ENTRY_HOLE)}, o.topic, o.queueId, NULL, 0L,
               COALESCE(before + 1, d.first), 0L, position
        FROM ordered o JOIN disk d ON d.topic = o.topic AND d.queueId = o.queueId
        WHERE queueOffset > COALESCE(before + 1, d.first)"""


def queue_counts(first: int, end: int) -> tuple[str, str]:
    """Of each queue: what the log has of it, and what its files have."""
    return """
        SELECT topic, queueId, SUM(IF(side = 0, 1, 0)) AS records,
               SUM(IF(side = 0, size, 0)) AS bytes, SUM(IF(side = 0, bodyLength, 0)) AS body_bytes,
               COALESCE(MIN(IF(side = 0, storeTime, NULL)) DIV 1000, 0) AS first_time_ms,
               COALESCE(MAX(IF(side = 0, storeTime, NULL)) DIV 1000, 0) AS last_time_ms,
               SUM(IF(state = 'matched', 1, 0)) AS matched,
               SUM(IF(state = 'missing', 1, 0)) AS missing,
               COALESCE(MIN(IF(state = 'missing', queueOffset, NULL)), 0) AS missing_first,
               SUM(IF(state = 'superseded', 1, 0)) AS superseded,
               SUM(IF(state = 'matched' AND tagState = 'plain', 1, 0)) AS plain_delays
        FROM judged GROUP BY topic, queueId""", f"""
        SELECT topic, queueId, MAX(queueOffset) + 1 AS end,
               COALESCE(MIN(IF(NOT isFiller AND position >= {first} AND position < {end},
                               queueOffset, NULL)), -1) AS first_live,
               SUM(IF(NOT isFiller AND position >= {first} AND position < {end}, 1, 0)) AS live,
               SUM(IF(NOT isFiller AND position < {first}, 1, 0)) AS expired,
               SUM(IF(isFiller, 1, 0)) AS fillers,
               SUM(IF(NOT isFiller AND position >= {end}, 1, 0)) AS beyond
        FROM there WHERE isEntry GROUP BY topic, queueId"""


# Of the index: `wanted` are the log's keys, `indexed` the entries, `heads` the files' headers.
INDEX_VIEWS: Final = {
    "wanted": """
        SELECT position, keyHash, COUNT(*) AS wanted, MAX(storeTime) DIV 1000 AS timeMs
        FROM keyed GROUP BY position, keyHash""",
    "placed": """
        SELECT i.file, h.number, i.entry, i.keyHash, i.commitLogOffset AS position, i.seconds,
               h.beginMs, h.endMs, h.nextEntry, h.beforeEndMs, w.wanted, w.timeMs
        FROM indexed i JOIN heads h ON h.file = i.file
        LEFT JOIN wanted w ON w.position = i.commitLogOffset AND w.keyHash = i.keyHash""",
}


def index_findings(first: int, end: int, first_file_counts: bool) -> str:
    """first_file_counts: it is known what the first entry of all counts its seconds from."""
    kind, field = FindingKind, IndexField
    since = ("IF({0} <= 0, 0, LEAST(GREATEST((timeMs - {0}) DIV 1000, 0), 2147483647))").format
    return f"""
        SELECT {int(kind.FOUND_INDEX_STRAY)} AS kind, CAST(NULL AS STRING) AS topic,
               CAST(NULL AS INT) AS queueId, file, position, CAST(entry AS BIGINT) AS detail,
               0L AS expected, CAST(keyHash AS BIGINT) AS found
        FROM placed LEFT ANTI JOIN stretches s ON position >= s.begin AND position < s.further
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


def index_counts(first: int, end: int) -> str:
    """Keys of the log, how many are in the index, once or twice, and how many are not."""
    return f"""
        SELECT COALESCE(SUM(wanted), 0) AS keys, COALESCE(SUM(LEAST(wanted, there)), 0) AS matched,
               COALESCE(SUM(GREATEST(there - wanted, 0)), 0) AS doubled,
               COALESCE(SUM(GREATEST(wanted - there, 0)), 0) AS missing,
               COALESCE(MIN(IF(wanted > there, position, NULL)), -1) AS missing_first
        FROM (SELECT w.position, w.wanted, COALESCE(t.there, 0) AS there FROM wanted w
              LEFT JOIN (SELECT commitLogOffset AS position, keyHash, COUNT(*) AS there
                         FROM indexed WHERE commitLogOffset >= {first} AND commitLogOffset < {end}
                         GROUP BY commitLogOffset, keyHash) t
              ON t.position = w.position AND t.keyHash = w.keyHash)"""


def expired_keys(first: int) -> str:
    return f"SELECT COUNT(*) FROM indexed WHERE commitLogOffset < {first}"


def passed_keys(first: int, end: int) -> str:
    """Entries in stretches of the log that cannot be read."""
    return f"""SELECT COUNT(*) FROM placed LEFT SEMI JOIN stretches s
        ON position >= s.begin AND position < s.further
        WHERE wanted IS NULL AND position >= {first} AND position < {end}"""




def numbers(row: Any) -> dict[str, int]:
    return {name: int(value) for name, value in row.asDict().items() if name not in (
        "topic", "queueId")}
