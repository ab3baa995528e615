"""Dead letters and retries of a group, in SQL: what they have in common, and which are chosen."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mqcore.spark.topics.copies import ORIGIN_PREFIX
from mqcore.wire.properties import ORIGIN_MESSAGE_ID, RETRY_TOPIC, UNIQ_KEY

READ_COLUMNS: Final = ("topic,brokerName,queueId,queueOffset,storeTimestamp,bornHost,msgId,keys,"
                       "tags,properties,reconsumeTimes,bodyCRC")
SENT_COLUMNS: Final = ("topic,body,flag,brokerName,queueId,queueOffset,storeTimestamp,msgId,keys,"
                       "tags,properties")
FIRST_ID: Final = "MQCORE_ORIGIN_MESSAGE_ID"
DEAD, RETRIED = "dead", "retried"
CAUSES: Final = ("EXCEPTION", "exception", "ERROR", "error", "CAUSE", "cause")
CAUSE_LENGTH: Final = 200
PLACE: Final = "brokerName, queueId, queueOffset, storeMs"

# Of a message that is sent again: where it was, beside what it had.
ORIGIN: Final = {
    "MQCORE_ORIGIN_TOPIC": "topic", "MQCORE_ORIGIN_BROKER": "brokerName",
    "MQCORE_ORIGIN_QUEUE_ID": "CAST(queueId AS string)",
    "MQCORE_ORIGIN_OFFSET": "CAST(queueOffset AS string)",
    "MQCORE_ORIGIN_STORE_TIME": "CAST(storeMs AS string)", FIRST_ID: "firstId",
}


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def letters(dead: str, causes: Sequence[str]) -> str:
    """
    Dead letters and retries by what they say of themselves, from the view `stored`.

    dead    the topic of dead letters; all others are of retries
    causes  properties that may say what was wrong, the first that is there counts
    """
    said = "COALESCE(" + "".join(
        f"properties[{_quoted(name)}], " for name in causes) + "NULL)"
    first_line = f"SUBSTRING(SUBSTRING_INDEX({said}, '\\n', 1), 1, {CAUSE_LENGTH})"
    return f"""
        SELECT IF(topic = {_quoted(dead)}, '{DEAD}', '{RETRIED}') AS fate, brokerName, queueId,
            queueOffset, UNIX_MILLIS(storeTimestamp) AS storeMs, storeTimestamp, msgId,
            COALESCE(properties['{FIRST_ID}'], properties['{UNIQ_KEY}'],
                properties['{ORIGIN_MESSAGE_ID}'], msgId) AS firstId,
            properties['{RETRY_TOPIC}'] AS topic, tags, keys, reconsumeTimes AS tries,
            REGEXP_REPLACE(bornHost, ':[0-9]+$', '') AS host,
            REGEXP_REPLACE({first_line}, '[0-9]+', '#') AS cause,
            properties['{RETRY_TOPIC}'] IS NOT NULL AND bodyCRC <> 0 AS sendable, properties
        FROM stored"""


# What messages have in common: by cause, by machine that sent, by key, by tries. What a grouping
# does not go by is null, as is what messages do not have: `by` tells.
CLUSTERS: Final = """
    SELECT fate, CASE WHEN GROUPING(cause) = 0 THEN 'cause' WHEN GROUPING(host) = 0 THEN 'host'
            WHEN GROUPING(key) = 0 THEN 'key' ELSE 'tries' END AS by,
        topic, tags, cause, host, key, tries, COUNT(*) AS rows,
        COUNT(DISTINCT firstId) AS messages, MIN(storeTimestamp) AS first,
        MAX(storeTimestamp) AS last, MIN(firstId) AS example
    FROM (SELECT *, GET(keys, 0) AS key FROM letters)
    GROUP BY GROUPING SETS ((fate, topic, tags, cause), (fate, topic, tags, host),
        (fate, topic, tags, key), (fate, topic, tags, tries))"""


def largest(count: int) -> str:
    """Of each kind the largest clusters."""
    return f"""
        SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY fate, by ORDER BY messages DESC,
                topic, tags, cause, host, key, tries) AS number,
            COUNT(*) OVER (PARTITION BY fate, by) AS clusters FROM ({CLUSTERS}))
        WHERE number <= {count} ORDER BY fate, by, number"""


COUNTS: Final = f"""
    SELECT fate, COUNT(*) AS rows, COUNT(DISTINCT firstId) AS messages,
        COUNT_IF(fate = '{RETRIED}' AND queueOffset >= COALESCE(done.upTo, 0)) AS waiting,
        COUNT_IF(NOT sendable) AS notSendable,
        COUNT(place.queueOffset) AS redriven,
        COUNT_IF(place.queueOffset IS NULL AND ids.firstId IS NOT NULL) AS cameBack
    FROM letters LEFT JOIN done USING (brokerName, queueId)
        LEFT JOIN (SELECT {PLACE} FROM ledger) AS place USING ({PLACE})
        LEFT JOIN (SELECT DISTINCT firstId FROM ledger) AS ids USING (firstId)
    GROUP BY fate"""


def chosen(where: Sequence[str], count: int, *, again: bool) -> str:
    """
    The dead letters that are sent again, the oldest first, each message once.

    where  conditions over `letters`
    again  also messages that were sent again before, and came back
    """
    conditions = "".join(f" AND ({one})" for one in where)
    before = "" if again else "LEFT ANTI JOIN ledger USING (firstId)"
    return f"""
        SELECT {PLACE}, msgId, firstId, topic FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY firstId ORDER BY storeMs DESC, brokerName,
                queueId, queueOffset DESC) AS number
            FROM letters WHERE fate = '{DEAD}' AND sendable{conditions})
            LEFT ANTI JOIN ledger USING ({PLACE}) {before}
        WHERE number = 1 ORDER BY storeMs, brokerName, queueId, queueOffset LIMIT {count}"""


def again() -> str:
    """What is sent, from the views `plan` and `stored`; `number` is its order."""
    origin = ", ".join(f"{_quoted(name)}, {value}" for name, value in ORIGIN.items())
    return f"""
        SELECT number, body, flag, keys, tags, target AS topic, MAP_CONCAT(MAP_FILTER(properties,
                (name, value) -> NOT STARTSWITH(name, '{ORIGIN_PREFIX}')), MAP({origin}))
            AS properties
        FROM (SELECT *, UNIX_MILLIS(storeTimestamp) AS storeMs FROM stored)
            JOIN (SELECT number, {PLACE}, firstId, topic AS target FROM plan) USING ({PLACE})"""
