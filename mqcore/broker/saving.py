"""Tables that go to the disk beside the requests: one after the other, in another thread."""
from __future__ import annotations

from collections.abc import Callable, Iterator

from mqcore.broker.ports import Background

Begin = Callable[[], Iterator[None]]           # the steps that write a table as it is then
Done = Callable[[OSError | None], None]


class Saving:
    """Who wants a table to be saved, and what is being written."""

    def __init__(self, background: Background) -> None:
        self._background = background
        self._waiting: dict[str, tuple[Begin, list[Done]]] = {}
        self._busy = False
        self._over = False

    def end(self) -> None:
        """Nothing more is begun: whoever ends writes the tables itself."""
        self._over = True

    def save(self, name: str, begin: Begin, done: Done) -> None:
        """
        Write a table once what is being written is written; `done` is called with the error that
        kept it from that. Who asks for the same table before it is begun shares the one writing.
        """
        waiting = self._waiting.get(name)
        if waiting is not None:
            waiting[1].append(done)
            return
        self._waiting[name] = begin, [done]
        self._save_next()

    def _save_next(self) -> None:
        if self._busy or self._over or not self._waiting:
            return
        name = next(iter(self._waiting))
        begin, waiting = self._waiting.pop(name)
        self._busy = True

        def end(error: OSError | None) -> None:
            self._busy = False
            for done in waiting:
                done(error)
            self._save_next()

        self._background.run(begin(), end)
