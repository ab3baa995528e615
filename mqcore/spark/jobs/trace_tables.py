"""
What clients with tracing told (client.md 7.1), in SQL over frames that are batches or streams.

A trace message has many records; their fields end with character 1, records with 2. A record may
be there twice, when a client's trace message was sent again: `line` tells.
"""
from __future__ import annotations

from typing import Final

from mqcore.client.admin.traces import CONTEXTS
from mqcore.client.core.trace import FIELD_END, RECORD_END

READ_COLUMNS: Final = "body,bornHost,storeTimestamp"
KINDS: Final = ("Pub", "SubBefore", "SubAfter", "EndTransaction")
CLOCKS: Final = "INTERVAL 1 MINUTE"     # that a consumer's clock may be behind its producer's
PERCENTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


def _text(number: int) -> str:
    return f"NULLIF(NULLIF(GET(f, {number}), 'null'), '')"


def _by_kind(**places: int) -> str:
    """The field of each kind of record; null for other kinds."""
    return "CASE kind " + " ".join(
        f"WHEN '{kind}' THEN {_text(place)}" for kind, place in places.items()) + " END"


def _number(text: str) -> str:
    return f"TRY_CAST({text} AS bigint)"


_TIME: Final = _number(_by_kind(Pub=1, SubBefore=1, SubAfter=7, EndTransaction=1))
_OUTCOMES: Final = ", ".join(f"'{name}'" for name in CONTEXTS)

# Clients of 4.4 end a `Pub` before the broker's id, later ones put their address behind it; those
# in a cloud end a `SubAfter` before its time, which is that of the trace message then.
EVENTS: Final = f"""
    SELECT kind, line,
        COALESCE(TIMESTAMP_MILLIS({_TIME}), IF(kind = 'SubAfter', stored, NULL)) AS at,
        {_by_kind(Pub=3, SubBefore=3, SubAfter=8, EndTransaction=3)} AS group,
        {_by_kind(Pub=4, EndTransaction=4)} AS topic,
        {_by_kind(Pub=5, SubBefore=5, SubAfter=2, EndTransaction=5)} AS msgId,
        {_by_kind(SubBefore=4, SubAfter=1)} AS requestId,
        COALESCE({_by_kind(Pub=14, SubBefore=8)}, host) AS host,
        {_number(_by_kind(Pub=10, SubAfter=3))} AS costMs,
        CASE kind WHEN 'Pub' THEN IF(SIZE(f) >= 14, {_text(13)}, {_text(12)})
            WHEN 'SubAfter' THEN {_text(4)} END = 'true' AS success,
        {_number(_by_kind(SubBefore=6))} AS retries,
        GET(ARRAY({_OUTCOMES}), TRY_CAST({_by_kind(SubAfter=6)} AS int)) AS outcome,
        {_by_kind(Pub=6, EndTransaction=6)} AS tags,
        {_by_kind(Pub=7, SubBefore=7, SubAfter=5, EndTransaction=7)} AS keys,
        {_by_kind(Pub=8, EndTransaction=8)} AS broker,
        {_number(_by_kind(Pub=9))} AS bodyLength,
        {_by_kind(EndTransaction=11)} AS state,
        {_by_kind(EndTransaction=12)} = 'true' AS fromCheck
    FROM (SELECT GET(SPLIT(line, '{FIELD_END}'), 0) AS kind, SPLIT(line, '{FIELD_END}') AS f, line,
            REGEXP_REPLACE(bornHost, ':[0-9]+$', '') AS host, storeTimestamp AS stored
        FROM traces LATERAL VIEW EXPLODE(SPLIT(CAST(body AS string), '{RECORD_END}')) AS line
        WHERE TRIM(line) <> '')"""

READABLE: Final = f"at IS NOT NULL AND msgId IS NOT NULL AND kind IN {KINDS}"


def _spread(what: str) -> str:
    shares = ", ".join(map(str, PERCENTILES.values()))
    return f"PERCENTILE({what}, ARRAY({shares}))"


def _window(seconds: float | None) -> tuple[str, str]:
    """What of a window is shown, and grouped by; of all time: nothing."""
    if seconds is None:
        return "CAST(NULL AS timestamp) AS begin", ""
    return "window.start AS begin", f"WINDOW(at, '{seconds:g} seconds'), "


def calls(window_s: float | None) -> str:
    """Sends by topic, and calls of listeners, by group and machine: how many, and how long."""
    shown, grouped = _window(window_s)
    return f"""
        SELECT {shown}, what, topic, group, host, COUNT_IF(kind <> 'SubBefore') AS calls,
            COUNT_IF(NOT success) AS failed, COUNT_IF(kind = 'SubBefore') AS begun,
            COUNT_IF(retries > 0) AS retried, {_spread('costMs')} AS ms
        FROM (SELECT *, IF(kind = 'Pub', 'produce', 'consume') AS what FROM events
            WHERE kind <> 'EndTransaction')
        GROUP BY {grouped}what, topic, group, host"""


def ways(window_s: float | None, latest_s: float) -> str:
    """From the begin of a send to the end of a listener's call, by topic, group and machine."""
    shown, grouped = _window(window_s)
    return f"""
        SELECT {shown}, 'end to end' AS what, topic, group, host, COUNT(*) AS calls,
            COUNT_IF(NOT success) AS failed, CAST(0 AS bigint) AS begun,
            CAST(0 AS bigint) AS retried, {_spread('IF(success, ms, NULL)')} AS ms
        FROM (SELECT after.at, sent.topic, after.group, after.host, after.success,
                UNIX_MILLIS(after.at) - UNIX_MILLIS(sent.at) AS ms
            FROM (SELECT at, topic, msgId FROM events WHERE kind = 'Pub' AND success) AS sent
            JOIN (SELECT at, msgId, group, host, success FROM after
                WHERE kind = 'SubAfter') AS after
            ON sent.msgId = after.msgId AND after.at >= sent.at - {CLOCKS}
                AND after.at <= sent.at + INTERVAL '{latest_s:f}' SECOND)
        GROUP BY {grouped}topic, group, host"""


def spans(latest_s: float) -> str:
    """One row for each call of a listener, and each send that none is known of."""
    return f"""
        WITH sent AS (SELECT msgId, MIN(at) AS sentAt, MAX_BY(costMs, at) AS sendMs,
                MAX(success) AS sent, COUNT(*) AS sends, FIRST(topic) AS topic,
                FIRST(tags) AS tags, FIRST(keys) AS keys, FIRST(group) AS producerGroup,
                MAX_BY(host, at) AS producerHost, MAX_BY(broker, at) AS broker,
                FIRST(bodyLength) AS bodyLength
            FROM events WHERE kind = 'Pub' GROUP BY msgId),
        ended AS (SELECT msgId, MAX_BY(state, at) AS state, MAX(at) AS decidedAt,
                MAX_BY(fromCheck, at) AS fromCheck
            FROM events WHERE kind = 'EndTransaction' GROUP BY msgId),
        called AS (SELECT COALESCE(a.msgId, b.msgId) AS msgId,
                COALESCE(a.requestId, b.requestId) AS requestId, b.at AS begunAt, a.at AS doneAt,
                COALESCE(b.group, a.group) AS consumerGroup,
                COALESCE(b.host, a.host) AS consumerHost, b.retries, a.costMs AS consumeMs,
                a.success AS consumed, a.outcome
            FROM (SELECT * FROM events WHERE kind = 'SubBefore') AS b
            FULL JOIN (SELECT * FROM events WHERE kind = 'SubAfter') AS a
            ON a.msgId = b.msgId AND a.requestId = b.requestId)
        SELECT *, IF(consumed AND doneAt <= sentAt + INTERVAL '{latest_s:f}' SECOND,
            UNIX_MILLIS(doneAt) - UNIX_MILLIS(sentAt), NULL) AS endToEndMs
        FROM sent FULL JOIN called USING (msgId) LEFT JOIN ended USING (msgId)"""


ENDS: Final = """
    SELECT group AS producerGroup, topic, state, fromCheck, COUNT(*) AS count FROM events
    WHERE kind = 'EndTransaction' GROUP BY group, topic, state, fromCheck ORDER BY ALL"""
