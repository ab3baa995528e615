"""The demo: its arithmetic, its events, and a whole run with both kinds of second client."""
from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from mqcore.admin.demo import __main__ as demo
from mqcore.admin.demo import clients
from mqcore.admin.demo.ledger import Entry, balance
from mqcore.admin.demo.orders import OrderEvent, order_events
from mqcore.admin.demo.processes import DemoError, wait_until
from tests.support.waiting import wait_until_async

HELD_S = 0.05                     # in which what is not held would be sent


def run_demo(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """It ends by itself, also where nothing moves."""
    return subprocess.run(
        [sys.executable, "-m", "mqcore.admin.demo", *options], capture_output=True, text=True,
        cwd=folder, check=False, env={**os.environ, "TMPDIR": str(folder)})


def assert_told_and_tidied(run: subprocess.CompletedProcess[str], folder: Path, count: int) -> None:
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"every order was acknowledged: {count} of {count} " in run.stdout
    assert "every acknowledged order was consumed: 0 are missing" in run.stdout
    assert run.stdout.count("kill -9") == 2
    assert run.stdout.count("   ok     ") == 6
    assert "   NO     " not in run.stdout
    assert run.stdout.endswith("Every claim held.\n")
    assert list(folder.iterdir()) == []


def test_the_demo_kills_a_consumer_and_the_writer_and_every_claim_holds(tmp_path: Path) -> None:
    run = run_demo(tmp_path, "--no-go", "--orders", "500")

    assert_told_and_tidied(run, tmp_path, 1001)
    assert "bare frames with binary headers" in run.stdout


@pytest.mark.slow
def test_the_demo_uses_the_go_client_when_the_tests_have_built_it(tmp_path: Path) -> None:
    if demo.find_go_client() is None:
        pytest.skip("the Go client is not built: tests/interop does that")
    run = run_demo(tmp_path, "--orders", "500")

    assert_told_and_tidied(run, tmp_path, 1001)
    assert "rocketmq-client-go, unmodified" in run.stdout


@pytest.mark.parametrize("trouble", ["claim", "error"])
def test_a_demo_in_which_something_does_not_hold_ends_with_status_1(
    monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    def run(_demo: demo.Demo) -> list[str]:
        if trouble == "error":
            raise DemoError("the broker did not start")
        return ["every order was acknowledged"]

    monkeypatch.setattr(demo.Demo, "run", run)
    result = CliRunner().invoke(demo.main, ["--no-go"])

    assert result.exit_code == 1
    assert "Not held: 1" in result.output
    assert ("the broker did not start" in result.output) == (trouble == "error")


def test_waiting_in_vain_names_what_was_waited_for() -> None:
    with pytest.raises(DemoError,
                       match=r"nothing moved for 0\.05 s, and not seen: a new writer"):
        wait_until("a new writer", lambda: False, lambda: 0, 0.05)


def test_a_wait_goes_on_as_long_as_something_moves() -> None:
    steps = iter(range(1_000))
    still_s = 0.05

    assert wait_until("its end", lambda: next(steps) == 21, lambda: next(steps), still_s) > still_s


def test_a_producer_that_holds_sends_the_rest_when_it_is_told(tmp_path: Path) -> None:
    events, sent = order_events("a", 30), []

    async def send(event: OrderEvent) -> tuple[int, int]:
        sent.append(event.id)
        return 0, len(sent)

    async def held_and_told() -> list[str]:
        work = asyncio.create_task(
            clients.send_all(events, 1e6, send, clients.Diary(tmp_path / "diary"), hold_at=20))
        await wait_until_async(lambda: len(sent) >= 20, "the first part")
        done, _ = await asyncio.wait([work], timeout=HELD_S)
        assert not done
        before = list(sent)
        os.kill(os.getpid(), clients.RESUME)
        await work
        return before

    assert asyncio.run(held_and_told()) == [event.id for event in events[:20]]
    assert sent == [event.id for event in events]


# -- the arithmetic --------------------------------------------------------------------------------


def test_a_ledger_in_which_everything_came_once_holds() -> None:
    entries = [Entry("a", (0, 0)), Entry("b", (1, 0))]
    found = balance(["a", "b"], entries, entries)

    assert found.holds
    assert (found.acknowledged, found.delivered, found.redelivered, found.stored_twice) == (
        2, 2, 0, 0)


def test_an_acknowledged_event_that_nobody_got_is_missing() -> None:
    found = balance(["a", "b"], [Entry("a", (0, 0)), Entry("b", (0, 1))], [Entry("a", (0, 0))])

    assert found.missing == ("b",)
    assert not found.holds


def test_an_event_that_comes_from_another_place_than_acknowledged_is_misplaced() -> None:
    found = balance(["a"], [Entry("a", (0, 0))], [Entry("a", (0, 1))])

    assert found.misplaced == ("a",)
    assert not found.holds


def test_an_event_that_nobody_sent_is_unknown() -> None:
    found = balance(["a"], [Entry("a", (0, 0))], [Entry("a", (0, 0)), Entry("z", (0, 1))])

    assert found.unknown == ("z",)
    assert not found.holds


def test_a_ledger_without_acknowledgements_proves_nothing() -> None:
    assert not balance(["a"], [], []).holds


def test_a_second_delivery_of_a_place_and_a_second_place_are_counted_apart() -> None:
    found = balance(["a"], [Entry("a", (0, 5))],
                    [Entry("a", (0, 4)), Entry("a", (0, 4)), Entry("a", (0, 5))])

    assert found.holds
    assert (found.redelivered, found.stored_twice) == (1, 1)


def test_orders_of_one_shop_are_the_same_each_time_and_differ_from_another_shops() -> None:
    again, other = order_events("a", 50), order_events("b", 50)

    assert order_events("a", 50) == again
    assert len({event.id for event in [*again, *other]}) == 100
    assert [event.body for event in again] != [event.body for event in other]
