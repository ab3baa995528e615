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


Places = tuple[int, ...]                       # of memory, and of each thread's buffer and heard
Move = tuple[int, int, int]                    # where memory, its buffer and its heard are then


class View(NamedTuple):
    """What one thread's next step depends on."""

    memory: tuple[tuple[str, int], ...]
    buffer: tuple[Step, ...]                   # its stores that nobody else sees yet
    heard: tuple[Any, ...]                     # what its steps have got so far


class Explorer:
    """
    threads: run side by side. memory: what words hold at first, 0 for all others. at_end: called
    with the memory and with what each thread has returned, in every way in which all can end.

    States are made of few different parts, so each part is kept once and known by its place: a
    state is some small numbers, and what a thread can do at a view of it is found out once.
    """

    def __init__(self, *threads: Thread, memory: dict[str, int] | None = None,
                 at_end: Callable[[dict[str, int], list[Any]], None] | None = None) -> None:
        self.threads = threads
        self.at_end = at_end
        self._parts: list[Any] = []
        self._places: dict[Any, int] = {}
        nothing = self._place(())
        self.first: Places = (self._place(tuple(sorted((memory or {}).items()))),
                              *[nothing] * (2 * len(threads)))
        self._steps: dict[tuple[int, tuple[Any, ...]], tuple[bool, Any]] = {}

    def run(self) -> int:
        """Looks at every state; how many there are. Raises what a thread raises, and Stuck."""
        seen = {self.first}
        todo = [self.first]
        moves: list[dict[Move, list[Move]]] = [{} for _ in self.threads]
        while todo:
            state = todo.pop()
            can_go_on = False
            for number, known in enumerate(moves):
                at = 2 * number + 1
                view = (state[0], state[at], state[at + 1])
                following = known.get(view)
                if following is None:
                    following = known[view] = self._moves(number, view)
                for memory, buffer, heard in following:
                    can_go_on = True
                    one = (memory, *state[1:at], buffer, heard, *state[at + 2:])
                    if one not in seen:
                        seen.add(one)
                        todo.append(one)
            if not can_go_on:
                self._end(state)
            assert len(seen) < STATES_MAX, "too many states: make the model smaller"
        return len(seen)

    def _place(self, part: Any) -> int:
        place = self._places.setdefault(part, len(self._parts))
        if place == len(self._parts):
            self._parts.append(part)
        return place

    def _end(self, state: Places) -> None:
        memory = dict(self._parts[state[0]])
        ends = [self._next(number, self._parts[heard]) for number, heard in enumerate(state[2::2])]
        if not all(ended for ended, _ in ends):
            raise Stuck(memory)
        if self.at_end is not None:
            self.at_end(memory, [said for _, said in ends])

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

    def _moves(self, number: int, places: Move) -> list[Move]:
        """All that can happen next to a thread's stores, and its step."""
        view = View(*map(self._parts.__getitem__, places))
        found = list(drained(view))
        ended, step = self._next(number, view.heard)
        if not ended:
            found += stepped(view, step)
        return [(self._place(one.memory), self._place(one.buffer), self._place(one.heard))
                for one in found]


def drained(view: View) -> Iterator[View]:
    """One of a thread's stores goes to the memory."""
    for at, (kind, word, value) in enumerate(view.buffer):
        before = view.buffer[:at]
        if (before and kind != "store") or any(
                one[0] == "release fence" or one[1] == word for one in before):
            continue
        memory = dict(view.memory)
        if kind != "release fence":
            memory[word] = value
        yield View(tuple(sorted(memory.items())), before + view.buffer[at + 1:], view.heard)


def stepped(view: View, step: Step) -> Iterator[View]:
    """A thread takes a step; each way in which it can."""
    kind, *about = step
    buffer = view.buffer
    memory = dict(view.memory)
    got: list[Any] = [None]
    if kind in ("store", "release"):
        buffer = (*buffer, step)
    elif kind == "release fence":
        buffer = (*buffer, (kind, "", 0)) if buffer else buffer
    elif kind == "load":
        got = [read(memory, buffer, about[0])]
    elif kind == "loads":
        yield from in_any_order(view, about[0])
        return
    elif kind == "choose":
        got = list(range(about[0]))
    elif buffer:
        return                                 # a full fence waits for its thread's stores
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
        yield View(tuple(sorted(memory.items())), buffer, (*view.heard, value))


def in_any_order(view: View, words: tuple[str, ...]) -> Iterator[View]:
    """Loads of several words become loads of one, in each order; others step in between."""
    heard = view.heard
    begun = heard[-1] if heard and isinstance(heard[-1], Loading) else Loading((), ())
    rest = heard[:-1] if begun.order else heard
    orders = (begun.order,) if begun.order else permutations(words)
    for order in orders:
        word = order[len(begun.values)]
        values = (*begun.values, read(dict(view.memory), view.buffer, word))
        now: Any = Loading(order, values)
        if len(values) == len(words):
            now = tuple(values[order.index(word)] for word in words)
        yield view._replace(heard=(*rest, now))


class Loading(NamedTuple):
    order: tuple[str, ...]
    values: tuple[int, ...]


def read(memory: dict[str, int], buffer: tuple[Step, ...], word: str) -> int:
    for _, stored, value in reversed(buffer):
        if stored == word:
            return int(value)
    return memory.get(word, 0)


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
