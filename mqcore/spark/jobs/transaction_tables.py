"""
The joins of the job `transactions`, in SQL over views (broker.md 5).

`halves`, `given_up`   records of the half topic, and of the topic of those that were given up
`ops`, `finals`        op records; records that a commit has stored
`passed`               how far each broker's check is: half messages below it were settled

A half message stands once for each question: a check stores it again at the end, with one more
question in its properties. An op names one of these copies; what a commit stores names its place in
the log.
"""
from __future__ import annotations

from typing import Final

HALF_COLUMNS: Final = ("brokerName,queueOffset,commitLogOffset,storeTimestamp,bornTimestamp,"
                       "bornHost,bodyCRC,properties,keys,tags")
OP_COLUMNS: Final = "brokerName,queueOffset,storeTimestamp,tags,body"
FINAL_COLUMNS: Final = ("brokerName,topic,queueId,queueOffset,storeTimestamp,sysFlag,"
                        "preparedTransactionOffset")

STATES: Final = ("committed", "rolled back", "ended", "open", "given up", "forgotten")
_TRANSACTION_BITS: Final = 12
_COMMIT: Final = 8

# Whose copy a half message is: all copies keep the producer's id. Without one, what else they keep.
_ID: Final = """COALESCE(properties['UNIQ_KEY'], properties['__transactionId__'], SHA1(CONCAT_WS(
    '|', properties['REAL_TOPIC'], properties['REAL_QID'], properties['KEYS'], bornHost,
    UNIX_MILLIS(bornTimestamp), bodyCRC)))"""


def half_view(source: str) -> str:
    """Half messages, or given up ones, by what they say of themselves."""
    return f"""
        SELECT COALESCE(brokerName, '') AS broker, queueOffset AS half, commitLogOffset AS place,
            storeTimestamp AS stored, bornTimestamp AS born, bornHost AS client, {_ID} AS id,
            COALESCE(properties['PGROUP'], '') AS producerGroup,
            properties['REAL_TOPIC'] AS topic, TRY_CAST(properties['REAL_QID'] AS int) AS queueId,
            COALESCE(TRY_CAST(properties['TRANSACTION_CHECK_TIMES'] AS int), 0) AS checks,
            keys, tags
        FROM {source}"""


# Later brokers write several offsets into one op record.
NAMED: Final = """
    SELECT broker, half, COUNT(*) AS ops, MIN(stored) AS opAt
    FROM (SELECT COALESCE(brokerName, '') AS broker, storeTimestamp AS stored,
            TRY_CAST(TRIM(name) AS bigint) AS half
        FROM ops LATERAL VIEW EXPLODE(SPLIT(CAST(body AS string), ',')) AS name WHERE tags = 'd')
    WHERE half IS NOT NULL GROUP BY broker, half"""

COMMITTED: Final = f"""
    SELECT COALESCE(brokerName, '') AS broker, preparedTransactionOffset AS place,
        COUNT(*) AS commits, MIN(storeTimestamp) AS commitAt,
        MIN_BY(queueOffset, storeTimestamp) AS queueOffset
    FROM finals WHERE sysFlag & {_TRANSACTION_BITS} = {_COMMIT}
    GROUP BY COALESCE(brokerName, ''), preparedTransactionOffset"""

# `left`: a copy that the check looks at again, unless it was passed: nothing ended it, it was not
# asked about (that makes a later copy with more questions), nor given up.
COPIES: Final = """
    SELECT *, ops = 0 AND commits = 0 AND place > lostPlace AND moreChecks <= checks AS left
    FROM (SELECT one.*, COALESCE(named.ops, 0) AS ops, named.opAt,
            COALESCE(committed.commits, 0) AS commits, committed.commitAt, committed.queueOffset,
            lost.stored AS lostAt, COALESCE(lost.place, -1) AS lostPlace, passed.half AS passed,
            COALESCE(MAX(one.checks) OVER (PARTITION BY one.broker, one.id ORDER BY one.half
                ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING), 0) AS moreChecks
        FROM half AS one
            LEFT JOIN named ON named.broker = one.broker AND named.half = one.half
            LEFT JOIN committed ON committed.broker = one.broker AND committed.place = one.place
            LEFT JOIN (SELECT broker, id, MAX(place) AS place, MAX(stored) AS stored FROM lost
                GROUP BY broker, id) AS lost ON lost.broker = one.broker AND lost.id = one.id
            LEFT JOIN passed ON passed.broker = one.broker)"""

# A message that was sent twice, or that an operator had asked about anew, has begun twice: then one
# of its copies may be rolled back, and another committed.
TOGETHER: Final = """
    SELECT broker, id, FIRST(producerGroup) AS producerGroup, FIRST(topic) AS topic,
        FIRST(queueId) AS queueId, FIRST(keys) AS keys, FIRST(tags) AS tags,
        MIN_BY(client, half) AS client, MIN(born) AS sentAt, MIN(stored) AS storedAt,
        COUNT(*) AS copies, MAX(checks) AS checks, SUM(commits) AS commits,
        SUM(GREATEST(ops - commits, 0)) AS rollbacks, SUM(GREATEST(commits - ops, 0)) AS opsMissing,
        COUNT_IF(checks = 0) AS begun, COUNT_IF(commits > 0 AND ops > commits) AS bothWays,
        COUNT_IF(left) AS copiesLeft, COUNT_IF(left AND half < passed) AS copiesPassed,
        MIN(commitAt) AS commitAt, MIN_BY(checks, commitAt) AS commitChecks,
        MIN_BY(queueOffset, commitAt) AS queueOffset,
        MIN(IF(ops > commits, opAt, NULL)) AS rollbackAt,
        MIN_BY(checks, IF(ops > commits, opAt, NULL)) AS rollbackChecks,
        MAX(lostAt) AS lostAt, MAX(half) AS halfOffset, MAX_BY(place, half) AS commitLogOffset
    FROM copies GROUP BY broker, id"""


def transactions(gone: list[str]) -> str:
    """
    One row for each transaction.

    gone  topics that are not there any more: what is in them was committed or rolled back
    """
    lost = ", ".join("'" + topic.replace("\\", "\\\\").replace("'", "\\'") + "'" for topic in gone)
    ended = f"topic IN ({lost})" if gone else "false"
    return f"""
        SELECT NULLIF(broker, '') AS brokerName, producerGroup, id AS transactionId, topic, queueId,
            keys, tags, client, state, sentAt, storedAt, decidedAt,
            GREATEST(UNIX_MILLIS(COALESCE(decidedAt, asOf)) - UNIX_MILLIS(storedAt), 0) AS openMs,
            CASE state WHEN 'committed' THEN commitChecks WHEN 'rolled back' THEN rollbackChecks
                WHEN 'ended' THEN rollbackChecks ELSE checks END AS checks,
            copies, commits, rollbacks, opsMissing, copiesLeft, queueOffset, halfOffset,
            commitLogOffset,
            CASE WHEN commits > 1 THEN 'committed more than once'
                WHEN bothWays > 0 OR (commits > 0 AND rollbacks > 0 AND begun <= 1)
                    THEN 'committed and rolled back'
                WHEN commits > 0 AND copiesLeft > copiesPassed THEN 'committed, and asked again'
                WHEN state = 'forgotten' THEN 'passed by the check without an end'
            END AS conflict
        FROM (SELECT *, CASE state WHEN 'committed' THEN commitAt WHEN 'rolled back' THEN rollbackAt
                WHEN 'ended' THEN rollbackAt WHEN 'given up' THEN lostAt END AS decidedAt
            FROM (SELECT *, CASE WHEN commits > 0 THEN 'committed'
                    WHEN copiesLeft > copiesPassed THEN 'open'
                    WHEN rollbacks > 0 AND {ended} THEN 'ended'
                    WHEN rollbacks > 0 THEN 'rolled back'
                    WHEN copiesLeft > 0 THEN 'forgotten' ELSE 'given up' END AS state
                FROM together)) CROSS JOIN clock"""


# Sums by producer group and topic, and by producer group and the machine that sent.
SUMS: Final = f"""
    SELECT producerGroup, topic, host, COUNT(*) AS transactions,
        {", ".join(f"COUNT_IF(state = '{state}') AS `{state}`" for state in STATES)},
        SUM(checks) AS checks, SUM(copies) AS copies, COUNT(conflict) AS conflicts,
        SUM(opsMissing) AS opsMissing,
        PERCENTILE(openMs, ARRAY(0.5, 0.95, 1.0)) AS openMs, MIN(openMs) AS openMsMin
    FROM (SELECT *, REGEXP_REPLACE(client, ':[0-9]+$', '') AS host FROM transactions)
    GROUP BY GROUPING SETS ((), (producerGroup, topic), (producerGroup, host))
    ORDER BY producerGroup, topic, host"""


def lists(count: int) -> str:
    """What somebody should look at: the oldest of each kind."""
    return f"""
        SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY kind ORDER BY storedAt,
                transactionId) AS number
            FROM (SELECT *, EXPLODE(FILTER(ARRAY(
                    IF(state IN ('open', 'given up'), state, NULL),
                    IF(conflict IS NOT NULL, 'conflicts', NULL)), one -> one IS NOT NULL)) AS kind
                FROM transactions))
        WHERE number <= {count} ORDER BY kind, number"""


STRANGERS: Final = """
    SELECT (SELECT COUNT(*) FROM named LEFT ANTI JOIN half USING (broker, half)) AS opsWithoutHalf,
        (SELECT COUNT(*) FROM committed LEFT ANTI JOIN half USING (broker, place))
            AS commitsWithoutHalf"""
