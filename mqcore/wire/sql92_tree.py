"""The nodes of a parsed SQL92 filter expression (broker.md 8.2, docs/sql92.md)."""
from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(slots=True, frozen=True)
class Literal:
    """A constant: None (NULL), bool, int, float or str."""

    value: bool | int | float | str | None


@dataclass(slots=True, frozen=True)
class Property:
    """A message property, a string or null; as a condition it is false, or null when missing."""

    name: str


@dataclass(slots=True, frozen=True)
class Negate:
    """Minus: the number with the other sign, null for everything that is no number."""

    operand: Node


@dataclass(slots=True, frozen=True)
class Not:
    operand: Node


@dataclass(slots=True, frozen=True)
class Equal:
    """`=`, or `<>` when negated."""

    left: Node
    right: Node
    negated: bool


@dataclass(slots=True, frozen=True)
class IsNull:
    operand: Node
    negated: bool


@dataclass(slots=True, frozen=True)
class Order:
    """`sign` is one of < <= > >=; neither side is boolean, a string literal or NULL."""

    sign: str
    left: Node
    right: Node


@dataclass(slots=True, frozen=True)
class Between:
    operand: Node
    low: Node
    high: Node
    negated: bool


@dataclass(slots=True, frozen=True)
class In:
    name: str
    texts: tuple[str, ...]
    negated: bool


@dataclass(slots=True, frozen=True)
class And:
    items: tuple[Node, ...]


@dataclass(slots=True, frozen=True)
class Or:
    items: tuple[Node, ...]


Node: TypeAlias = (
    Literal | Property | Negate | Not | Equal | IsNull | Order | Between | In | And | Or
)
CONDITIONS = (Not, Equal, IsNull, Order, Between, In, And, Or)


def is_condition(node: Node) -> bool:
    """Whether the node's own value is boolean or null."""
    return isinstance(node, CONDITIONS)


def is_boolean_literal(node: Node) -> bool:
    return isinstance(node, Literal) and isinstance(node.value, bool)


def can_be_condition(node: Node) -> bool:
    """Whether the node may stand where a condition must: a bare property and NULL may."""
    if isinstance(node, Literal):
        return node.value is None or isinstance(node.value, bool)
    return isinstance(node, Property) or is_condition(node)
