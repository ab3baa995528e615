"""
Where log lines go and how they look. One event is one line, whatever names of peers it repeats;
only the lines of a traceback follow it, set off from the margin, where no event's line begins.
"""
from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import sys
import time

from mqcore.events import name_of
from mqcore.wire.printable import json_line, printable

TEXT_FORM = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
TRACE_MARGIN = "    "


class TextLines(logging.Formatter):
    """Text: time, level, process, message, and behind it the name of the line."""

    def __init__(self) -> None:
        super().__init__(TEXT_FORM)

    def formatMessage(self, record: logging.LogRecord) -> str:
        name = name_of(record)
        return printable(super().formatMessage(record)) + (f" event={name}" if name else "")

    def formatException(self, ei: object) -> str:
        return _set_off(super().formatException(ei))          # type: ignore[arg-type]

    def formatStack(self, stack_info: str) -> str:
        return _set_off(super().formatStack(stack_info))


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(record.created))
            + f".{int(record.msecs):03d}",
            "level": record.levelname.lower(), "process": record.name.removeprefix("mqcore."),
            "pid": record.process, "event": name_of(record), "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json_line(line)


class LogFile(logging.FileHandler):
    """
    The file of a name. Each process leaves a file that was renamed or removed, as by logrotate, for
    a new one. With bytes_max the process that finds the file so long renames it to NAME.1, and
    earlier ones to NAME.2 and so on; `count` renamed files are kept. A failure stops nothing: lines
    go to the open file while no other can be opened, and to standard error while the file takes
    none.
    """

    def __init__(self, path: str, bytes_max: int = 0, count: int = 1) -> None:
        """bytes_max: 0: it grows."""
        self._bytes_max, self._count = bytes_max, count
        super().__init__(path, encoding="utf-8", errors="backslashreplace")

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):
            self._follow_name()
        super().emit(record)

    def _follow_name(self) -> None:
        before = self.stream
        if before is None:                             # closed, at the end of the process
            return
        held = os.fstat(before.fileno())
        try:
            named = os.stat(self.baseFilename)
        except FileNotFoundError:
            pass
        else:
            if (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino) and not (
                    self._bytes_max and held.st_size >= self._bytes_max and self._rotate(held)):
                return
        self.stream = self._open()
        before.close()

    def _rotate(self, held: os.stat_result) -> bool:
        """
        Whether the name leads to another file now. The lock is one of the folder: processes that
        were forked share what they hold open, and with it its locks.
        """
        folder = os.open(os.path.dirname(self.baseFilename), os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            named = os.stat(self.baseFilename)
            if (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino):
                for number in range(self._count - 1, 0, -1):
                    with contextlib.suppress(FileNotFoundError):
                        os.replace(f"{self.baseFilename}.{number}",
                                   f"{self.baseFilename}.{number + 1}")
                os.replace(self.baseFilename, f"{self.baseFilename}.1")
            return True
        finally:
            os.close(folder)

    def handleError(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):
            print(self.format(record), file=sys.stderr, flush=True)


def configure(level: str, file: str, form: str, *, bytes_max: int = 0, count: int = 1) -> None:
    """
    Send log lines to `file`, or to standard error when it is empty.

    level: debug, info, warning or error; form: text or json; bytes_max, count: see LogFile. Raises
    OSError.
    """
    handler: logging.Handler = (
        LogFile(file, bytes_max, count) if file else logging.StreamHandler(sys.stderr))
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("asyncio").setLevel(logging.WARNING)


def _set_off(text: str) -> str:
    return "\n".join(TRACE_MARGIN + printable(line) for line in text.split("\n"))
