"""
SQL92 filters for Python code: compile once, ask for each message.

    wanted = Filter.compile("price > 100 AND color = 'blue'")
    wanted.matches(record_properties)

Serving processes evaluate the same program natively: `Filter.program` is what they load.
"""
from __future__ import annotations

import threading
from collections import OrderedDict

from mqcore.filter.sql92 import Program
from mqcore.filter.sql92_compiler import Truth, compile_program
from mqcore.wire.sql92_parser import EXPRESSION_BYTES_MAX
from mqcore.wire.sql92_tokens import SqlError

CACHE_COUNT_MAX = 100           # expressions, refused ones too (broker.md 8.2)


class Filter:
    """A compiled expression. Immutable; may be used by several threads at a time."""

    __slots__ = ("_native", "expression", "program")

    def __init__(self, expression: str, program: bytes) -> None:
        """`program`: what compile_program made of the expression. ValueError if it is damaged."""
        self.expression = expression
        self.program = program
        self._native = Program(program)

    @classmethod
    def compile(cls, expression: str) -> Filter:
        """
        The filter of an expression, from the cache if it was asked for lately.

        Raises SqlError (a ValueError with `position` in characters and `expected`) when a stock
        broker would refuse the expression, or when it is over a limit of docs/sql92.md.
        """
        return _cache.get(expression)

    def matches(self, properties: bytes) -> bool:
        """Whether a message with these property bytes (store.md 2.5) passes."""
        return bool(self._native.evaluate(properties) == Truth.TRUE)

    def evaluate(self, properties: bytes) -> Truth:
        """What the expression comes to; RAISED when a stock broker's evaluation would throw."""
        return Truth(self._native.evaluate(properties))

    def count_matches(self, properties: bytes, rounds: int) -> int:
        """Evaluates `rounds` times natively and returns how often it matched; for benchmarks."""
        return int(self._native.count_matches(properties, rounds))


class _Cache:
    """The expressions that were compiled or refused last, by text."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._known: OrderedDict[str, Filter | SqlError] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, expression: str) -> Filter:
        with self._lock:
            found = self._known.get(expression)
        if found is None:
            found = self._compile(expression)
        if len(expression) <= EXPRESSION_BYTES_MAX:     # a longer one would fill the memory
            with self._lock:
                self._known[expression] = found
                self._known.move_to_end(expression)
                while len(self._known) > self._count_max:
                    self._known.popitem(last=False)
        if isinstance(found, SqlError):
            raise type(found)(found.position, found.expected)
        return found

    def __len__(self) -> int:
        return len(self._known)

    @staticmethod
    def _compile(expression: str) -> Filter | SqlError:
        try:
            return Filter(expression, compile_program(expression))
        except SqlError as error:
            return error


_cache = _Cache(CACHE_COUNT_MAX)
