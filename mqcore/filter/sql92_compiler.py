"""
Turns a parsed SQL92 filter into the flat program that serving processes evaluate.

Conditions (true, false, null) live on a stack; values (constants, properties) are operands of the
instructions that compare them, so most comparisons are one instruction. The layout and what each
instruction does are declared in sql92_program.pxd. The order in which things are evaluated is
visible from outside, because a text that is no number ends the whole evaluation without a match:
left before right, AND and OR stop at the first side that decides (broker.md 8.3).
"""
from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import Enum, IntEnum

from mqcore.filter.sql92_program import numbers
from mqcore.wire.sql92_parser import parse
from mqcore.wire.sql92_tokens import INT_MAX, SqlLimit
from mqcore.wire.sql92_tree import (
    And,
    Between,
    Equal,
    In,
    IsNull,
    Literal,
    Negate,
    Node,
    Not,
    Or,
    Order,
    Property,
)

_NUMBERS = numbers()
_HEAD = struct.Struct("<IHHIHHIIq64s")
_NAME = struct.Struct("<IHBB")
_CONSTANT = struct.Struct("<iIq")
_REAL_CONSTANT = struct.Struct("<iId")
_INSTRUCTION = struct.Struct("<BBHHH")


def _members(prefix: str) -> dict[str, int]:
    return {name.removeprefix(prefix): number for name, number in _NUMBERS.items()
            if name.startswith(prefix)}


class Source(Enum):
    """Where an operand comes from; the value is its FilterSource."""

    NULL = _NUMBERS["SOURCE_NULL"]
    CONSTANT = _NUMBERS["SOURCE_CONSTANT"]
    PROPERTY = _NUMBERS["SOURCE_PROPERTY"]
    TOP = _NUMBERS["SOURCE_TOP"]


class Truth(IntEnum):
    """What an expression comes to for one message; only TRUE passes it."""

    FALSE = _NUMBERS["TRUTH_FALSE"]
    TRUE = _NUMBERS["TRUTH_TRUE"]
    NULL = _NUMBERS["TRUTH_NULL"]
    RAISED = _NUMBERS["TRUTH_RAISED"]


OPERATIONS = _members("OP_")
ORDERS = {"<": _NUMBERS["ORDER_LESS"], "<=": _NUMBERS["ORDER_LESS_EQUAL"],
          ">": _NUMBERS["ORDER_GREATER"], ">=": _NUMBERS["ORDER_GREATER_EQUAL"]}
INSTRUCTIONS_MAX = _NUMBERS["INSTRUCTIONS_MAX"]
NAMES_MAX = _NUMBERS["NAMES_MAX"]
CONSTANTS_MAX = _NUMBERS["CONSTANTS_MAX"]


def compile_program(expression: str) -> bytes:
    """
    The program of `expression`, at most PROGRAM_SIZE_MAX bytes.

    Raises SqlError for an expression that is refused or over a limit (docs/sql92.md).
    """
    compiler = _Compiler()
    compiler.condition(parse(expression))
    return compiler.program()


@dataclass(slots=True, frozen=True)
class _Operand:
    """
    One side of a comparison.

    A negation of anything but a number is null, but a condition inside it is evaluated all the
    same, because it can raise: those are the `effects`.
    """

    source: Source
    index: int = 0
    condition: Node | None = None               # of TOP
    effects: tuple[Node, ...] = ()              # of NULL


@dataclass(slots=True)
class _Compiler:
    _code: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    _names: dict[str, int] = field(default_factory=dict)
    _constants: list[tuple[str, bool | int | float | str]] = field(default_factory=list)
    _constant_index: dict[tuple[str, bool | int | float | str], int] = field(default_factory=dict)

    # -- conditions: each leaves one truth on the stack --------------------------------------------

    def condition(self, node: Node) -> None:
        """Emits what evaluates `node` where the grammar wants a condition."""
        match node:
            case Property(name):
                self._emit("CAST", left=self._name(name))
            case Literal(value):
                truth = Truth.NULL if value is None else Truth(bool(value))
                self._emit("PUSH", left=truth)
            case Not(operand):
                self.condition(operand)
                self._emit("NOT")
            case And(items):
                self._joined(items, "JUMP_FALSE", "AND")
            case Or(items):
                self._joined(items, "JUMP_TRUE", "OR")
            case IsNull(operand, negated):
                self._is_null(operand, negated)
            case Equal(left, right, negated):
                self._equal(left, right, negated)
            case Order(sign, left, right):
                self._order(sign, left, right)
            case Between(operand, low, high, negated):
                self._between(operand, low, high, negated)
            case In(name, texts, negated):
                self._in(name, texts, negated)
            case Negate():
                raise TypeError("a negation is a value, the parser keeps it from conditions")

    def _joined(self, items: tuple[Node, ...], jump: str, join: str) -> None:
        """AND or OR of all items: the first that decides jumps behind the last."""
        jumps = []
        self.condition(items[0])
        for item in items[1:]:
            jumps.append(self._emit(jump))
            self.condition(item)
            self._emit(join)
        for index in jumps:
            self._land(index)

    def _is_null(self, node: Node, negated: bool) -> None:
        operand = self._operand(node)
        self._evaluate_effects(operand)
        self._push_top(operand)
        self._emit("IS_NULL", left=operand, negated=negated)

    def _equal(self, left: Node, right: Node, negated: bool) -> None:
        """Both sides are always evaluated, the left one first."""
        first, second = self._operand(left), self._operand(right)
        for operand in (first, second):
            self._evaluate_effects(operand)
            self._push_top(operand)
        self._emit("EQUAL", left=first, right=second, negated=negated)

    def _order(self, sign: str, left: Node, right: Node) -> None:
        """A null on the left decides: the right side is not evaluated then."""
        first, second = self._operand(left), self._operand(right)
        if first.source is Source.NULL:
            self._evaluate_effects(first)
            self._emit("PUSH", left=Truth.NULL)
            return
        if second.source is not Source.NULL:
            self._emit("ORDER", left=first, right=second, order=ORDERS[sign])
            return
        if second.effects:
            self._emit("IS_NULL", left=first)
            jump = self._emit("JUMP_TRUE")
            self._evaluate_effects(second)
            self._land(jump)
            self._emit("TO_NULL")
            return
        self._emit("PUSH", left=Truth.NULL)

    def _between(self, operand: Node, low: Node, high: Node, negated: bool) -> None:
        self._order("<" if negated else ">=", operand, low)
        jump = self._emit("JUMP_TRUE" if negated else "JUMP_FALSE")
        self._order(">" if negated else "<=", operand, high)
        self._emit("OR" if negated else "AND")
        self._land(jump)

    def _in(self, name: str, texts: tuple[str, ...], negated: bool) -> None:
        first = len(self._constants)
        for text in texts:                       # a list stands in one piece, so nothing is shared
            self._new_constant("TEXT", text)
        self._emit("IN", left=self._name(name), right=first, extra=len(texts), negated=negated)

    # -- operands ----------------------------------------------------------------------------------

    def _operand(self, node: Node) -> _Operand:
        match node:
            case Property(name):
                return _Operand(Source.PROPERTY, self._name(name))
            case Literal(None):
                return _Operand(Source.NULL)
            case Literal(value) if value is not None:
                return _Operand(Source.CONSTANT, self._constant(value))
            case Negate(inner):
                return self._negation(inner)
        return _Operand(Source.TOP, condition=node)

    def _negation(self, inner: Node) -> _Operand:
        sign = -1
        while isinstance(inner, Negate):
            sign, inner = -sign, inner.operand
        if isinstance(inner, Literal) and not isinstance(inner.value, bool | str | None):
            wide = isinstance(inner.value, int) and inner.value > INT_MAX
            return _Operand(Source.CONSTANT, self._constant(sign * inner.value, wide=wide))
        if isinstance(inner, Literal | Property):
            return _Operand(Source.NULL)
        return _Operand(Source.NULL, effects=(inner,))

    def _evaluate_effects(self, operand: _Operand) -> None:
        for effect in operand.effects:
            self.condition(effect)
            self._emit("DROP")

    def _push_top(self, operand: _Operand) -> None:
        if operand.condition is not None:
            self.condition(operand.condition)

    def _name(self, name: str) -> int:
        if name not in self._names and len(self._names) == NAMES_MAX:
            raise SqlLimit(0, f"at most {NAMES_MAX} different properties")
        return self._names.setdefault(name, len(self._names))

    def _constant(self, value: bool | int | float | str, *, wide: bool = False) -> int:
        """The index of a constant; `wide`: a whole number that was written as 64 bits."""
        if isinstance(value, bool):
            kind = "BOOLEAN"
        elif isinstance(value, int):
            kind = "LONG" if wide or value > INT_MAX else "INT"
        else:
            kind = "DOUBLE" if isinstance(value, float) else "TEXT"
        known = self._constant_index.get((kind, value))
        if known is None:
            known = self._constant_index[kind, value] = self._new_constant(kind, value)
        return known

    def _new_constant(self, kind: str, value: bool | int | float | str) -> int:
        if len(self._constants) == CONSTANTS_MAX:
            raise SqlLimit(0, f"at most {CONSTANTS_MAX} constants")
        self._constants.append((kind, value))
        return len(self._constants) - 1

    # -- bytes -------------------------------------------------------------------------------------

    def _emit(
        self, operation: str, *, left: _Operand | int = 0, right: _Operand | int = 0,
        negated: bool = False, order: int = 0, extra: int = 0,
    ) -> int:
        """Appends an instruction and returns its index."""
        if len(self._code) == INSTRUCTIONS_MAX:
            raise SqlLimit(0, f"an expression of at most {INSTRUCTIONS_MAX} steps")
        flags = _NUMBERS["FLAG_NEGATED"] * negated | order << _NUMBERS["FLAG_ORDER_SHIFT"]
        if isinstance(left, _Operand):
            flags |= left.source.value
            left = left.index
        if isinstance(right, _Operand):
            flags |= right.source.value << _NUMBERS["FLAG_RIGHT_SHIFT"]
            right = right.index
        self._code.append((OPERATIONS[operation], flags, left, right, extra))
        return len(self._code) - 1

    def _land(self, jump: int) -> None:
        """Lets an earlier jump lead to the next instruction."""
        self._code[jump] = (*self._code[jump][:4], len(self._code))

    def program(self) -> bytes:
        """The finished program."""
        text = bytearray()
        names = []
        none = _NUMBERS["NAME_NONE"]
        buckets = [none] * _NUMBERS["NAME_BUCKETS"]
        for index, name in enumerate(self._names):
            bucket = len(name) % len(buckets)    # names are ASCII
            names.append(_NAME.pack(len(text), len(name), buckets[bucket], 0))
            buckets[bucket] = index
            text += name.encode()
        constants = [self._packed(kind, value, text) for kind, value in self._constants]
        parts = b"".join([*names, *constants, *(_INSTRUCTION.pack(*step) for step in self._code)])
        head = _HEAD.pack(
            _NUMBERS["PROGRAM_MAGIC"], _NUMBERS["PROGRAM_VERSION"], len(names),
            _HEAD.size + len(parts) + len(text), len(constants), len(self._code), len(text), 0, 0,
            bytes(buckets))
        return head + parts + bytes(text)

    def _packed(self, kind: str, value: bool | int | float | str, text: bytearray) -> bytes:
        """One constant; a text's bytes go behind the others."""
        number = _NUMBERS[f"TYPE_{kind}"]
        if isinstance(value, float):
            return _REAL_CONSTANT.pack(number, 0, value)
        if not isinstance(value, str):
            return _CONSTANT.pack(number, 0, int(value))
        encoded = value.encode()
        packed = _CONSTANT.pack(number, len(encoded), len(text))
        text += encoded
        return packed
