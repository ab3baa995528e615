"""
The `mqcore` command to its end, in this process: a fresh interpreter takes half a second to load
what the command does in a tenth. Tests of the command itself start it as users do.
"""
from __future__ import annotations

from dataclasses import dataclass

from click.testing import CliRunner

from mqcore.admin.cli import main


@dataclass(frozen=True)
class Done:
    """How a command ended, and what it said."""

    returncode: int
    stdout: str
    stderr: str


def mqcore(*arguments: object) -> Done:
    """Run `mqcore arguments`; what it raises, but for its own end, goes to who called."""
    result = CliRunner().invoke(main, list(map(str, arguments)))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Done(result.exit_code, result.stdout, result.stderr)
