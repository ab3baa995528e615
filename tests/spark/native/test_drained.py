"""When a group that is moved has consumed all of the old cluster."""
from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from mqcore.client.message import MessageQueue
from mqcore.spark.jobs.migrate.phases import has_consumed

FIRST, SECOND = (MessageQueue("orders", "a", queue) for queue in range(2))
RETRIES = MessageQueue("%RETRY%billing", "a", 0)
OTHER = MessageQueue("other", "a", 0)


@pytest.mark.parametrize(("offsets", "ends", "consumed"), [
    ({FIRST: 5, SECOND: 3}, {FIRST: 5, SECOND: 3, OTHER: 9}, True),
    ({FIRST: 5, SECOND: 2}, {FIRST: 5, SECOND: 3}, False),
    ({FIRST: 5}, {FIRST: 5, SECOND: 3}, False),
    ({FIRST: 5}, {FIRST: 5, SECOND: 0, RETRIES: 0}, True),
    ({FIRST: 5}, {FIRST: 5, RETRIES: 2}, False),
    ({FIRST: 5, RETRIES: 2}, {FIRST: 5, RETRIES: 2}, True),
    ({}, {OTHER: 9}, False),
], ids=["all", "behind", "a queue never read", "empty queues", "retries never read", "retries read",
        "nothing"])
def test_a_group_has_consumed_all_of_its_topics_and_its_retries(
        offsets: dict[MessageQueue, int], ends: dict[MessageQueue, int], *, consumed: bool) -> None:
    assert has_consumed("billing", offsets, ends) is consumed
