"""`mqcore.testing`: brokers for other people's tests, which leave nothing behind."""
from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mqcore.bench.cpu import cpu_seconds, process_tree
from mqcore.client import AsyncProducer, Message
from mqcore.testing import Broker, TestingError, broker
from mqcore.testing.guard import PREFIX, locked_folder, remove_left_over
from tests.support.waiting import wait_until

UP = [sys.executable, "-m", "mqcore.admin.cli", "testing", "up", "--json"]
SHARED_MEMORY = Path("/dev/shm")


def send(address: str) -> None:
    async def run() -> None:
        async with AsyncProducer("PG", namesrv=address) as producer:
            await producer.send(Message("T", "x"))
    asyncio.run(run())


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def traces(running: Broker) -> tuple[list[int], list[Path]]:
    """Its processes, and the files that must be gone when it is: folder and shared memory."""
    family = [int(path.name) for path in Path("/proc").iterdir()
              if path.name.isdigit() and session_of(path) == running.pid]
    shared = {Path(line.split(maxsplit=5)[-1].strip()) for pid in family
              for line in Path(f"/proc/{pid}/maps").read_text().splitlines()
              if f"{SHARED_MEMORY}/" in line}
    assert len(family) > 3
    assert shared
    return family, [running.store.parent, *shared]


def session_of(folder: Path) -> int:
    try:
        return int((folder / "stat").read_text().rpartition(")")[2].split()[3])
    except OSError:
        return 0


def assert_gone(processes: list[int], files: list[Path]) -> None:
    wait_until(lambda: not any(map(is_running, processes)), "the end of all processes")
    wait_until(lambda: not any(path.exists() for path in files), "the end of all files")


def test_a_broker_takes_messages_and_leaves_nothing() -> None:
    with broker() as running:
        left = traces(running)
        send(running.namesrv)
        assert (running.store / "commitlog").is_dir()
        assert running.broker != running.namesrv
    assert_gone(*left)


def test_a_broker_is_ready_before_it_has_worked_for_long() -> None:
    """Seconds of CPU of all its processes, on two cores: others use the machine, too."""
    with broker() as running:
        guard = int(Path(f"/proc/{running.pid}/stat").read_text().rpartition(")")[2].split()[1])
        assert sum(map(cpu_seconds, process_tree(guard))) < 2.0


@pytest.mark.slow
def test_a_setting_counts_and_a_wrong_one_is_said() -> None:
    with broker({"broker.name": "mine", "broker.auto_create_topic": False,
                 "broker.message_delay_levels": "1s 2s"}) as running:
        done = subprocess.run(
            [sys.executable, "-m", "mqcore.admin.cli", "message", "send", "-n", running.namesrv,
             "-t", "T", "-p", "x"], capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode != 0
    with pytest.raises(TestingError, match=r"broker\.nmae"), broker({"broker.nmae": "x"}):
        pytest.fail("it started")


def test_a_broker_that_dies_is_an_error_of_the_block() -> None:
    block = broker()
    running = block.__enter__()
    left = traces(running)
    os.kill(running.pid, signal.SIGKILL)
    wait_until(lambda: not running.store.exists(), "the guard's work")
    with pytest.raises(TestingError, match="ended"):
        block.__exit__(None, None, None)
    assert_gone(*left)


@pytest.mark.parametrize("how", ["SIGTERM", "SIGINT", "the end of its input"])
def test_the_command_says_where_it_is_and_ends_cleanly(how: str) -> None:
    with subprocess.Popen(UP, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as guard:
        said = json.loads(guard.stdout.readline())
        assert set(said) == {"namesrv", "broker", "store", "pid"}
        left = traces(Broker(said["namesrv"], said["broker"], Path(said["store"]), said["pid"]))
        if how.startswith("SIG"):
            guard.send_signal(signal.Signals[how])
        else:
            guard.stdin.close()
        assert guard.wait(30) == 0
    assert_gone(*left)


PYTEST_FILE = """
import os, signal
import pytest

def note(broker):
    with open("seen", "a") as file:
        print(broker.namesrv, broker.broker, broker.store, broker.pid, file=file)

def test_first(mqcore_broker):
    note(mqcore_broker)

def test_second_has_the_same_and_fails(mqcore_broker, mqcore_broker_factory):
    note(mqcore_broker)
    note(mqcore_broker_factory({"broker.name": "other"}))
    assert "failing" == "on purpose"

@pytest.mark.skipif("'KILL' not in os.environ")
def test_killed(mqcore_broker):
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True])
def test_the_fixture_cleans_up_after_failures_and_kills(tmp_path: Path, killed: bool) -> None:
    (tmp_path / "test_it.py").write_text(PYTEST_FILE)
    with subprocess.Popen(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"],
            cwd=tmp_path, stdout=subprocess.PIPE, text=True, start_new_session=True,
            env=os.environ | ({"KILL": "1"} if killed else {})) as run:
        output, _ = run.communicate(timeout=60)
    assert run.returncode == (-signal.SIGKILL if killed else 1)
    if not killed:
        assert "1 failed, 1 passed, 1 skipped" in output
    first, second, other = (tmp_path / "seen").read_text().splitlines()
    assert first == second != other
    for line in (first, other):
        *_, store, pid = line.split()
        wait_until(lambda pid=pid: not is_running(int(pid)), "the end of the broker")
        wait_until(lambda store=store: not Path(store).parent.exists(), "the end of its folder")
        assert not list(SHARED_MEMORY.glob(f"mqcore-*-{pid}"))


def test_the_plug_in_imports_nothing_before_it_is_used() -> None:
    code = ("import sys, pytest\n"
            "import mqcore.testing.plugin\n"
            "print(sorted(name for name in sys.modules if name.startswith('mqcore')))")
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == str([
        "mqcore", "mqcore.testing", "mqcore.testing.plugin", "mqcore.testing.running"])


def test_a_scope_that_is_none_is_said(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmqcore_broker_scope = week\n")
    (tmp_path / "test_it.py").write_text("def test_it(mqcore_broker): assert mqcore_broker\n")
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
                          cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0
    assert "expected one of session" in done.stdout + done.stderr


def test_what_a_killed_guard_left_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    abandoned, lock = locked_folder()
    os.close(lock)
    used, held = locked_folder()
    foreign = tmp_path / f"{PREFIX}other"
    foreign.mkdir()

    remove_left_over()

    assert sorted(tmp_path.iterdir()) == sorted([used, foreign])
    assert not abandoned.exists()
    os.close(held)
