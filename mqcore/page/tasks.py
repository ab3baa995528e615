"""
Dead letters that are sent again, as tasks: they outlast the request that began them.

The copies themselves (REDRIVE_FROM) tell which letters were sent: each step looks for them first.
So a task that ends early, with its process too, loses nothing and sends nothing twice; the letters
that are left stay dead letters, and another task of the same group sends them. Beside a broker a
file says which tasks were under way when the process ended.
"""
from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from mqcore.admin.nouns.dlq import SENT_AGAIN, Redrive
from mqcore.client import AsyncAdmin
from mqcore.page.asking import ERRORS, text_of

TASKS_MAX: Final = 4
KEPT_MAX: Final = 50
FAILURES_MAX: Final = 20                # of one task that are kept
NOTED_S: Final = 1.0                    # between two writings of the file
FILE_BYTES_MAX: Final = 8 << 20
RUNNING, DONE, CANCELLED, FAILED, INTERRUPTED = (
    "running", "done", "cancelled", "failed", "interrupted")

log = logging.getLogger("mqcore.page")


class TaskRefusedError(Exception):
    """There is a task already, or there are too many; the text says which."""


@dataclass
class Task:
    """
    One redrive.

    base       of the cluster's URLs
    form       the fields that it was begun with
    line       the command that does the same
    left_out   sent before, or by another one meanwhile
    failures   rows of letters that were not sent, the first ones
    """

    id: str
    base: str
    group: str
    user: str
    line: str
    form: dict[str, str]
    began: float
    letters: int
    sent: int = 0
    failed: int = 0
    left_out: int = 0
    state: str = RUNNING
    error: str = ""
    ended: float | None = None
    failures: list[dict[str, Any]] = field(default_factory=list)

    @property
    def is_running(self) -> bool:
        """Whether it is under way."""
        return self.state == RUNNING

    def count(self, row: Mapping[str, Any]) -> None:
        """Take in the result of a letter."""
        if row["error"] is not None:
            self.failed += 1
            if len(self.failures) < FAILURES_MAX:
                self.failures.append(dict(row))
        elif row["result"] == SENT_AGAIN:
            self.sent += 1
        else:
            self.left_out += 1


@dataclass
class Tasks:
    """The tasks of a page, the newest first; file: where they are noted, None: nowhere."""

    file: Path | None = None
    clock: Callable[[], float] = time.time
    _known: deque[Task] = field(default_factory=deque)
    _running: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _noted: float = 0.0

    def __post_init__(self) -> None:
        self._known.extend(_read(self.file) if self.file is not None else ())
        for one in self._known:
            if one.is_running:
                one.state = INTERRUPTED

    def of(self, base: str) -> list[Task]:
        """Those of a cluster."""
        return [one for one in self._known if one.base == base]

    def one(self, base: str, name: str) -> Task | None:
        """A task by its id."""
        return next((one for one in self.of(base) if one.id == name), None)

    def begin(
        self, base: str, redrive: Redrive, admin: AsyncAdmin, user: str, line: str,
        form: dict[str, str], told: Callable[[Task], None],
    ) -> Task:
        """
        Begin a redrive.

        admin   is open, and is closed at the end
        told    hears of the end
        Raises TaskRefusedError.
        """
        self.check(base, redrive.group)
        one = Task(secrets.token_hex(8), base, redrive.group, user, line, form, self.clock(),
                   redrive.count, left_out=redrive.skipped)
        self._known.appendleft(one)
        while len(self._known) > KEPT_MAX:
            old = next(task for task in reversed(self._known) if not task.is_running)
            self._known.remove(old)
        self._note()
        self._running[one.id] = asyncio.create_task(self._run(one, redrive, admin, told))
        return one

    def check(self, base: str, group: str) -> None:
        """Raises TaskRefusedError where no task of a group may begin."""
        if len(self._running) >= TASKS_MAX:
            raise TaskRefusedError(f"{TASKS_MAX} tasks are running: wait, or cancel one")
        if any(one.is_running and one.group == group for one in self.of(base)):
            raise TaskRefusedError(f"a task of group {group} is running")

    def cancel(self, one: Task) -> None:
        """End a task after the step that is under way; what was sent stays sent."""
        running = self._running.get(one.id)
        if running is not None and one.is_running:
            one.state = CANCELLED
            # -- after its first step: one that never ran would not come to its end
            asyncio.get_running_loop().call_soon(running.cancel)

    async def _run(self, one: Task, redrive: Redrive, admin: AsyncAdmin,
                   told: Callable[[Task], None]) -> None:
        try:
            async with aclosing(redrive.rows(admin)) as rows:
                async for row in rows:
                    one.count(row)
                    if self.clock() - self._noted >= NOTED_S:
                        self._note()
            one.state = FAILED if one.failed else DONE
        except (*ERRORS, TimeoutError) as error:
            one.state = FAILED
            one.error = text_of(error) or "no answer in time"
        except asyncio.CancelledError:
            if one.state != CANCELLED:          # the process ends
                one.state = INTERRUPTED
        except Exception as error:
            log.error("a redrive of %s: %s", one.group, error, exc_info=error)
            one.state, one.error = FAILED, "an error in the page, which is logged"
        finally:
            one.ended = self.clock()
            del self._running[one.id]
            await admin.close(0)
            self._note()
            told(one)

    async def close(self) -> None:
        """End all tasks."""
        running = list(self._running.values())
        await asyncio.sleep(0)              # each has had its first step
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _note(self) -> None:
        self._noted = self.clock()
        if self.file is None:
            return
        content = json.dumps([asdict(one) for one in self._known]).encode()
        fresh = self.file.with_name(self.file.name + ".tmp")
        try:
            self.file.parent.mkdir(mode=0o700, exist_ok=True)
            with open(fresh, "wb", opener=_private) as opened:
                opened.write(content)               # not synced: the copies are what counts
            os.replace(fresh, self.file)
        except OSError as error:
            log.warning("%s: tasks are not noted: %s", self.file, error)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, mode=0o600)


def _read(file: Path) -> list[Task]:
    """The tasks of a file; none of one that is not there or was changed by hand."""
    try:
        with open(file, "rb") as opened:
            rows = json.loads(opened.read(FILE_BYTES_MAX))
        return [Task(**row) for row in rows][:KEPT_MAX]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError) as error:
        log.warning("%s: tasks are not known: %s", file, error)
        return []
