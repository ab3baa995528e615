"""
Bodies in which a text or a regular expression is found.

Text without special signs is looked for here. A regular expression may go back and forth over a
body for years, so it runs in a process of its own (mqcore/admin/shell/limited.py).
"""
from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import click

from mqcore.admin.shell.grep_child import SIZE
from mqcore.admin.shell.limited import Limited, LimitedError

WORK: Final = "mqcore.admin.shell.grep_child:work"
SECONDS: Final = 1.0                   # of processor time, for the bodies of one request
BATCH_BYTES: Final = 1 << 20
SPECIAL: Final = frozenset(".^$*+?{}[]\\|()")


class Grep:
    """One --grep; `grepping` makes it."""

    def __init__(self, text: str | None, child: Limited | None) -> None:
        self._text = None if text is None else text.encode(errors="surrogatepass")
        self._child = child

    async def found(self, bodies: Sequence[bytes]) -> list[bool]:
        """Whether it is in each body. Raises LimitedError."""
        text, child = self._text, self._child
        if text is None:
            return [True] * len(bodies)
        if child is None:
            return [text in body for body in bodies]
        told: list[bool] = []
        batch: list[bytes] = []
        size = 0
        for body in bodies:
            if batch and size + len(body) > BATCH_BYTES:
                told += map(bool, await child.ask(_packed(text, batch)))
                batch, size = [], 0
            batch.append(body)
            size += len(body)
        return told + list(map(bool, await child.ask(_packed(text, batch))))


@asynccontextmanager
async def grepping(text: str | None) -> AsyncIterator[Grep]:
    """For the time of a search; None finds all. Raises click.BadParameter."""
    if text is None or SPECIAL.isdisjoint(text):
        yield Grep(text, None)
        return
    async with Limited(WORK, f"--grep {text!r:.200}", SECONDS) as child:
        grep = Grep(text, child)
        try:
            await grep.found(())
        except LimitedError as error:
            raise click.BadParameter(error.message.partition(": ")[2] or error.message,
                                     param_hint=f"--grep {text!r:.200}") from None
        yield grep


def _packed(text: bytes, bodies: Sequence[bytes]) -> bytes:
    return b"".join(piece for one in (text, *bodies) for piece in (SIZE.pack(len(one)), one))
