"""
Standard output and error of the `mqcore` command, when they are closed or take nothing.

A command that cannot print fails, with one sentence and an exit status. Words that standard error
does not take are lost, and change no exit status.
"""
from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Mapping
from typing import Any, NoReturn

import click

from mqcore.admin.shell.lazy import LazyGroup

EXIT_REFUSED = 1                  # by this machine (shell/exits.py, which loads the client)


class OutputError(OSError):
    """Standard output does not take what a command prints."""

    def __str__(self) -> str:
        return f"standard output: {self.strerror}"


class _Output(io.FileIO):
    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:              # the reader has seen enough
            raise
        except OSError as error:
            raise OutputError(error.errno, error.strerror) from None


class _Words(io.FileIO):
    def write(self, data: Any) -> int:
        with contextlib.suppress(OSError):
            return super().write(data)
        return len(data)


class Program(LazyGroup):
    """
    The whole command.

    undone: the exit statuses of commands that could not do their work, where it is not 1.
    """

    def __init__(self, *arguments: Any, undone: Mapping[str, int], **given: Any) -> None:
        super().__init__(*arguments, **given)
        self._undone = undone

    def main(self, *arguments: Any, **given: Any) -> Any:
        """Run it, with streams that say what they do not take."""
        _prepare()
        try:
            return super().main(*arguments, **given)
        except OutputError as error:         # of a help text
            _unprinted(error, EXIT_REFUSED)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; its exit status is worth something if all that it printed was taken."""
        try:
            try:
                return super().invoke(ctx)
            finally:
                sys.stdout.flush()
        except (OutputError, BrokenPipeError) as error:
            _unprinted(error, self._undone.get(str(ctx.invoked_subcommand), EXIT_REFUSED))


def _unprinted(error: OSError, status: int) -> NoReturn:
    if isinstance(error, OutputError):
        click.echo(f"Error: {error}", err=True)
    null = os.open(os.devnull, os.O_WRONLY)           # for the interpreter's own last flush
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
    sys.exit(status)


def _prepare() -> None:
    """A closed output becomes one that refuses all; a file would get its number otherwise."""
    for fd, mode in ((0, os.O_RDWR), (1, os.O_RDONLY), (2, os.O_RDWR)):
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(os.open(os.devnull, mode), True)       # the lowest free number
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)          # noqa: SIM115
    if sys.stdout is sys.__stdout__:                                  # not a test's
        sys.stdout = _over(_Output(_fd(sys.stdout, 1), "w", closefd=False), sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _over(_Words(_fd(sys.stderr, 2), "w", closefd=False), sys.stderr)


def _fd(stream: Any, otherwise: int) -> int:
    return otherwise if stream is None else int(stream.fileno())


def _over(raw: io.FileIO, before: Any) -> io.TextIOWrapper:
    if before is None:
        return io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8", errors="replace")
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding=before.encoding, errors=before.errors,
                            line_buffering=before.line_buffering)
