"""Compensation: all steps or none, undone in reverse, whoever goes on and when."""
from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, insert, select, update
from sqlalchemy.exc import IntegrityError, OperationalError

from mqcore.client import ConfigError
from mqcore.client.patterns import Compensation, RunState, Step, StepCall, compensation, metadata
from tests.patterns.databases import open_engine
from tests.patterns.programs import business, effects


@pytest.fixture(autouse=True)
def _business(engine: Engine) -> None:
    business.create_all(engine)


class Calls:
    """Steps that note each call here, and write a row in their transaction."""

    def __init__(self, engine: Engine, **options: Any) -> None:
        self.made: list[str] = []
        self.ids: list[str] = []
        self.before: dict[str, Callable[[StepCall], object]] = {}   # it has written anything
        self.on: dict[str, Callable[[StepCall], object]] = {}
        self.runs = Compensation(
            engine, "runs", [Step(name, self._call(name), self._call(f"-{name}"))
                             for name in "abc"], **options)

    def _call(self, name: str) -> Callable[[StepCall], str]:
        def call(step: StepCall) -> str:
            self.made.append(name)
            self.ids.append(step.id)
            if name in self.before:
                self.before[name](step)
            step.connection.execute(insert(effects).values(body=name))
            if name in self.on:
                self.on[name](step)
            return f"result of {name}"
        return call


def rows(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return list(connection.execute(select(effects.c.body).order_by(effects.c.id)).scalars())


def refuse(step: StepCall) -> None:
    raise ValueError("no")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    now = [compensation.now_ms()]
    monkeypatch.setattr(compensation, "now_ms", lambda: now[0])
    return now


def test_all_steps_are_done_and_their_results_kept(engine: Engine) -> None:
    calls = Calls(engine)
    run = calls.runs.start("1", {"n": 1})

    assert (run.state, run.data, run.error) == (RunState.DONE, {"n": 1}, None)
    assert run.results == {name: f"result of {name}" for name in "abc"}
    assert rows(engine) == calls.made == ["a", "b", "c"]
    assert calls.ids == ["runs/1/a", "runs/1/b", "runs/1/c"]
    assert calls.runs.start("1").state is RunState.DONE
    assert calls.made == ["a", "b", "c"]


def test_a_step_that_fails_is_undone_with_those_before_it(engine: Engine) -> None:
    calls = Calls(engine)
    calls.on["b"] = refuse
    seen = []
    calls.on["-a"] = lambda step: seen.append(step.results)
    run = calls.runs.start("1")

    assert (run.state, run.error) == (RunState.UNDONE, "step b: ValueError: no")
    assert calls.made == ["a", "b", "-b", "-a"]
    assert rows(engine) == ["a", "-b", "-a"]            # what b wrote went with its transaction
    assert seen == [{"a": "result of a"}]


def test_a_finished_run_can_be_undone_any_number_of_times(engine: Engine) -> None:
    calls = Calls(engine)
    calls.runs.start("1")
    assert [calls.runs.undo("1").state for _ in range(2)] == [RunState.UNDONE] * 2
    assert calls.made == ["a", "b", "c", "-c", "-b", "-a"]
    with pytest.raises(ConfigError, match="run_id '2': expected a run of runs"):
        calls.runs.undo("2")


def test_a_run_begins_if_its_transaction_commits(engine: Engine) -> None:
    calls = Calls(engine)
    with engine.connect() as connection, connection.begin() as local:
        calls.runs.add(connection, "1")
        local.rollback()
    with engine.begin() as connection:
        calls.runs.add(connection, "2", [1])
    with engine.connect() as connection, pytest.raises(IntegrityError):
        calls.runs.add(connection, "2")
    assert calls.runs.run_once() == 1
    assert calls.runs.run_once() == 0
    assert calls.runs.get("2").state is RunState.DONE


def test_a_database_that_fails_leaves_the_run_to_the_job(engine: Engine, clock: list[int]) -> None:
    calls = Calls(engine, lease=10.0)

    def gone(step: StepCall) -> None:
        del calls.on["b"]
        raise OperationalError("insert", None, Exception("gone"))

    calls.on["b"] = gone
    with pytest.raises(OperationalError):
        calls.runs.start("1")
    assert calls.runs.run_once() == 0
    assert calls.runs.start("1").state is RunState.RUNNING      # its lease is not over
    clock[0] += 11_000
    assert calls.runs.run_once() == 1
    assert calls.runs.get("1").state is RunState.DONE
    assert rows(engine) == ["a", "b", "c"]


def test_a_step_that_never_ends_is_undone(engine: Engine, clock: list[int]) -> None:
    calls = Calls(engine, lease=10.0, tries_max=3)

    def die(step: StepCall) -> None:
        raise SystemExit

    calls.on["b"] = die
    with pytest.raises(SystemExit):
        calls.runs.start("1")
    for _ in range(2):
        clock[0] += 11_000
        with pytest.raises(SystemExit):
            calls.runs.run_once()
    clock[0] += 11_000
    assert calls.runs.run_once() == 1
    run = calls.runs.get("1")
    assert (run.state, run.error) == (
        RunState.UNDONE, "step b was begun 3 times and never ended")
    assert rows(engine) == ["a", "-b", "-a"]


@pytest.mark.parametrize("dies", [False, True])
def test_an_undo_that_fails_is_tried_again_and_then_left_to_people(
    engine: Engine, clock: list[int], dies: bool
) -> None:
    calls = Calls(engine, undo_tries_max=3, lease=10.0)

    def fail(step: StepCall) -> None:
        if dies:
            raise SystemExit
        raise ValueError("not now")

    calls.runs.start("1")
    calls.on["-b"] = fail
    times = 0
    try:
        calls.runs.undo("1")
    except SystemExit:
        assert dies
    while calls.runs.get("1").state is RunState.UNDOING:
        times += 1
        assert times < 10
        clock[0] += 100_000
        try:
            calls.runs.run_once()
        except SystemExit:
            assert dies
    assert calls.made.count("-b") == 3
    (stuck,) = calls.runs.stuck()
    assert (stuck.run_id, stuck.results) == ("1", {"a": "result of a"})
    assert calls.runs.run_once() == 0
    del calls.on["-b"]
    assert calls.runs.try_again("1")
    assert not calls.runs.try_again("1")
    assert calls.runs.run_once() == 1
    assert calls.runs.get("1").state is RunState.UNDONE
    assert rows(engine) == ["a", "b", "c", "-c", "-b", "-a"]


def test_who_is_slower_than_the_lease_changes_nothing_any_more(
    engine: Engine, clock: list[int]
) -> None:
    slow, quick = (Calls(engine, lease=10.0) for _ in range(2))

    def outlast(step: StepCall) -> None:
        clock[0] += 11_000
        assert quick.runs.run_once() == 1

    slow.before["b"] = outlast
    assert slow.runs.start("1").state is RunState.DONE
    assert slow.made == ["a", "b"]
    assert quick.made == ["b", "c"]
    assert rows(engine) == ["a", "b", "c"]


def test_a_run_that_another_works_on_is_undone_by_that_one(engine: Engine) -> None:
    calls, other = Calls(engine), Calls(engine)
    in_step, may_end = threading.Event(), threading.Event()

    def wait(step: StepCall) -> None:
        in_step.set()
        may_end.wait(30)

    calls.before["b"] = wait
    working = threading.Thread(target=calls.runs.start, args=("1",))
    working.start()
    assert in_step.wait(30)
    assert other.runs.undo("1").state is RunState.UNDOING
    assert other.runs.run_once() == 0
    may_end.set()
    working.join(30)
    run = calls.runs.get("1")
    assert (run.state, run.error) == (RunState.UNDONE, "asked to be undone")
    assert other.made == []
    assert [name for name in calls.made if name.startswith("-")] == ["-b", "-a"]


def test_two_jobs_share_the_runs(engine: Engine) -> None:
    jobs = [Calls(engine) for _ in range(3)]
    with engine.begin() as connection:
        for number in range(12):
            jobs[0].runs.add(connection, f"{number}")
    threads = [threading.Thread(target=job.runs.run_once) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    while jobs[0].runs.run_once():
        continue
    assert sorted(rows(engine)) == sorted("abc" * 12)


def test_a_clock_that_was_set_back_holds_nothing_up(engine: Engine, clock: list[int]) -> None:
    calls = Calls(engine)
    with engine.begin() as connection:
        calls.runs.add(connection, "1")
    clock[0] -= 1_000 * 86_400_000
    assert calls.runs.run_once() == 1
    assert calls.runs.get("1").state is RunState.DONE


def test_steps_that_changed_under_a_run_are_told(
    engine: Engine, clock: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    calls = Calls(engine, lease=10.0)
    calls.on["b"] = lambda step: (_ for _ in ()).throw(SystemExit)
    with pytest.raises(SystemExit):
        calls.runs.start("1")
    clock[0] += 11_000
    other = Compensation(engine, "runs", [Step("b", refuse), Step("a", refuse)], lease=10.0)
    with engine.begin() as connection:
        other.add(connection, "2")
    assert other.run_once() == 1                # the others go on
    assert other.get("2").state is RunState.UNDONE
    assert "steps: expected ['a', 'b'] of run 1 at the begin, not ['b', 'a']" in caplog.text
    clock[0] += 11_000
    with pytest.raises(ConfigError, match="steps: expected"):
        other.start("1")


def test_finished_runs_are_purged_by_age(engine: Engine) -> None:
    calls = Calls(engine, keep=60.0)
    calls.runs.start("1")
    calls.runs.start("2")
    assert calls.runs.purge() == 0
    tables = metadata().tables
    with engine.begin() as connection:
        connection.execute(update(tables["mqcore_runs"]).values(changed_ms=1))
        calls.runs.add(connection, "3")
    assert calls.runs.purge(rows_max=1) == 1
    assert calls.runs.purge() == 1
    with engine.connect() as connection:
        assert connection.execute(select(tables["mqcore_steps"])).all() == []
    assert calls.runs.get("3").state is RunState.RUNNING


def test_bad_arguments_are_told(engine: Engine) -> None:
    step = Step("a", refuse)
    runs = Compensation(engine, "runs", [step])
    for wrong, said in (
            (lambda: Compensation(engine, "runs", []), "steps: expected 1 to"),
            (lambda: Compensation(engine, "runs", [step, step]), "a name of its own"),
            (lambda: Compensation(engine, "runs", ["x"]), "steps: expected Step, not str"),
            (lambda: Compensation(engine, "runs", [Step("a", None)]), "do of step a None"),
            (lambda: Compensation(engine, "", [step]), "name ''"),
            (lambda: Compensation(engine, "runs", [step], lease=0), "lease 0"),
            (lambda: runs.start("", None), "run_id ''"),
            (lambda: runs.start("1", object()), "data: expected what JSON can say")):
        with pytest.raises(ConfigError, match=said):
            wrong()


def test_an_engine_without_transactions_is_refused(engine: Engine) -> None:
    auto = open_engine(str(engine.url), isolation_level="AUTOCOMMIT")
    with pytest.raises(ConfigError, match="not AUTOCOMMIT"):
        Calls(auto).runs.start("1")
    auto.dispose()
    assert rows(engine) == []


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(("error", "told"), [
    (ValueError("cannot read caf\udce9.txt"), "step b: ValueError: cannot read caf?.txt"),
    (ValueError("a\0b"), "step b: ValueError: a?b"),
    (Unspeakable(), "step b: Unspeakable: (it cannot be told)")])
def test_an_error_that_no_row_can_have_is_told_as_far_as_it_can_be(
    engine: Engine, error: Exception, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "mqcore")        # no report can have it either
    calls = Calls(engine)

    def fail(step: StepCall) -> None:
        raise error

    calls.on["b"] = fail
    run = calls.runs.start("1")
    assert (run.state, run.error) == (RunState.UNDONE, told)


def test_a_run_that_fails_unexpectedly_does_not_end_the_job(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls = Calls(engine)
    with engine.begin() as connection:
        for name in "12":
            calls.runs.add(connection, name)
    known = calls.runs._known

    def fail(run_id: str) -> Any:
        if run_id == "1":
            raise RuntimeError("unexpected")
        return known(run_id)

    monkeypatch.setattr(calls.runs, "_known", fail)
    assert calls.runs.run_once() == 1
    assert "run 1 of runs cannot continue" in caplog.text
    assert calls.runs.get("2").state is RunState.DONE


@pytest.mark.parametrize("end", ["rollback", "commit"])
def test_a_step_that_ends_its_transaction_has_failed(engine: Engine, end: str) -> None:
    calls = Calls(engine)
    calls.on["b"] = lambda step: getattr(step.connection, end)()
    run = calls.runs.start("1")
    assert run.state is RunState.UNDONE
    assert "closed transaction" in (run.error or "")
    assert calls.made == ["a", "b", "-b", "-a"]
