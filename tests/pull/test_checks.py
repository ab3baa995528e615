"""What a pull is refused for, in the order of broker.md 6.1."""
from __future__ import annotations

from pathlib import Path

import pytest

from tests.pull.puller import Puller, numbered, offsets
from tests.support.mqcore_process import mqcore_up
from tests.wire_live.state import SUBSCRIPTION_TIME_MS

NEVER = "no such topic"
V = SUBSCRIPTION_TIME_MS


def test_a_broker_that_is_not_readable_refuses_every_pull(tmp_path: Path) -> None:
    with mqcore_up(tmp_path, {"broker.permission": 2}) as broker, Puller(broker.broker_addr) as one:
        found = one.pull(NEVER)

    assert (found.code, found.ext) == (16, {})


def test_a_group_has_to_be_configured_where_groups_are_not_made_on_demand(tmp_path: Path) -> None:
    with mqcore_up(tmp_path, {"broker.auto_create_group": False}) as broker, Puller(
            broker.broker_addr) as one:
        assert one.pull(NEVER, consumerGroup="unknown").code == 26
        one.group("known")
        assert one.pull(NEVER, consumerGroup="known").code == 17


def test_a_group_that_may_not_consume_is_refused(puller: Puller, topic: str) -> None:
    puller.batch(topic, numbered(1))
    puller.group("stopped", consumeEnable=False)
    assert puller.pull(topic, consumerGroup="stopped").code == 16

    puller.group("stopped", consumeEnable=True)
    assert puller.pull(topic, consumerGroup="stopped").code == 0


def test_topics_and_queues_are_not_made_by_pulls(puller: Puller, topic: str) -> None:
    assert puller.pull(NEVER).code == 17
    assert puller.pull(NEVER).code == 17
    for queue_id in (-1, 1, 2**31 - 1):
        found = puller.pull(topic, queueId=queue_id)
        assert (found.code, found.ext) == (1, {})
        assert str(queue_id) in (found.remark or "")


def test_a_topic_that_may_not_be_read_is_refused(puller: Puller) -> None:
    puller.ask(17, {
        "topic": "write-only", "defaultTopic": "TBW102", "readQueueNums": "1",
        "writeQueueNums": "1", "perm": "2", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0",
        "order": "false"})

    assert puller.pull("write-only").code == 16
    assert puller.pull("write-only", queueId=7).code == 16


@pytest.mark.parametrize(("kind", "expression"), [
    ("TAG", "||"), ("TAG", " || "), ("SQL92", ""), ("SQL92", None), ("OTHER", ""),
])
def test_an_expression_that_cannot_be_read_is_refused(
    puller: Puller, topic: str, kind: str, expression: str | None
) -> None:
    assert puller.pull(topic, expressionType=kind, subscription=expression).code == 23


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_no_tag_expression_means_everything(
    puller: Puller, topic: str, expression: str | None
) -> None:
    puller.batch(topic, numbered(3))

    assert offsets(puller.pull(topic, subscription=expression)) == [0, 1, 2]
    assert offsets(puller.pull(topic, subscription=expression, expressionType=None)) == [0, 1, 2]


def test_a_pull_without_subscription_needs_its_groups_heartbeat(puller: Puller, topic: str) -> None:
    puller.batch(topic, numbered(2))
    assert puller.known(topic, "beats").code == 24

    puller.beat("beats", {"another": ("TAG", "*", V)})
    assert puller.known(topic, "beats").code == 24
    puller.beat("beats", {topic: ("TAG", "*", V)})
    assert puller.known(topic, "beats").code == 0
    assert puller.known(topic, "beats", subVersion=V - 1).code == 0
    assert puller.known(topic, "beats", subVersion=V + 1).code == 25
    puller.beat("beats", {"another": ("TAG", "*", V)})
    assert puller.known(topic, "beats").code == 24


def test_a_group_that_may_not_broadcast_is_refused(puller: Puller, topic: str) -> None:
    puller.batch(topic, numbered(1))
    puller.beat("casts", {topic: ("TAG", "*", V)}, model="BROADCASTING")
    assert puller.known(topic, "casts").code == 0

    puller.group("casts", consumeBroadcastEnable=False)
    assert puller.known(topic, "casts").code == 16
    assert puller.pull(topic, consumerGroup="casts").code == 0        # it brings its subscription
    puller.beat("casts", {topic: ("TAG", "*", V)})
    assert puller.known(topic, "casts").code == 0


def test_a_subscription_whose_expression_does_not_compile_has_no_filter(
    puller: Puller, topic: str
) -> None:
    puller.batch(topic, numbered(4))
    puller.beat("broken", {topic: ("SQL92", "n >", V)})
    assert puller.known(topic, "broken").code == 27

    puller.beat("broken", {topic: ("SQL92", "n > 1", V + 1)})
    assert offsets(puller.known(topic, "broken", subVersion=V + 1)) == [2, 3]
    puller.beat("broken", {topic: ("OTHER", "n > 1", V + 2)})
    assert puller.known(topic, "broken", subVersion=V + 2).code == 27


def test_where_sql92_is_not_enabled_expressions_are_refused(tmp_path: Path) -> None:
    off: dict[str, object] = {"broker.property_filter_enable": False}
    with mqcore_up(tmp_path, off) as broker, Puller(broker.broker_addr) as one:
        one.topic("T", 1)
        one.batch("T", numbered(2))
        assert one.sql("T", "n > 0").code == 1
        assert one.sql("T", "n >").code == 1
        assert one.sql("T", "").code == 23
        one.beat("G", {"T": ("SQL92", "n > 0", V)})
        assert one.known("T", "G").code == 1
        assert one.known("T", "G", subVersion=V + 1).code == 25
        one.beat("H", {"T": ("SQL92", "n >", V)})
        assert one.known("T", "H").code == 27
        assert one.pull("T").code == 0


@pytest.mark.parametrize("field", ["queueId", "queueOffset", "maxMsgNums", "sysFlag",
                                   "commitOffset", "suspendTimeoutMillis", "subVersion"])
def test_a_field_that_is_no_number_is_named(puller: Puller, topic: str, field: str) -> None:
    found = puller.pull(topic, **{field: "x1"})

    assert found.code == 1
    assert field in (found.remark or "")


def test_a_filter_that_is_older_than_its_subscription_is_refused(
    puller: Puller, topic: str
) -> None:
    puller.batch(topic, numbered(3))
    puller.beat("older", {topic: ("SQL92", "n > 1", V)})
    puller.beat("older", {topic: ("SQL92", "", V + 1)})        # no expression: no new filter

    assert puller.known(topic, "older", subVersion=V + 1).code == 28
    assert offsets(puller.known(topic, "older", subVersion=V)) == [2]
