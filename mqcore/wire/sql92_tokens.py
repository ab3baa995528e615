"""Cuts an SQL92 filter expression into tokens, one at a time (broker.md 8.1)."""
from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
TOKENS_MAX = 3_072                 # words and signs of one expression


class SqlError(ValueError):
    """A refused expression: where, in characters from its start, and what belonged there."""

    def __init__(self, position: int, expected: str) -> None:
        super().__init__(f"SQL92 expression, position {position}: expected {expected}")
        self.position = position
        self.expected = expected


class SqlLimit(SqlError):
    """An expression over a limit of docs/sql92.md: a stock broker would have taken it."""


class Kind(Enum):
    """What a token is; the value is its name in messages."""

    END = "the end"
    NAME = "a property name"
    KEYWORD = "a keyword"
    TEXT = "a string in single quotes"
    INTEGER = "an integer"
    FLOAT = "a number with a fraction"
    SIGN = "an operator"


@dataclass(slots=True, frozen=True)
class Token:
    """`text` is as written, but a keyword in capitals and a string without its quotes."""

    kind: Kind
    text: str
    position: int

    def is_sign(self, *signs: str) -> bool:
        return self.kind is Kind.SIGN and self.text in signs

    def is_keyword(self, *words: str) -> bool:
        return self.kind is Kind.KEYWORD and self.text in words


class Tokens:
    """
    The tokens of `text` with one token of look-ahead.

    Tokens are cut when they are looked at: what follows a complete expression is not read beyond
    one token, because the grammar does not ask for the end of the input (broker.md 8.2).
    """

    KEYWORDS: ClassVar[frozenset[str]] = frozenset(
        ("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS")
    )
    # A comment to the end of the line needs that end: `--5` without one is two minus signs. Where
    # no line ends any more nobody looks for one: that would be a walk over the rest at each sign.
    # No group is repeated for good (`)*+`): Pythons before 3.11.5 go wrong at what fails in one.
    _IGNORED: ClassVar[re.Pattern[str]] = re.compile(
        r"(?:[ \t\n\r\f]++|--[^\n\r]*+[\n\r]|/\*(?s:.)*?\*/)*"
    )
    _IGNORED_LAST_LINE: ClassVar[re.Pattern[str]] = re.compile(
        r"(?:[ \t\f]++|/\*(?s:.)*?\*/)*"
    )
    _TOKEN: ClassVar[re.Pattern[str]] = re.compile(
        r"(?P<NAME>[A-Za-z_$][A-Za-z0-9_$]*+)"
        r"|(?P<FLOAT>(?:[0-9]++\.[0-9]*+(?:[eE][+-]?[0-9]++)?|\.[0-9]++(?:[eE][+-]?[0-9]++)?"
        r"|[0-9]++[eE][+-]?[0-9]++))"
        r"|(?P<INTEGER>0|[1-9][0-9]*+[lL]?)"
        r"|(?P<TEXT>'(?:[^']++|'')*')"
        r"|(?P<SIGN><>|<=|>=|[=<>(),+-])"
    )

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._count = 0
        self._last_line_end = max(text.rfind("\n"), text.rfind("\r"))
        self._next: Token | None = None

    def peek(self) -> Token:
        """The next token, which stays. Raises SqlError when no token can begin there."""
        if self._next is None:
            self._next = self._cut()
        return self._next

    def take(self) -> Token:
        """The next token, which is gone then. Raises SqlLimit when there were too many."""
        token = self.peek()
        self._next = None
        self._count += 1
        if self._count > TOKENS_MAX:
            raise SqlLimit(token.position, f"at most {TOKENS_MAX} words and signs")
        return token

    def _cut(self) -> Token:
        pattern = (self._IGNORED if self._position <= self._last_line_end
                   else self._IGNORED_LAST_LINE)
        ignored = pattern.match(self._text, self._position)
        start = ignored.end() if ignored else self._position
        if start == len(self._text):
            self._position = start
            return Token(Kind.END, "", start)
        found = self._TOKEN.match(self._text, start)
        if found is None:
            raise SqlError(start, self._what_fits(start))
        self._position = found.end()
        kind, text = Kind[str(found.lastgroup)], found.group()
        if kind is Kind.NAME and text.upper() in self.KEYWORDS:
            return Token(Kind.KEYWORD, text.upper(), start)
        if kind is Kind.TEXT:
            text = text[1:-1].replace("''", "'")
        return Token(kind, text, start)

    def _what_fits(self, start: int) -> str:
        if self._text[start] == "'":
            return "a closing quote for this string"
        if self._text.startswith("/*", start):
            return "an end of this comment: */"
        return f"a name, a literal or an operator, found {self._text[start]!r}"


def integer_value(token: Token) -> int:
    """The value of an INTEGER; SqlError when it is more than a signed 64-bit integer holds."""
    digits = token.text.rstrip("lL")
    if len(digits) > len(str(LONG_MAX)) or int(digits) > LONG_MAX:
        raise SqlError(token.position, f"an integer up to {LONG_MAX}")
    return int(digits)


def float_value(token: Token) -> float:
    """
    The value of a FLOAT (a 64-bit one). SqlError for one that is too large, or that is zero: stock
    brokers refuse `0.0` as too small.
    """
    value = float(token.text)
    if value == 0.0 or value == float("inf"):
        raise SqlError(token.position, "a number between 4.9e-324 and 1.7976931348623157e308")
    return value
