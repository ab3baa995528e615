"""What the commands write for people: each line on its own, whatever names of peers it repeats."""
from __future__ import annotations

from collections.abc import Iterable

import click

from mqcore.wire.printable import printable


def say(lines: str | Iterable[str], *, err: bool = False) -> None:
    """One line, or several; err: to standard error."""
    for line in [lines] if isinstance(lines, str) else lines:
        click.echo(printable(line), err=err)
