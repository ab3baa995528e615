"""The desk: commands that share a JVM end, fail and print like processes of their own."""
from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from mqcore.testing import MemoryBroker
from tests.interop.desk import Desk
from tests.interop.messages import message, mids, plain
from tests.interop.runner import EXIT_TOO_FEW, Programs
from tests.interop.toolchain import require_client
from tests.support.waiting import wait_until

TIMEOUT_S = 60


@pytest.fixture(scope="module")
def broker() -> Iterator[MemoryBroker]:
    require_client("java")
    with MemoryBroker() as running:
        yield running


def test_one_that_fails_says_why_and_the_others_go_on(
    programs: Programs, broker: MemoryBroker,
) -> None:
    reading = programs.consume("java", broker.namesrv, "going-on", "readers", 2)
    failed = programs.start_java("no-such-command")

    assert failed.end() == 1
    assert "unknown command: no-such-command" in failed.tail()
    programs.produce("java", broker.namesrv, "going-on", plain(["one", "two"])).finish()
    assert sorted(mids(reading.finish())) == ["one", "two"]
    assert reading.tail() == "ready\n"


def test_one_that_waits_in_vain_ends_with_the_code_of_its_program(
    programs: Programs, broker: MemoryBroker,
) -> None:
    reading = programs.consume("java", broker.namesrv, "nothing", "readers", 1, timeout_s=0)

    assert reading.end() == EXIT_TOO_FEW


def test_one_that_is_killed_takes_all_with_it_and_the_next_one_has_another_jvm(
    tmp_path: Path, broker: MemoryBroker,
) -> None:
    with closing(Desk(tmp_path)) as own:
        programs = Programs(tmp_path, own)
        hanging = programs.produce("java", broker.namesrv, "hanging",
                                   [*plain(["first"]), message("hang", "", "hang")])
        reading = programs.consume("java", broker.namesrv, "hanging", "readers", 2)
        wait_until(lambda: hanging.read_lines() and reading.read_lines(), "the first message")

        hanging.stop()

        assert reading.process.wait(TIMEOUT_S) == hanging.process.returncode == -signal.SIGKILL
        programs.produce("java", broker.namesrv, "hanging", plain(["second"])).finish()
