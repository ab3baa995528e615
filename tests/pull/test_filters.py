"""What filters let pass (broker.md 6.3, 7.7); they outlive the processes that know them."""
from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from mqcore.wire.tags import java_string_hash
from tests.pull.puller import Puller, all_matching, next_offset, numbered, offsets
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until
from tests.wire_live.state import SUBSCRIPTION_TIME_MS

V = SUBSCRIPTION_TIME_MS
FILTERS: dict[str, object] = {"broker.property_filter_enable": True}


def role(broker: MqcoreProcess, name: str) -> int:
    """The process id of one of the broker's processes."""
    for pid in broker.family():
        title = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        if name in title:
            return pid
    raise AssertionError(f"no process {name}")


def kill_and_wait(broker: MqcoreProcess, name: str) -> None:
    old = role(broker, name)
    os.kill(old, signal.SIGKILL)

    def is_new() -> bool:
        try:
            return role(broker, name) != old
        except (AssertionError, OSError):
            return False

    wait_until(is_new, f"{name} is started again")


# -- tags ------------------------------------------------------------------------------------------


def test_tags_are_compared_by_code_and_collisions_pass(puller: Puller, topic: str) -> None:
    assert java_string_hash("Aa") == java_string_hash("BB")
    puller.batch(topic, [{"TAGS": tag} for tag in ("Aa", "BB", "C")] + [{"n": "1"}])

    assert offsets(puller.pull(topic, subscription="Aa")) == [0, 1]
    assert offsets(puller.pull(topic, subscription=" C  || Aa ")) == [0, 1, 2]
    assert offsets(puller.pull(topic, subscription="A")) == []


@pytest.mark.parametrize("count", [1, 240, 241, 3000])
def test_any_number_of_tags_may_be_subscribed(puller: Puller, topic: str, count: int) -> None:
    puller.batch(topic, [{"TAGS": f"tag{number}"} for number in range(count - 2, count + 2)])
    expression = " || ".join(f"tag{number}" for number in range(count))

    wanted = [0, 1] if count > 1 else [1]
    assert offsets(puller.pull(topic, subscription=expression)) == wanted
    assert offsets(puller.pull(topic, subscription=expression)) == wanted
    puller.beat("many", {topic: ("TAG", expression, V + count)})
    assert offsets(puller.known(topic, "many", subVersion=V + count)) == wanted
    puller.beat("many", {topic: ("TAG", "tag0", V + count + 1)})
    assert len(offsets(puller.known(topic, "many", subVersion=V + count + 1))) == (count <= 2)


def test_an_expression_with_the_same_tag_many_times_is_one_tag(puller: Puller, topic: str) -> None:
    puller.batch(topic, numbered(20))

    assert offsets(puller.pull(topic, subscription="||".join(["t3"] * 500))) == [3, 13]


# -- expressions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("expression", "wanted"), [
    ("n > 6", [7, 8, 9]), ("n BETWEEN 2 AND 4 AND TAGS <> 't3'", [2, 4]),
    ("TAGS IN ('t1', 't5')", [1, 5]), ("missing IS NULL AND n < 2", [0, 1]),
    ("TAGS > 1 OR n = 1", []),                         # raising ends it, also under OR
    ("n = 1 OR TAGS > 1", [1]), ("missing > 1 OR n = 1", [1]),
    ("n = 5 rest is ignored", [5]), ("1 = 2", []), ("1 = 1", None),
])
def test_an_expression_selects_by_properties(
    puller: Puller, topic: str, expression: str, wanted: list[int] | None
) -> None:
    puller.batch(topic, numbered(10))
    wanted = list(range(10)) if wanted is None else wanted

    assert offsets(puller.sql(topic, expression)) == wanted
    puller.beat("selects", {topic: ("SQL92", expression, V)})
    found = puller.known(topic, "selects")
    assert (found.code, found.remark) == (
        (0, "FOUND") if wanted else (20, "NO_MATCHED_MESSAGE"))
    assert offsets(found) == wanted
    if not wanted:
        assert next_offset(found) == 10


@pytest.mark.parametrize(("kind", "expression"), [
    ("SQL92", "n >"), ("SQL92", "n ="), ("OTHER", "n > 5"),
])
def test_an_expression_of_a_pull_that_does_not_compile_lets_everything_pass(
    puller: Puller, topic: str, kind: str, expression: str
) -> None:
    puller.batch(topic, numbered(3))

    found = puller.pull(topic, subscription=expression, expressionType=kind)

    assert offsets(found) == [0, 1, 2]


@pytest.mark.parametrize("expression", [
    " AND ".join(f"p{number} = 1" for number in range(65)), "n = 1" + " " * 40_000,
    "n IN (" + ",".join(["'1'"] * 1025) + ")",
])
def test_an_expression_over_a_limit_is_refused(
    puller: Puller, topic: str, expression: str
) -> None:
    puller.batch(topic, numbered(3))

    found = puller.sql(topic, expression)

    assert found.code == 23
    assert "at most" in (found.remark or "")


def test_pulls_go_through_a_long_queue_and_get_all_that_matches(
    puller: Puller, topic: str
) -> None:
    puller.batch(topic, numbered(2500))
    wanted = [number for number in range(2500) if number % 10 == 7 and number > 1000]
    expression = "TAGS = 't7' AND n > 1000"

    assert all_matching(puller, topic, of=lambda at: puller.sql(
        topic, expression, queueOffset=at)) == wanted
    puller.beat("through", {topic: ("SQL92", expression, V)})
    assert all_matching(puller, topic, of=lambda at: puller.known(
        topic, "through", queueOffset=at)) == wanted
    assert all_matching(puller, topic, of=lambda at: puller.pull(
        topic, subscription="t7 || t8", queueOffset=at)) == [
            number for number in range(2500) if number % 10 in (7, 8)]


def test_the_newest_version_of_a_subscription_counts(puller: Puller, topic: str) -> None:
    puller.batch(topic, numbered(10))
    puller.beat("changes", {topic: ("SQL92", "n < 2", V)})
    assert offsets(puller.known(topic, "changes")) == [0, 1]

    puller.beat("changes", {topic: ("SQL92", "n > 7", V + 1)})
    assert offsets(puller.known(topic, "changes", subVersion=V + 1)) == [8, 9]
    assert offsets(puller.known(topic, "changes", subVersion=V)) == [8, 9]
    puller.beat("changes", {topic: ("SQL92", "n = 5", V)})               # an older one: ignored
    assert offsets(puller.known(topic, "changes")) == [8, 9]
    puller.beat("changes", {topic: ("TAG", "t4", V + 2)})
    assert offsets(puller.known(topic, "changes", subVersion=V + 2)) == [4]
    puller.beat("changes", {topic: ("SQL92", "n = 6", V + 3)})
    assert offsets(puller.known(topic, "changes", subVersion=V + 3)) == [6]


def test_hundreds_of_expressions_of_pulls_are_remembered(puller: Puller, topic: str) -> None:
    puller.batch(topic, numbered(300))
    for _ in range(2):
        for number in range(300):
            assert offsets(puller.sql(topic, f"n = {number}")) == [number]


# -- retries ---------------------------------------------------------------------------------------


def test_a_message_that_comes_again_is_filtered_by_where_it_came_from(
    puller: Puller, topic: str
) -> None:
    puller.beat("retries", {topic: ("SQL92", "n > 2", V), "%RETRY%retries": ("TAG", "*", V)})
    retry = "%RETRY%retries"
    puller.batch(retry, [{"n": str(number), "RETRY_TOPIC": topic} for number in range(5)])
    puller.batch(retry, [{"n": "0", "RETRY_TOPIC": "another"}, {"n": "0"}])

    assert offsets(puller.known(retry, "retries")) == [3, 4, 5, 6]
    assert offsets(puller.pull(retry, consumerGroup="else")) == [3, 4, 5, 6]


def test_retries_are_not_filtered_unless_asked_for(tmp_path: Path) -> None:
    with mqcore_up(tmp_path, FILTERS) as broker, Puller(broker.broker_addr) as one:
        one.topic("T", 1)
        one.beat("g", {"T": ("SQL92", "n > 2", V), "%RETRY%g": ("TAG", "*", V)})
        one.batch("%RETRY%g", [{"n": str(n), "RETRY_TOPIC": "T"} for n in range(5)])

        assert offsets(one.known("%RETRY%g", "g")) == [0, 1, 2, 3, 4]


# -- lives -----------------------------------------------------------------------------------------


def test_filters_outlive_their_coordinator_and_their_serving_process(tmp_path: Path) -> None:
    with mqcore_up(tmp_path, FILTERS) as broker:
        with Puller(broker.broker_addr) as one:
            one.topic("T", 1)
            one.batch("T", numbered(10))
            one.beat("g", {"T": ("SQL92", "n > 7", V)})
            assert offsets(one.known("T", "g")) == [8, 9]

            kill_and_wait(broker, "coordinator")
            assert offsets(one.known("T", "g")) == [8, 9]
            one.beat("g", {"T": ("SQL92", "n < 1", V + 1)})
            assert offsets(one.known("T", "g", subVersion=V + 1)) == [0]
        kill_and_wait(broker, "pull-serving-0")
        with Puller(broker.broker_addr) as other:
            other.beat("g", {"T": ("SQL92", "n < 1", V + 1)})
            assert offsets(other.known("T", "g", subVersion=V + 1)) == [0]


def test_filters_are_in_the_file_that_stock_reads_and_dead_after_a_restart(tmp_path: Path) -> None:
    with mqcore_up(tmp_path, FILTERS) as broker, Puller(broker.broker_addr) as one:
        one.topic("T", 1)
        one.beat("g", {"T": ("SQL92", "n > 7", V)})
    path = tmp_path / "store" / "config" / "consumerFilter.json"
    stored = json.loads(path.read_text())["filterDataByTopic"]["T"]
    data = stored["groupFilterData"]["g"]
    assert (stored["topic"], data["topic"], data["consumerGroup"]) == ("T", "T", "g")
    assert (data["expression"], data["expressionType"], data["clientVersion"]) == (
        "n > 7", "SQL92", V)
    assert (data["bloomFilterData"]["bitNum"], len(data["bloomFilterData"]["bitPos"])) == (112, 3)

    with mqcore_up(tmp_path, FILTERS) as broker, Puller(broker.broker_addr) as one:
        one.batch("T", numbered(10))
        assert one.known("T", "g").code == 24
        one.beat("g", {"T": ("SQL92", "n > 7", V)})
        assert offsets(one.known("T", "g")) == [8, 9]
    again = json.loads(path.read_text())["filterDataByTopic"]["T"]["groupFilterData"]["g"]
    assert again["bornTime"] == data["bornTime"]
