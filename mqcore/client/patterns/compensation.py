"""Compensation: steps that are undone in reverse order when one fails.

That a step begins is committed before it runs; that it is done, in the transaction that its own
work in the database is in. So any process can resume a run where it was. Each claim of a run
has a number, its turn; what an earlier turn still does then fails as a whole.
"""
from __future__ import annotations

import json
import logging
import threading
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Row,
    Table,
    and_,
    delete,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.exc import (
    DBAPIError,
    IntegrityError,
    InterfaceError,
    OperationalError,
    SQLAlchemyError,
)

from mqcore.client import ConfigError
from mqcore.client.patterns.steps import (
    Run,
    RunState,
    Step,
    StepCall,
    Work,
    checked,
    json_text,
)
from mqcore.client.patterns.tables import (
    DAY_S,
    ERROR_CHARACTERS_MAX,
    PREFIX,
    PURGE_STEP_ROWS,
    begin,
    check_connection,
    check_count,
    check_engine,
    check_key,
    check_seconds,
    error_text,
    now_ms,
    tables_of,
)

UNDO_WAIT_MAX_MS = 3_600_000

log: Final = logging.getLogger("mqcore.client.patterns")

_OPEN = (RunState.RUNNING.value, RunState.UNDOING.value)
_DOING, _DONE, _UNDOING, _UNDONE = range(4)         # of a step


class _Lost(Exception):
    """Another has claimed the run."""


class Compensation:
    """
    Runs of the same steps, each done as a whole or undone as a whole.

        trips = Compensation(engine, "trips", [Step("flight", book, cancel), ...])
        trips.start("trip-7", {"to": "Rome"})

    `run` is the job that resumes crashed runs; any number of jobs may run.
    """

    def __init__(
        self, engine: Engine, name: str, steps: Sequence[Step], *, tries_max: int = 3,
        undo_tries_max: int = 10, lease: float = 60.0, keep: float = 30 * DAY_S,
        prefix: str = PREFIX,
    ) -> None:
        """
        engine          of the database that remembers the runs
        name            of this kind of runs
        steps           in their order; new ones at the end, while runs are under way
        tries_max       how often a step is begun that never comes to an end (crashes), then the run
                        is undone
        undo_tries_max  how often an undo may fail, then the run is STUCK
        lease           seconds, longer than a step takes: after them another may resume the run
        keep            seconds that finished runs are kept
        prefix          of the tables' names
        Raises ConfigError.
        """
        self._engine = check_engine(engine)
        self._name = check_key(name, "name")
        self._steps = checked(steps)
        self._tries_max = check_count(tries_max, "tries_max", 1, 1_000)
        self._undo_tries_max = check_count(undo_tries_max, "undo_tries_max", 1, 1_000)
        self._lease_ms = int(1_000 * check_seconds(lease, "lease", 0.001, DAY_S))
        self._keep = check_seconds(keep, "keep", 60.0, 3_650 * DAY_S)
        tables = tables_of(prefix)
        self._runs = tables.runs
        self._rows = tables.steps

    # -- what an application asks ------------------------------------------------------------------

    def add(self, connection: Connection, run_id: str, data: Any = None) -> None:
        """Record a run in the transaction that `connection` is in; the job begins it once that is
        committed.

        run_id   names it among the runs of this kind
        data     anything that JSON can say
        Raises ConfigError, and IntegrityError for a run that there is.
        """
        values = self._values(run_id, data, now_ms())
        check_connection(connection).execute(insert(self._runs).values(values))

    def start(self, run_id: str, data: Any = None) -> Run:
        """Record a run and do its steps; how it is then. With asyncio in `asyncio.to_thread`.

        run_id   names it among the runs of this kind
        data     anything that JSON can say
        The same call again continues with a run that crashed, and tells the outcome of one that is
        finished or runs elsewhere. Raises ConfigError, and SQLAlchemyError when the database fails:
        the run is resumed then.
        """
        values = self._values(run_id, data, now_ms() + self._lease_ms)
        try:
            with begin(self._engine) as connection:
                connection.execute(insert(self._runs).values(values))
        except IntegrityError:
            row = self._row(run_id)
            if _is_open(row) and self._is_due(row):
                self._resume(row)
        else:
            self._advance(run_id, 0)
        return self.get(run_id)

    def undo(self, run_id: str) -> Run:
        """Undo the run with this `run_id`, which is done or under way; how it is then.

        One that is undone stays so: a listener of a topic of failures may call this any number of
        times. Where another is at work on a step, that one undoes the run when the step ends, or
        the job does after the lease. Raises as `start`.
        """
        row = self._row(run_id)
        if row.state in (RunState.DONE.value, RunState.RUNNING.value):
            is_elsewhere = row.state == RunState.RUNNING.value and not self._is_due(row)
            try:
                self._turn_back(row, "asked to be undone",
                                row.due_ms if is_elsewhere else now_ms() + self._lease_ms)
            except _Lost:
                return self.undo(run_id)        # it continued meanwhile
            if not is_elsewhere:
                self._advance(run_id, row.turn + 1)
        return self.get(run_id)

    def get(self, run_id: str) -> Run:
        """The state of the run with this `run_id`. Raises ConfigError when there is none."""
        row = self._row(run_id)
        return _seen(row, self._step_rows(run_id))

    # -- the job -----------------------------------------------------------------------------------

    def run_once(self, *, rows_max: int = 100) -> int:
        """Resume runs that crashed, or whose undo failed, if it is time, `rows_max` at most; how
        many. One whose recorded steps are not those of this program is logged, and left for a
        lease. Raises SQLAlchemyError."""
        runs = self._runs
        due = or_(runs.c.due_ms <= now_ms(), runs.c.due_ms > self._never())
        with self._engine.connect() as connection:
            rows = list(connection.execute(
                select(runs).where(runs.c.name == self._name, runs.c.state.in_(_OPEN), due)
                .order_by(runs.c.due_ms).limit(check_count(rows_max, "rows_max", 1, 10_000))))
        count = 0
        for row in rows:
            try:
                count += self._resume(row)
            except ConfigError as error:
                log.error("run %s of %s cannot continue: %s", row.run_id, self._name, error)
            except Exception as error:      # of one run, and not of the database: others continue
                if _is_of_database(error):
                    raise
                log.exception("run %s of %s cannot continue", row.run_id, self._name)
        return count

    def run(self, stop: threading.Event, *, interval: float = 5.0) -> None:
        """Run the job until `stop` is set; look every `interval` seconds. With asyncio:
        `asyncio.to_thread(compensation.run, stop)`. A database that is away is logged, and tried
        again. Raises ConfigError."""
        check_seconds(interval, "interval", 0.001, DAY_S)
        while not stop.is_set():
            try:
                is_idle = not self.run_once()
            except SQLAlchemyError as error:
                log.warning("the database of %s does not answer: %s", self._name, error)
                is_idle = True
            if is_idle:
                stop.wait(interval)

    def stuck(self, *, rows_max: int = 100) -> list[Run]:
        """Runs that wait for people, the oldest first, `rows_max` at most. Raises
        SQLAlchemyError."""
        runs = self._runs
        with self._engine.connect() as connection:
            rows = list(connection.execute(
                select(runs).where(runs.c.name == self._name,
                                   runs.c.state == RunState.STUCK.value)
                .order_by(runs.c.changed_ms)
                .limit(check_count(rows_max, "rows_max", 1, 10_000))))
        return [_seen(row, self._step_rows(row.run_id)) for row in rows]

    def try_again(self, run_id: str) -> bool:
        """Have the job continue with the run `run_id` that is STUCK; whether it was. Raises
        SQLAlchemyError."""
        runs, rows = self._runs, self._rows
        with begin(self._engine) as connection:
            is_stuck = connection.execute(
                update(runs).where(self._is(runs, run_id), runs.c.state == RunState.STUCK.value)
                .values(state=RunState.UNDOING.value, due_ms=now_ms(), changed_ms=now_ms())
            ).rowcount == 1
            if is_stuck:
                connection.execute(update(rows).where(self._is(rows, run_id)).values(tries=0))
        return is_stuck

    def purge(self, *, rows_max: int = 10_000) -> int:
        """Forget runs that were finished more than `keep` seconds ago, `rows_max` at most; how
        many. Raises SQLAlchemyError."""
        runs, rows = self._runs, self._rows
        old = (runs.c.name == self._name,
               runs.c.state.in_((RunState.DONE.value, RunState.UNDONE.value)),
               runs.c.changed_ms < now_ms() - int(self._keep * 1_000))
        check_count(rows_max, "rows_max", 1, 1_000_000_000)
        deleted = 0
        while deleted < rows_max:
            step = min(PURGE_STEP_ROWS, rows_max - deleted)
            with begin(self._engine) as connection:
                found = list(connection.execute(select(runs.c.run_id).where(*old).limit(step)))
                ids = [row.run_id for row in found]
                for table in (rows, runs):
                    connection.execute(delete(table).where(
                        table.c.name == self._name, table.c.run_id.in_(ids)))
            deleted += len(ids)
            if len(ids) < step:
                break
        return deleted

    # -- a run -------------------------------------------------------------------------------------

    def _resume(self, row: Row[Any]) -> bool:
        """Claim a run and continue with it. False: another process had claimed it."""
        runs = self._runs
        with begin(self._engine) as connection:
            is_ours = connection.execute(
                update(runs).where(self._is(runs, row.run_id), runs.c.turn == row.turn,
                                   runs.c.due_ms == row.due_ms, runs.c.state.in_(_OPEN))
                .values(turn=row.turn + 1, due_ms=now_ms() + self._lease_ms)).rowcount == 1
        if is_ours:
            self._advance(row.run_id, row.turn + 1)
        return is_ours

    def _advance(self, run_id: str, turn: int) -> None:
        """Continue until the run is finished, fails or is another's."""
        try:
            row = self._row(run_id)
            if row.turn == turn and row.state == RunState.RUNNING.value:
                turn = self._forward(row)
                row = self._row(run_id)
            if row.turn == turn and row.state == RunState.UNDOING.value:
                self._back(row)
        except _Lost:
            log.warning("run %s of %s is resumed elsewhere: it took longer than its lease of %g s,"
                        " or is undone", run_id, self._name, self._lease_ms / 1_000)

    def _forward(self, run: Row[Any]) -> int:
        """Do what is left to do; the turn after it."""
        try:
            return self._do_steps(run)
        except _Lost:
            row = self._row(run.run_id)
            if (row.state, row.turn) != (RunState.UNDOING.value, run.turn + 1):
                raise
            self._fence_in(row, turn=row.turn + 1)      # `undo` was called, and left it to this one
            return int(row.turn + 1)

    def _do_steps(self, run: Row[Any]) -> int:
        known = self._known(run.run_id)
        for place, step in enumerate(self._steps):
            tries = known[place].tries if place < len(known) else 0
            if place < len(known) and known[place].state == _DONE:
                continue
            if tries >= self._tries_max:
                return self._turn_back(
                    run, f"step {step.name} was begun {tries} times and never ended")
            self._begin(run, place, step, _DOING, tries + 1)
            try:
                self._work(run, place, step, step.do, _DONE)
            except Exception as error:      # the application's code: whatever it raises
                if _is_of_database(error) or isinstance(error, _Lost):
                    raise
                log.warning("step %s of run %s of %s failed: it is undone", step.name, run.run_id,
                            self._name, exc_info=True)
                return self._turn_back(run, f"step {step.name}: {error_text(error)}")
        self._fence_in(run, state=RunState.DONE.value, changed_ms=now_ms())
        return int(run.turn)

    def _back(self, run: Row[Any]) -> None:
        known = self._known(run.run_id)
        for place, row in reversed(list(enumerate(known))):
            if row.state == _UNDONE:
                continue
            step = self._steps[place]
            if row.tries >= self._undo_tries_max:
                self._undo_failed(run, step, row.tries, RuntimeError("it never ended"))
                return
            self._begin(run, place, step, _UNDOING, row.tries + 1)
            try:
                self._work(run, place, step, step.undo or _nothing, _UNDONE)
            except Exception as error:      # the application's code: whatever it raises
                if _is_of_database(error) or isinstance(error, _Lost):
                    raise
                self._undo_failed(run, step, row.tries + 1, error)
                return
        self._fence_in(run, state=RunState.UNDONE.value, changed_ms=now_ms())

    def _begin(self, run: Row[Any], place: int, step: Step, state: int, tries: int) -> None:
        """Say that a step begins, before it does."""
        rows = self._rows
        with begin(self._engine) as connection:
            self._fence(connection, run)
            changed = connection.execute(
                update(rows).where(self._is(rows, run.run_id), rows.c.position == place)
                .values(state=state, tries=tries)).rowcount
            if not changed:
                connection.execute(insert(rows).values(
                    name=self._name, run_id=run.run_id, position=place, step=step.name,
                    state=state, tries=tries, result="null"))

    def _work(self, run: Row[Any], place: int, step: Step, work: Work, state: int) -> None:
        """Do or undo a step, and say so in the same transaction."""
        rows = self._rows
        results = _results(self._step_rows(run.run_id), also=place)
        with begin(self._engine) as connection:
            result = work(StepCall(f"{self._name}/{run.run_id}/{step.name}", run.run_id,
                                   json.loads(run.data), results, connection))
            values: dict[str, Any] = {"state": state, "tries": 0}
            if state == _DONE:
                values["result"] = json_text(result, f"the result of step {step.name}")
            connection.execute(update(rows).where(
                self._is(rows, run.run_id), rows.c.position == place).values(**values))
            self._fence(connection, run)

    def _fence(self, connection: Connection, run: Row[Any], **values: Any) -> None:
        """Hold the run for another lease; raises _Lost when it is another's."""
        runs = self._runs
        values.setdefault("due_ms", now_ms() + self._lease_ms)
        if connection.execute(
                update(runs).where(self._is(runs, run.run_id), runs.c.turn == run.turn,
                                   runs.c.state == run.state).values(**values)).rowcount == 0:
            raise _Lost

    def _fence_in(self, run: Row[Any], **values: Any) -> None:
        """The same in a transaction of its own."""
        with begin(self._engine) as connection:
            self._fence(connection, run, **values)

    def _turn_back(self, run: Row[Any], error: str, due_ms: int | None = None) -> int:
        """From now on the next turn undoes it; returns that turn's number. Raises _Lost."""
        with begin(self._engine) as connection:
            self._fence(connection, run, state=RunState.UNDOING.value, turn=run.turn + 1,
                        error=error[:ERROR_CHARACTERS_MAX], changed_ms=now_ms(),
                        due_ms=now_ms() + self._lease_ms if due_ms is None else due_ms)
            connection.execute(update(self._rows).where(
                self._is(self._rows, run.run_id)).values(tries=0))
        return int(run.turn + 1)

    def _undo_failed(self, run: Row[Any], step: Step, tries: int, error: Exception) -> None:
        is_last = tries >= self._undo_tries_max
        wait_ms = min(1_000 << min(tries, 30), UNDO_WAIT_MAX_MS)
        state = RunState.STUCK if is_last else RunState.UNDOING
        log.log(logging.ERROR if is_last else logging.WARNING,
                "the undo of step %s of run %s of %s failed, try %d%s", step.name, run.run_id,
                self._name, tries, ": it waits for people" if is_last else "", exc_info=error)
        self._fence_in(run, state=state.value, due_ms=now_ms() + wait_ms,
                       error=f"undo of step {step.name}: {error_text(error)}", changed_ms=now_ms())

    # -- rows --------------------------------------------------------------------------------------

    def _values(self, run_id: str, data: Any, due_ms: int) -> dict[str, Any]:
        return {"name": self._name, "run_id": check_key(run_id, "run_id"),
                "state": RunState.RUNNING.value, "data": json_text(data, "data"), "turn": 0,
                "due_ms": due_ms, "changed_ms": now_ms()}

    def _never(self) -> int:
        """A time that no wait of this program reaches: the clock was set back since."""
        return now_ms() + 2 * max(self._lease_ms, UNDO_WAIT_MAX_MS)

    def _is_due(self, row: Row[Any]) -> bool:
        return bool(row.due_ms <= now_ms() or row.due_ms > self._never())

    def _is(self, table: Table, run_id: str) -> ColumnElement[bool]:
        return and_(table.c.name == self._name, table.c.run_id == run_id)

    def _row(self, run_id: str) -> Row[Any]:
        check_key(run_id, "run_id")
        with self._engine.connect() as connection:
            row = connection.execute(
                select(self._runs).where(self._is(self._runs, run_id))).first()
        if row is None:
            raise ConfigError(f"run_id {run_id!r}: expected a run of {self._name} that is recorded")
        return row

    def _step_rows(self, run_id: str) -> list[Row[Any]]:
        with self._engine.connect() as connection:
            return list(connection.execute(
                select(self._rows).where(self._is(self._rows, run_id))
                .order_by(self._rows.c.position)))

    def _known(self, run_id: str) -> list[Row[Any]]:
        """The recorded steps; raises ConfigError when they are not those of this program."""
        rows = self._step_rows(run_id)
        names = [step.name for step in self._steps[:len(rows)]]
        if [row.step for row in rows] != names:
            raise ConfigError(f"steps: expected {[row.step for row in rows]} of run {run_id} at the"
                              f" begin, not {names}")
        return rows


def _nothing(call: StepCall) -> None:
    """The undo of a step that has none."""


def _is_open(row: Row[Any]) -> bool:
    return row.state in _OPEN


def _is_of_database(error: Exception) -> bool:
    """Whether the database failed, and not the application's work."""
    return isinstance(error, OperationalError | InterfaceError) or (
        isinstance(error, DBAPIError) and error.connection_invalidated)


def _results(rows: Sequence[Row[Any]], also: int = -1) -> dict[str, Any]:
    return {row.step: json.loads(row.result) for row in rows
            if row.state == _DONE or row.position == also}


def _seen(row: Row[Any], steps: Sequence[Row[Any]]) -> Run:
    return Run(row.run_id, RunState(row.state), json.loads(row.data), _results(steps), row.error)
