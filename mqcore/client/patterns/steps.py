"""Steps of a compensation, as applications define them, and its runs, as they see them."""
from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from sqlalchemy import Connection

from mqcore.client import ConfigError
from mqcore.client.patterns.tables import check_function, check_key

STEP_COUNT_MAX = 1_000


class RunState(Enum):
    """How far a run is; STUCK: an undo failed too often, it waits for people."""

    RUNNING = 0
    UNDOING = 1
    DONE = 2
    UNDONE = 3
    STUCK = 4


@dataclass(frozen=True, slots=True)
class StepCall:
    """
    What `do` and `undo` of a step get.

    id          the same for each try of this step of this run: for services that know a request
                by its id
    run_id      of the run
    data        what the run was started with
    results     what the steps that are done returned, by their names; of an undo also its own
    connection  in the transaction that says that the step is done; it must not be ended here
    """

    id: str
    run_id: str
    data: Any
    results: dict[str, Any]
    connection: Connection


Work = Callable[[StepCall], Any]


@dataclass(frozen=True, slots=True)
class Step:
    """
    One step.

    name   recorded with the run: it stays when the program changes
    do     its work; its result is kept (as JSON). An exception has the run undone. After a
           crash it is called again with the same id
    undo   takes it back. It has to bear that `do` failed, or was cut off anywhere. None: nothing
           to take back
    """

    name: str
    do: Work
    undo: Work | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """
    The present state of a run.

    error     why it was undone, or what its last undo said; None: nothing
    results   what the steps returned that are done, by their names
    """

    run_id: str
    state: RunState
    data: Any
    results: dict[str, Any]
    error: str | None


def checked(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps themselves; raises ConfigError for what cannot be run."""
    if not 1 <= len(steps) <= STEP_COUNT_MAX:
        raise ConfigError(f"steps: expected 1 to {STEP_COUNT_MAX}")
    for step in steps:
        if not isinstance(step, Step):
            raise ConfigError(f"steps: expected Step, not {type(step).__name__}")
        check_key(step.name, "step name")
        check_function(step.do, f"do of step {step.name}")
        if step.undo is not None:
            check_function(step.undo, f"undo of step {step.name}")
    if len({step.name for step in steps}) < len(steps):
        raise ConfigError("steps: expected a name of its own for each")
    return tuple(steps)


def json_text(value: Any, what: str) -> str:
    """How a row keeps it; raises ConfigError, naming `what`."""
    try:
        return json.dumps(value)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{what}: expected what JSON can say: {error}") from error
