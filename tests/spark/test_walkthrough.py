"""docs/spark/walkthrough.md does what it says, on orders like the demo's."""
from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from mqcore.admin.demo.orders import order_events
from mqcore.client import Message, Producer
from tests.support.mqcore_process import mqcore_up

PAGE = Path(__file__).parents[2] / "docs/spark/walkthrough.md"
ORDERS = 300


def run(part: str, scope: dict[str, Any], **values: str) -> None:
    """The program of a part of the page; values: in place of those that the page gives names."""
    for block in re.findall(r"```python\n(.*?)```", part, re.DOTALL):
        for name, value in values.items():
            block = re.sub(rf'^{name} = ".*"$', f"{name} = {value!r}", block, flags=re.MULTILINE)
        exec(compile(block, PAGE.name, "exec"), scope)


def test_the_page_tells_what_the_demo_left(spark: object, tmp_path: Path,
                                           capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    at_rest, live = PAGE.read_text(encoding="utf-8").split("\n## The topic\n")
    scope: dict[str, Any] = {}
    with mqcore_up(tmp_path) as up, Producer("shop", namesrv=up.namesrv_addr) as shop:
        for event in order_events("a", ORDERS):
            shop.send_soon(Message("ORDERS", event.body, tags=event.event, keys=[event.id]))
        shop.flush()
    run(at_rest, scope, STORE=str(tmp_path / "store"), PLOTS=str(tmp_path))
    with mqcore_up(tmp_path) as up:
        run(live, scope, NAMESRV=up.namesrv_addr)

    assert capsys.readouterr().out.splitlines() == [
        f"{ORDERS} events, 0 of them stored twice", "without an entry: 0",
        f"the topic has {ORDERS} messages, the log {ORDERS}"]
    assert sum(row["stored"] for row in scope["spread"]) == ORDERS
    assert sum(row["count"] for row in scope["events"]) == ORDERS
    named = re.findall(r"\(images/(\w+\.png)\)", at_rest + live)
    assert named == ["cities.png", "kill.png", "events.png"]
    assert all((tmp_path / name).stat().st_size > 5_000 for name in named)
