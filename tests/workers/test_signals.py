"""
The table "Signals" of docs/operations.md, and standard output and error that are of no use: neither
ends a broker but in order.
"""
from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pty
import select
import shlex
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcore.admin.logs import LogFile
from mqcore.wire.codes import RequestCode
from tests.support.dice import seed_of_run
from tests.support.mqcore_process import (
    MEMORY,
    MQCORE,
    SMALL_STORE,
    START_TIMEOUT_S,
    MqcoreProcess,
    mqcore_namesrv,
    mqcore_up,
)
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer
from tests.workers.load import Asker, audit, load
from tests.workers.processes import by_role, kill
from tests.workers.test_end import own_settings, refused, set_all

SEED = seed_of_run()
# Sent to each process, these neither end nor restart one.
HARMLESS = ("HUP", "QUIT", "USR2", "PIPE", "ALRM", "VTALRM", "PROF", "IO", "TTOU", "WINCH", "CONT")
WITH_HANGUP = ("env", "--default-signal=HUP", *MQCORE)     # tests may run below nohup
TO_CHILDREN = ("INT", "USR1", "PWR", "XCPU")


def answers(broker: MqcoreProcess) -> bool:
    with Asker(broker.broker_addr) as asker:
        return asker.pull("nothing", 0, 0).code in (17, 24)


def test_signals_that_say_nothing_leave_every_process_at_work(tmp_path: Path) -> None:
    with mqcore_up(tmp_path, program=WITH_HANGUP) as broker:
        before = by_role(broker)
        for role, pid in before.items():
            for name in (*HARMLESS, *(() if role == "supervisor" else TO_CHILDREN)):
                os.kill(pid, signal.Signals[f"SIG{name}"])
        for pid in before.values():
            os.kill(pid, signal.SIGTSTP)
        for pid in before.values():
            os.kill(pid, signal.SIGCONT)
        wait_until(lambda: "SIGHUP: " in broker.tail(), "the word about the signal")
        assert answers(broker)
        assert by_role(broker) == before
        assert "File \"" in broker.tail(), "no stack of a thread was written"


@pytest.mark.parametrize("name", ["PWR", "XCPU"])
def test_signals_of_the_machine_stop_in_order(tmp_path: Path, name: str) -> None:
    with mqcore_up(tmp_path) as broker:
        broker.process.send_signal(signal.Signals[f"SIG{name}"])
        assert broker.process.wait(START_TIMEOUT_S) == 0, broker.tail()
        assert not (broker.store / "abort").exists()


def test_a_name_server_lives_on_or_stops_with_status_0(tmp_path: Path) -> None:
    with mqcore_namesrv(tmp_path) as server:
        for name in (*HARMLESS, "USR1"):
            server.process.send_signal(signal.Signals[f"SIG{name}"])
        host, _, port = server.namesrv_addr.rpartition(":")
        with Peer(server.namesrv_addr) as peer:
            assert peer.ask(RequestCode.GET_NAMESRV_CONFIG).code == 0
        socket.create_connection((host, int(port))).close()


@contextlib.contextmanager
def at_a_terminal(arguments: list[str]) -> Iterator[tuple[int, int]]:
    """A `mqcore` command as the leader of a terminal's session: its pid, and the other end."""
    pid, other_end = pty.fork()
    if pid == 0:
        os.execvp(WITH_HANGUP[0], [*WITH_HANGUP, *arguments])
    try:
        yield pid, other_end
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
        with contextlib.suppress(OSError):
            os.close(other_end)


def read_until(fd: int, word: bytes) -> None:
    said = b""
    while word not in said:
        assert select.select([fd], [], [], START_TIMEOUT_S)[0], said
        said += os.read(fd, 4096)


def exit_status(pid: int) -> int:
    found: list[int] = []

    def ended() -> bool:
        known, status = os.waitpid(pid, os.WNOHANG)
        if known:
            found.append(os.waitstatus_to_exitcode(status))
        return bool(known)

    wait_until(ended, "the end")
    return found[0]


def test_a_terminal_that_went_away_stops_in_order_and_loses_nothing(tmp_path: Path) -> None:
    """Acknowledged messages are only in the pool until the stop: commits are 10 s apart."""
    print(f"seed {SEED}")
    settings = {**SMALL_STORE, **MEMORY, **own_settings(tmp_path), "broker.name": "mqcore-a",
                "store.flush": "transient-pool", "store.commit_interval_ms": 10_000,
                "store.commit_least_pages": 4_000,
                "store.commit_thorough_interval_ms": 10_000_000}
    with at_a_terminal(["up", *set_all(settings)]) as (pid, other_end):
        read_until(other_end, b"mqcore ready")

        async def some() -> object:
            async with load(f"127.0.0.1:{settings['broker.listen_port']}", SEED) as running:
                await running.acknowledged(500)
                return (await running.stop()).acknowledged

        promised = asyncio.run(some())
        os.kill(pid, signal.SIGHUP)                  # the terminal is there: that ends nothing
        read_until(other_end, b"SIGHUP: ")
        os.close(other_end)
        assert exit_status(pid) == 0
    assert not (tmp_path / "store" / "abort").exists()

    async def more() -> None:
        async with load(broker.broker_addr, SEED, first=50) as running:
            await running.acknowledged(10)
            audit(broker.broker_addr, await running.stop(), others=promised)    # type: ignore[arg-type]

    with mqcore_up(tmp_path, {"store.flush": "transient-pool"}) as broker:
        asyncio.run(more())


def test_nohup_and_a_closed_terminal_leave_a_name_server_or_end_it(tmp_path: Path) -> None:
    """The same of a name server, which writes nothing to the terminal that has gone."""
    config = tmp_path / "namesrv.toml"
    config.write_text(f'[namesrv]\nlisten_port = 0\nkv_config_path = "{tmp_path}/kv.json"\n'
                      f'runtime_config_path = "{tmp_path}/run.json"\n')
    with at_a_terminal(["namesrv", "run", "-c", str(config)]) as (pid, other_end):
        read_until(other_end, b"mqcore ready")
        os.close(other_end)
        assert exit_status(pid) == 0


@pytest.mark.parametrize("redirected", [">&- 2>&-", "2>&- </dev/null >/dev/null",
                                        ">/dev/full 2>/dev/full"])
def test_a_broker_serves_and_stops_without_output(tmp_path: Path, redirected: str) -> None:
    settings = {**SMALL_STORE, **MEMORY, **own_settings(tmp_path)}
    command = shlex.join([*MQCORE, "up", *set_all(settings)])
    process = subprocess.Popen(["sh", "-c", f"exec {command} {redirected}"],
                               stdin=subprocess.DEVNULL)
    broker = MqcoreProcess(process, tmp_path, tmp_path / "none",
                           f"127.0.0.1:{settings['broker.listen_port']}")

    def serves() -> bool:
        assert process.poll() is None, process.returncode
        try:
            return answers(broker)
        except OSError:
            return False

    try:
        wait_until(serves, "an answer")
        kill(broker, "scheduler")                    # a line of the log, and another fork
        wait_until(lambda: "scheduler" in by_role(broker), "the next scheduler")
        for pid in by_role(broker).values():         # no file got the number of an output
            for fd in (1, 2):
                assert os.readlink(f"/proc/{pid}/fd/{fd}") in ("/dev/null", "/dev/full")
        process.terminate()
        assert process.wait(START_TIMEOUT_S) == 0
        assert not (tmp_path / "store" / "abort").exists()
    finally:
        if process.poll() is None:
            broker.kill()


@pytest.mark.parametrize(("file", "content"), [
    ("config/consumerOffset.json", "{"), ("config/topics.json", '{"topicConfigTable": {"T": 1}}'),
    ("config/subscriptionGroup.json", '{"subscriptionGroupTable": []}'),
    ("config/delayOffset.json", "{"), ("config/consumerFilter.json", "["),
    ("namesrv/kvConfig.json", "{"), ("namesrv/runtime.json", "{")])
def test_a_table_that_cannot_be_read_ends_the_start_with_status_1(
    tmp_path: Path, file: str, content: str
) -> None:
    broken = tmp_path / "store" / file
    broken.parent.mkdir(parents=True)
    broken.write_text(content)
    code, said = refused(tmp_path, ["up", *set_all({
        **SMALL_STORE, **MEMORY, **own_settings(tmp_path)})])
    assert code == 1, said
    assert broken.name in said
    assert broken.read_text() == content


# -- log files -------------------------------------------------------------------------------------


def test_each_process_leaves_a_log_file_that_was_renamed(tmp_path: Path) -> None:
    file = tmp_path / "broker.log"
    with mqcore_up(tmp_path, {"log.file": file}) as broker:
        file.rename(tmp_path / "broker.log.1")
        size = (tmp_path / "broker.log.1").stat().st_size
        kill(broker, "scheduler")
        wait_until(lambda: file.exists() and "scheduler" in file.read_text(), "a line in a new one")
    assert (tmp_path / "broker.log.1").stat().st_size == size
    assert "stopping on SIGTERM" in file.read_text()


def test_a_log_file_that_cannot_be_opened_again_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def line(text: str) -> logging.LogRecord:
        return logging.LogRecord("mqcore", logging.INFO, "", 0, text, (), None)

    folder = tmp_path / "logs"
    folder.mkdir()
    handler = LogFile(str(folder / "broker.log"))
    handler.emit(line("first"))
    folder.rename(tmp_path / "moved")
    handler.emit(line("second"))
    assert (tmp_path / "moved" / "broker.log").read_text() == "first\nsecond\n"
    folder.mkdir()
    handler.emit(line("third"))
    assert (folder / "broker.log").read_text() == "third\n"
    os.remove(folder / "broker.log")
    os.symlink("/dev/full", folder / "broker.log")
    handler.emit(line("fourth"))
    assert "fourth" in capsys.readouterr().err
