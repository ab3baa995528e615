"""Tag codes and subscriptions: what a consumer asks for and how a broker narrows it down."""
from __future__ import annotations

import sys
from dataclasses import dataclass, field
from operator import mul
from typing import Any

SUBSCRIBE_ALL = "*"
EXPRESSION_TAG = "TAG"
EXPRESSION_SQL92 = "SQL92"
UTF_16 = f"utf-16-{sys.byteorder[0]}e"
HASH_UNITS = 512                                # that are added up between two remainders
HASH_POWERS = tuple(pow(31, power, 1 << 32) for power in range(HASH_UNITS, -1, -1))


def java_string_hash(text: str) -> int:
    """Java's string hash, an i32: h = 31 * h + each UTF-16 unit (remoting.md 5.4)."""
    units = memoryview(text.encode(UTF_16, "surrogatepass")).cast("H")
    value = 0
    for begin in range(0, len(units), HASH_UNITS):
        part = units[begin:begin + HASH_UNITS]
        powers = HASH_POWERS[HASH_UNITS - len(part):]
        value = (value * powers[0] + sum(map(mul, part, powers[1:]))) & 0xFFFF_FFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


def tag_code(tags: str | None) -> int:
    """The tag code of a queue entry: the hash of the whole TAGS value, 0 when there is none."""
    return java_string_hash(tags) if tags else 0


@dataclass(slots=True, frozen=True)
class Subscription:
    """One topic of a consumer group and what it wants of it (SubscriptionData, remoting.md 5.4)."""

    topic: str
    expression: str = SUBSCRIBE_ALL
    tags: frozenset[str] = field(default_factory=frozenset)
    codes: frozenset[int] = field(default_factory=frozenset)
    version_ms: int = 0
    expression_type: str = EXPRESSION_TAG

    def matches(self, tags: str | None) -> bool:
        """Whether a message with this TAGS value is wanted, compared by text and not by code."""
        return not self.tags or tags in self.tags

    def matches_code(self, code: int) -> bool:
        """Whether a queue entry with this tag code may be wanted."""
        return not self.codes or code in self.codes

    def as_json(self) -> dict[str, Any]:
        """The members of the SubscriptionData body."""
        return {
            "classFilterMode": False,
            "codeSet": sorted(self.codes),
            "expressionType": self.expression_type,
            "subString": self.expression,
            "subVersion": self.version_ms,
            "tagsSet": sorted(self.tags),
            "topic": self.topic,
        }


def parse_subscription(
    topic: str, expression: str | None, version_ms: int = 0, expression_type: str | None = None,
) -> Subscription:
    """Make a subscription from an expression: `*`, `TagA || TagB`, or SQL92 text (client.md 4.3).

    `version_ms` is the subVersion, normally now. Raises ValueError for an expression of separators
    alone, an empty SQL92 expression and an unknown type.
    """
    if expression_type not in (None, "", EXPRESSION_TAG):
        if expression_type != EXPRESSION_SQL92:
            raise ValueError(f"expression type {expression_type!r}: expected TAG or SQL92")
        if not expression:
            raise ValueError("SQL92 expression: expected text, found none")
        return Subscription(
            topic, expression, version_ms=version_ms, expression_type=EXPRESSION_SQL92
        )
    if not expression or expression == SUBSCRIBE_ALL:
        return Subscription(topic, version_ms=version_ms)
    tags = frozenset(tag.strip() for tag in expression.split("||")) - {""}
    if not tags:
        raise ValueError(f"tag expression {expression!r}: expected at least one tag")
    codes = frozenset(java_string_hash(tag) for tag in tags)
    return Subscription(topic, expression, tags, codes, version_ms)
