"""
What an SQL92 expression means, written down slowly and independently of mqcore/filter.

Works on trees of tuples (generate.py makes them), from the rules of broker.md 8 and what
docs/sql92.md adds to them. Nothing here is shared with the parser, compiler or evaluator.
"""
from __future__ import annotations

import math
import operator
import re
from dataclasses import dataclass
from typing import Any

Tree = tuple[Any, ...]
Value = Any                         # None, bool, str or Number

_WHOLE = re.compile(r"[+-]?\d+")
_REAL = re.compile(
    r"(?P<sign>[+-]?)(?:(?P<name>NaN|Infinity)|(?P<decimal>(?:[0-9]+\.?[0-9]*|\.[0-9]+)"
    r"(?:[eE][+-]?[0-9]+)?)[fFdD]?|(?P<hexadecimal>0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*"
    r"|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?)")
_SIGNS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


class Raised(Exception):
    """The evaluation ended without a value."""


@dataclass(frozen=True)
class Number:
    """`kind` is int (32 bits), long or double."""

    kind: str
    value: int | float


# -- refused at compile time -----------------------------------------------------------------------


def bare(tree: Tree) -> Tree:
    """Without parentheses and plus signs, which mean nothing."""
    while tree[0] in ("paren", "plus"):
        tree = tree[1]
    return tree


def refused(tree: Tree) -> bool:
    """Whether the whole expression is refused when it is compiled."""
    return no_condition(tree)


def no_condition(tree: Tree) -> bool:
    tree = bare(tree)
    return tree[0] in ("int", "float", "text", "minus") or bad(tree)


def is_condition(tree: Tree) -> bool:
    return tree[0] in ("not", "and", "or", "equal", "is_null", "order", "between", "in")


def bad(tree: Tree) -> bool:
    """Whether something in the tree breaks a rule, wherever the tree may stand."""
    tree = bare(tree)
    match tree:
        case ("text", _) | ("bool", _) | ("null",) | ("property", _):
            return False
        case ("int", text):
            return int(text.rstrip("lL")) > 2**63 - 1
        case ("float", text):
            return float(text) in (0.0, math.inf)
        case ("minus", operand):
            return bad(operand)
        case ("not", operand):
            return no_condition(operand)
        case ("and" | "or", left, right):
            return no_condition(left) or no_condition(right)
        case ("is_null", operand, _):
            return bad(operand)
        case ("equal", _, left, right):
            left, right = bare(left), bare(right)
            if bad(left) or bad(right) or ("null",) in (left, right):
                return True
            return left[0] == "bool" and right[0] in ("int", "float", "text")
        case ("order", _, left, right):
            return unordered(left) or unordered(right)
        case ("between", operand, low, high, negated):
            if unordered(operand) or unordered(low) or unordered(high):
                return True
            low, high = bare(low), bare(high)
            if negated or {low[0], high[0]} - {"int", "float"}:
                return False
            return compared(constant(low), constant(high)) > 0
        case ("in", operand, items, _):
            return bare(operand)[0] != "property" or any(item[0] != "text" for item in items)
    raise AssertionError(tree)


def unordered(tree: Tree) -> bool:
    tree = bare(tree)
    return bad(tree) or is_condition(tree) or tree[0] in ("text", "bool", "null")


def constant(tree: Tree) -> Number:
    if tree[0] == "float":
        return Number("double", float(tree[1]))
    value = int(tree[1].rstrip("lL"))
    return Number("int" if value < 2**31 else "long", value)


# -- evaluated -------------------------------------------------------------------------------------


def outcome(tree: Tree, properties: dict[str, str]) -> str:
    """T, F or N for true, false and null, X when the evaluation raises."""
    try:
        value = condition(tree, properties)
    except Raised:
        return "X"
    return "N" if value is None else "FT"[value]


def condition(tree: Tree, properties: dict[str, str]) -> bool | None:
    """The tree's value where a condition is wanted: what is neither null nor boolean is false."""
    found = evaluate(tree, properties)
    return found if found is None or isinstance(found, bool) else False


def evaluate(tree: Tree, properties: dict[str, str]) -> Value:
    tree = bare(tree)
    match tree:
        case ("text" | "bool", value):
            return value
        case ("null",):
            return None
        case ("int" | "float", _):
            return constant(tree)
        case ("property", name):
            return properties.get(name)
        case ("minus", operand):
            value = evaluate(operand, properties)
            return Number(value.kind, -value.value) if isinstance(value, Number) else None
        case ("not", operand):
            value = condition(operand, properties)
            return None if value is None else not value
        case ("is_null", operand, negated):
            return (evaluate(operand, properties) is None) != negated
        case ("in", operand, items, negated):
            value = evaluate(operand, properties)
            return None if value is None else (value in [text for _, text in items]) != negated
        case ("between", operand, low, high, negated):
            return evaluate(
                ("or", ("order", "<", operand, low), ("order", ">", operand, high)) if negated else
                ("and", ("order", ">=", operand, low), ("order", "<=", operand, high)), properties)
    return evaluate_pair(tree, properties)


def evaluate_pair(tree: Tree, properties: dict[str, str]) -> Value:
    match tree:
        case ("and" | "or" as word, left, right):
            decides = word == "or"
            first = condition(left, properties)
            if first is decides:
                return decides
            second = condition(right, properties)
            if second is decides:
                return decides
            return None if first is None or second is None else not decides
        case ("equal", sign, left, right):
            same = equal(evaluate(left, properties), evaluate(right, properties))
            return None if same is None else same == (sign == "=")
        case ("order", sign, left, right):
            first = evaluate(left, properties)
            if first is None:
                return None
            second = evaluate(right, properties)
            return None if second is None else _SIGNS[sign](compared(first, second), 0)
    raise AssertionError(tree)


def equal(left: Value, right: Value) -> bool | None:
    if left is None:
        return True if right is None else None
    if right is None:
        return False
    if isinstance(left, str) and isinstance(right, str):
        return left == right
    if isinstance(left, bool) or isinstance(right, bool):
        if isinstance(left, bool) and isinstance(right, str):
            raise Raised
        if isinstance(left, str):
            return (left.lower() == "true") == right
        return isinstance(left, bool) and isinstance(right, bool) and left == right
    return compared(left, right) == 0


def compared(left: Value, right: Value) -> int:
    """Negative, zero or positive; NaN is above everything and -0.0 below 0.0."""
    if isinstance(left, str):
        left = read(left, right.kind if isinstance(right, Number) else "double")
    if isinstance(right, str):
        right = read(right, left.kind)
    if "double" not in (left.kind, right.kind):
        return (left.value > right.value) - (left.value < right.value)
    first, second = ranked(float(left.value)), ranked(float(right.value))
    return (first > second) - (first < second)


def ranked(value: float) -> tuple[bool, float, float]:
    return (True, 0, 0) if math.isnan(value) else (False, value, math.copysign(1, value))


def read(text: str, kind: str) -> Number:
    """The number in a text; it raises when there is none."""
    if kind == "double":
        return Number(kind, read_real(text))
    if not _WHOLE.fullmatch(text) or any(ord(letter) > 0xFFFF for letter in text):
        raise Raised
    limit = 2**31 if kind == "int" else 2**63
    if not -limit <= int(text) < limit:
        raise Raised
    return Number(kind, int(text))


def read_real(text: str) -> float:
    found = _REAL.fullmatch(text.strip("".join(map(chr, range(0x21)))))
    if found is None:
        raise Raised
    if found["name"]:
        value = float(found["name"])
    elif found["decimal"]:
        value = float(found["decimal"])
    else:
        try:
            value = float.fromhex(found["hexadecimal"])
        except OverflowError:
            value = math.inf
    return -value if found["sign"] == "-" else value
