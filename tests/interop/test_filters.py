"""SQL92 and tag filters deliver exactly what they select, also while a subscription changes."""
from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.interop.conftest import Cluster
from tests.interop.messages import Line, assert_same, message
from tests.interop.runner import Programs, Run
from tests.interop.toolchain import require_client
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(300)
COUNT = 160
LINGER_MS = 3_000                # room for what must not come
CHANGE_TIMEOUT_S = 60
COLORS, TAGS = ("blue", "red", "'quoted'", "ünï"), ("TagA", "TagB", "Aa", "BB")

Wanted = Callable[[Line], bool]


def number(line: Line) -> int:
    return int(line["properties"]["number"])


def color(line: Line) -> str | None:
    value = line["properties"].get("color")
    return None if value is None else str(value)


# what a consumer asks for, and what it means
SELECTIONS: dict[str, tuple[str, str, Wanted]] = {
    "tags": ("expression", "TagA || BB", lambda line: line["tags"] in ("TagA", "BB")),
    "three comparisons": (
        "sql", "number > 20 AND number <= 90 AND color = 'blue'",
        lambda line: 20 < number(line) <= 90 and color(line) == "blue"),
    "sets and nulls": (
        "sql", "color IN ('red', '''quoted''', 'ünï') OR color IS NULL",
        lambda line: color(line) in ("red", "'quoted'", "ünï", None)),
    "system properties": (
        "sql", "TAGS = 'Aa' AND number NOT BETWEEN 50 AND 100",
        lambda line: line["tags"] == "Aa" and not 50 <= number(line) <= 100),
    "missing and raising": (
        "sql", "color > 5 OR number < 50",          # raises where color is there
        lambda line: color(line) is None and number(line) < 50),
}


def assorted(seed: int, prefix: str, first: int = 0) -> list[Line]:
    chance = random.Random(seed)
    sent = []
    for index in range(first, first + COUNT):
        properties = {"number": str(index)}
        if chance.random() < 0.8:
            properties["color"] = chance.choice(COLORS)
        sent.append(message(f"{prefix}-{index}", f"body {index}", tags=chance.choice(TAGS),
                            properties=properties))
    return sent


def create(programs: Programs, cluster: Cluster, topic: str) -> None:
    require_client("java")
    programs.java("create-topic", namesrv=cluster.namesrv_addr, topic=topic, queues=4)


@pytest.fixture(scope="module")
def selected(cluster: Cluster, lasting_programs: Programs) -> tuple[list[Line], dict[str, Run]]:
    """A consumer of each selection, all at one topic; half of it was there, half comes later."""
    topic = f"selected-{cluster.kind}"
    create(lasting_programs, cluster, topic)
    sent = assorted(1, "early") + assorted(2, "late", COUNT)
    half = len(sent) // 2
    lasting_programs.produce("java", cluster.namesrv_addr, topic, sent[:half]).finish()
    runs = {}
    for name, (option, text, wanted) in SELECTIONS.items():
        options: dict[str, Any] = {option: text}
        runs[name] = lasting_programs.consume(
            "java", cluster.namesrv_addr, topic, f"{topic}-{name.replace(' ', '-')}",
            sum(map(wanted, sent)), linger_ms=LINGER_MS, **options)
    lasting_programs.produce("java", cluster.namesrv_addr, topic, sent[half:]).finish()
    for run in runs.values():
        run.end()
    return sent, runs


@pytest.mark.slow
@pytest.mark.parametrize("name", SELECTIONS)
def test_a_selection_delivers_exactly_what_it_names(
    selected: tuple[list[Line], dict[str, Run]], cluster: Cluster, name: str
) -> None:
    sent, runs = selected
    run, wanted = runs[name], SELECTIONS[name][2]

    assert run.process.returncode == 0, run.tail()
    assert any(map(wanted, sent))
    assert_same([one for one in sent if wanted(one)], run.lines, f"selected-{cluster.kind}")


@pytest.mark.slow
def test_a_subscription_that_changes_delivers_by_the_new_one_from_then_on(
    programs: Programs, cluster: Cluster
) -> None:
    topic = f"changing-{cluster.kind}"
    create(programs, cluster, topic)
    before, after = assorted(3, "before"), assorted(4, "after", COUNT)
    first = [one for one in before if number(one) % 10 == 3 and number(one) < 100]
    then = [one for one in after if color(one) == "red"]
    old = " OR ".join(f"number = {number(one)}" for one in first)
    reader = programs.consume(
        "java", cluster.namesrv_addr, topic, f"{topic}-readers", len(first) + len(then),
        sql=old, then_sql="color = 'red' AND number >= 160", then_at=len(first),
        linger_ms=LINGER_MS)
    programs.produce("java", cluster.namesrv_addr, topic, before).finish()
    wait_until(lambda: "changed" in reader.tail() or reader.process.poll() is not None,
               "a changed subscription", CHANGE_TIMEOUT_S)
    assert "changed" in reader.tail(), reader.tail()
    programs.produce("java", cluster.namesrv_addr, topic, after).finish()

    assert_same(first + then, reader.finish(), topic)
