"""A log file that several processes write and rename themselves (log.file_bytes_max)."""
from __future__ import annotations

import logging
import os
from pathlib import Path

from mqcore.admin.logs import LogFile

PROCESSES = 4
LINES = 300                            # of each process


def line(text: str) -> logging.LogRecord:
    return logging.LogRecord("mqcore", logging.INFO, "", 0, text, (), None)


def numbered(folder: Path) -> list[Path]:
    return sorted(folder.glob("broker.log.*"), key=lambda file: int(file.suffix[1:]))


def test_a_full_file_is_renamed_and_the_oldest_one_goes(tmp_path: Path) -> None:
    handler = LogFile(str(tmp_path / "broker.log"), 20, 2)
    for number in range(7):
        handler.emit(line(f"line {number} of ten"))          # two are more than 20 bytes
    handler.close()
    assert (tmp_path / "broker.log").read_text() == "line 6 of ten\n"
    assert [file.read_text() for file in numbered(tmp_path)] == [
        "line 4 of ten\nline 5 of ten\n", "line 2 of ten\nline 3 of ten\n"]


def test_without_a_limit_the_file_grows(tmp_path: Path) -> None:
    handler = LogFile(str(tmp_path / "broker.log"))
    for _ in range(1000):
        handler.emit(line("x" * 100))
    handler.close()
    assert [file.name for file in tmp_path.iterdir()] == ["broker.log"]
    assert (tmp_path / "broker.log").stat().st_size == 101_000


def test_processes_with_one_open_file_lose_and_double_no_line(tmp_path: Path) -> None:
    """They inherit the descriptor of their parent, as a broker's processes do."""
    handler = LogFile(str(tmp_path / "broker.log"), 1000, 1000)
    children = []
    for process in range(PROCESSES):
        pid = os.fork()
        if pid == 0:
            try:
                for number in range(LINES):
                    handler.emit(line(f"{process} {number}"))
                os._exit(0)
            finally:
                os._exit(1)
        children.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * PROCESSES
    handler.close()
    files = [tmp_path / "broker.log", *numbered(tmp_path)]
    assert len(files) > 5
    texts = [file.read_text() for file in files]
    found = [said for text in texts for said in text.splitlines()]
    assert sorted(found) == sorted(
        f"{process} {number}" for process in range(PROCESSES) for number in range(LINES))
    # -- a process that had looked before the rename still adds its line
    assert all(len(text) < 1000 + 20 * (PROCESSES + 1) for text in texts)


def test_a_name_that_cannot_be_renamed_keeps_the_file(tmp_path: Path) -> None:
    handler = LogFile(str(tmp_path / "broker.log"), 10, 1)
    (tmp_path / "broker.log.1").mkdir()
    (tmp_path / "broker.log.1" / "other").touch()
    for number in range(3):
        handler.emit(line(f"a long line {number}"))
    handler.close()
    assert (tmp_path / "broker.log").read_text() == (
        "a long line 0\na long line 1\na long line 2\n")
