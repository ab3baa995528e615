"""
Looks at every order in which the steps of a few threads can happen, on a machine weaker than x86.

A thread is a generator function. It yields steps, each a tuple, and gets what they read:

    ("load", word)                 an acquire load
    ("loads", words)               plain loads, in any order; gets their values as a tuple
    ("store", word, value)         a plain store: may be seen after later ones, or before earlier
    ("release", word, value)       is seen after all stores before it
    ("release fence",)             stores behind it are seen after all before it
    ("fence",)                     a full one: what was stored before it is seen by all
    ("swap", word, old, new)       compare and swap; whether it did. A full fence, too
    ("exchange", word, new)        gets the old value. A full fence, too
    ("ring", bell)                 an eventfd is written, once
    ("sleep", bell)                until it has been written since the last sleep
    ("choose", count)              0 to count - 1: whatever happens

Stores lie in a buffer of their thread, which sees them at once, until they go to the memory. Loads
happen one after the other: what an acquire fence is for is shown by `loads`.
"""
from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from itertools import permutations
from typing import Any, NamedTuple

import pytest

Step = tuple[Any, ...]
Steps = Generator[Step, Any, Any]
Thread = Callable[[], Steps]
STATES_MAX = 2_000_000


class Stuck(AssertionError):
    """Somebody sleeps, and nobody will ever wake him."""


class State(NamedTuple):
    memory: tuple[tuple[str, int], ...]
    buffers: tuple[tuple[Step, ...], ...]      # by thread: its stores that nobody else sees yet
    heard: tuple[tuple[Any, ...], ...]         # by thread: what its steps have got so far


class Explorer:
    """
    threads: run side by side. memory: what words hold at first, 0 for all others. at_end: called
    with the memory and with what each thread has returned, in every way in which all can end.
    """

    def __init__(self, *threads: Thread, memory: dict[str, int] | None = None,
                 at_end: Callable[[dict[str, int], list[Any]], None] | None = None) -> None:
        self.threads = threads
        self.at_end = at_end
        self.first = State(tuple(sorted((memory or {}).items())), ((),) * len(threads),
                           ((),) * len(threads))
        self._steps: dict[tuple[int, tuple[Any, ...]], tuple[bool, Any]] = {}

    def run(self) -> int:
        """Looks at every state; how many there are. Raises what a thread raises, and Stuck."""
        seen = {self.first}
        todo = [self.first]
        while todo:
            state = todo.pop()
            following = list(self._after(state))
            if not following:
                self._end(state)
            for one in following:
                if one not in seen:
                    seen.add(one)
                    todo.append(one)
            assert len(seen) < STATES_MAX, "too many states: make the model smaller"
        return len(seen)

    def _end(self, state: State) -> None:
        ends = [self._next(number, heard) for number, heard in enumerate(state.heard)]
        if not all(ended for ended, _ in ends):
            raise Stuck(dict(state.memory))
        if self.at_end is not None:
            self.at_end(dict(state.memory), [said for _, said in ends])

    def _next(self, number: int, heard: tuple[Any, ...]) -> tuple[bool, Any]:
        """(False, the thread's next step) or (True, what it returned)."""
        known = self._steps.get((number, heard))
        if known is None:
            thread = self.threads[number]()
            try:
                step = next(thread)
                for value in heard:
                    if not isinstance(value, Loading):      # not all of its words are read yet
                        step = thread.send(value)
                known = False, step
            except StopIteration as end:
                known = True, end.value
            self._steps[number, heard] = known
        return known

    def _after(self, state: State) -> Iterator[State]:
        for number in range(len(self.threads)):
            yield from self._drained(state, number)
            ended, step = self._next(number, state.heard[number])
            if not ended:
                yield from self._stepped(state, number, step)

    def _drained(self, state: State, number: int) -> Iterator[State]:
        """One of its stores goes to the memory."""
        buffer = state.buffers[number]
        for at, (kind, word, value) in enumerate(buffer):
            before = buffer[:at]
            if (before and kind != "store") or any(
                    one[0] == "release fence" or one[1] == word for one in before):
                continue
            memory = dict(state.memory)
            if kind != "release fence":
                memory[word] = value
            yield State(tuple(sorted(memory.items())),
                        replaced(state.buffers, number, before + buffer[at + 1:]), state.heard)

    def _stepped(self, state: State, number: int, step: Step) -> Iterator[State]:
        kind, *about = step
        buffer = state.buffers[number]
        memory = dict(state.memory)
        got: list[Any] = [None]
        if kind in ("store", "release"):
            buffer = (*buffer, step)
        elif kind == "release fence":
            buffer = (*buffer, (kind, "", 0)) if buffer else buffer
        elif kind == "load":
            got = [read(memory, buffer, about[0])]
        elif kind == "loads":
            yield from self._in_any_order(state, number, about[0])
            return
        elif kind == "choose":
            got = list(range(about[0]))
        elif buffer:
            return                             # a full fence waits for its thread's stores
        elif kind == "swap":
            got = [memory.get(about[0], 0) == about[1]]
            if got[0]:
                memory[about[0]] = about[2]
        elif kind == "exchange":
            got = [memory.get(about[0], 0)]
            memory[about[0]] = about[1]
        elif kind == "ring":
            memory[about[0]] = 1
        elif kind == "sleep":
            if not memory.get(about[0], 0):
                return
            memory[about[0]] = 0
        else:
            assert kind == "fence", step
        for value in got:
            yield State(tuple(sorted(memory.items())), replaced(state.buffers, number, buffer),
                        replaced(state.heard, number, (*state.heard[number], value)))

    def _in_any_order(self, state: State, number: int, words: tuple[str, ...]) -> Iterator[State]:
        """Loads of several words become loads of one, in each order; others step in between."""
        heard = state.heard[number]
        begun = heard[-1] if heard and isinstance(heard[-1], Loading) else Loading((), ())
        rest = heard[:-1] if begun.order else heard
        orders = (begun.order,) if begun.order else permutations(words)
        for order in orders:
            word = order[len(begun.values)]
            values = (*begun.values, read(dict(state.memory), state.buffers[number], word))
            now: Any = Loading(order, values)
            if len(values) == len(words):
                now = tuple(values[order.index(word)] for word in words)
            yield State(state.memory, state.buffers, replaced(state.heard, number, (*rest, now)))


class Loading(NamedTuple):
    order: tuple[str, ...]
    values: tuple[int, ...]


def read(memory: dict[str, int], buffer: tuple[Step, ...], word: str) -> int:
    for _, stored, value in reversed(buffer):
        if stored == word:
            return int(value)
    return memory.get(word, 0)


def replaced(items: tuple[Any, ...], number: int, item: Any) -> tuple[Any, ...]:
    return (*items[:number], item, *items[number + 1:])


def mortal(steps: Steps) -> Steps:
    """Up to any of the steps that others see, then no further: whether it came to its end."""
    value = None
    try:
        while True:
            step = steps.send(value)
            if step[0] not in ("load", "loads", "fence") and (yield ("choose", 2)):
                return False
            value = yield step
    except StopIteration:
        return True


def holds(*threads: Thread, **about: Any) -> int:
    """In every order; how many states there are."""
    return Explorer(*threads, **about).run()


def breaks(*threads: Thread, **about: Any) -> AssertionError:
    """In some order; what it said."""
    with pytest.raises(AssertionError) as caught:
        Explorer(*threads, **about).run()
    return caught.value
