"""A dispatcher that is told to stop waits for what it cannot hurry, and takes no core for it."""
from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from mqcore.layout import WORKER_RUNNING
from mqcore.participants import WRITER
from mqcore.store.queue.dispatch import DispatchFailure
from mqcore.workers.dispatcher import dispatcher as dispatcher_module
from mqcore.workers.dispatcher.dispatcher import Dispatcher
from tests.store.disk_life import SEGMENT, small_settings
from tests.store.harness import new_segment

WAIT_S = 0.3
PAUSE_S = 0.03


class CountedLoop:
    """The dispatcher's loop, but its turns are counted and end at once."""

    def __init__(self, loop: Any, failure: int, has_work: bool) -> None:
        self._loop = loop
        self._failure = failure
        self._has_work = has_work
        self.turns = 0

    def run(self, _turn_ms: int) -> int:
        self.turns += 1
        return self._failure

    def has_work(self) -> bool:
        return self._has_work

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)


@pytest.mark.parametrize(("failure", "has_work"), [(DispatchFailure.DISPATCH_IO, True), (0, False)],
                         ids=["the disk refuses", "the writer still runs"])
def test_a_stop_that_has_to_wait_pauses_between_its_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: int, has_work: bool,
) -> None:
    monkeypatch.setattr(dispatcher_module, "REFUSED_S_MAX", WAIT_S)
    monkeypatch.setattr(dispatcher_module, "RETRY_S", PAUSE_S)
    monkeypatch.setattr(dispatcher_module, "WRITER_LOOK_S", PAUSE_S)
    segment = new_segment(segment_size=SEGMENT, message_bytes_max=1024)
    dispatcher = Dispatcher(small_settings(tmp_path, "async"), segment)
    dispatcher.start()
    loop = dispatcher._loop = CountedLoop(dispatcher._loop, failure, has_work)
    dispatcher._stop_timeout_s = WAIT_S
    segment.started(WRITER.slot, os.getpid(), 0)
    segment.set_state(WRITER.slot, WORKER_RUNNING)

    dispatcher.stop()

    assert 1 <= loop.turns <= WAIT_S / PAUSE_S + 1
