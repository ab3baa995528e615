"""Random SQL92 expressions (trees and their text), heaps of tokens, and message properties."""
from __future__ import annotations

from itertools import pairwise
from random import Random

from tests.filter.reference import Tree

NAMES = ("a", "b", "c", "price", "TAGS", "A", "$x_1", "missing", "none")
WHOLE = ("0", "1", "5", "7", "10", "2147483647", "2147483648", "4294967296", "9007199254740993",
         "9223372036854775807", "5L", "10l", "9223372036854775808")
REAL = ("5.0", "5.", ".5", "1e1", "7.25", "2.5E-1", "9007199254740992.0", "1e308", "1e400", "0.0",
        "1e-400", "4.9e-324", "10.0")
WORDS = ("x", "y", "true", "TRUE", "false", "eu", "it's", "", "5", "10", "5.0", "ünï", "价格", "😀")
VALUES = (*WORDS, "0", "-0", "+7", "05", "-5", "7.25", " 5", "5 ", "\t5.0\n", "5f", "5d", "1e1",
          ".5", "5.", ".", "-", "+", "e5", "1e", "NaN", "-Infinity", "Infinity", "-0.0", "0.0",
          "0x1p3", "0x.8p1", "0x5", "1e400", "1e-400", "2147483647", "2147483648", "-2147483648",
          "-2147483649", "9007199254740993", "9223372036854775807", "9223372036854775808",
          "-9223372036854775808", "５", "٥", "𝟓", "tRUE", "1_0", "5L", "x\x01y", "1" * 400,
          "0." + "0" * 330 + "1", "9007199254740992.5000000000000000000000000000000000001")
GAPS = (" ", " ", " ", " ", "  ", "\n", "\t", "\r\f", " /* - ' */ ", " -- ( '\n", "/***/")
SOUP = (*NAMES[:4], "5", "0.5", "0", "'x'", "'5'", "TRUE", "NULL", "NOT", "AND", "OR", "BETWEEN",
        "IN", "IS", "(", ")", ",", "=", "<>", "<", ">=", "+", "-", "#", "!", "'", "--", "\n", "/*",
        "*/", "e1", ".", "L", "é", "1e5", "5.5.5", "00", "0L", "is", "not", "a.b")

# How tightly a node binds: a looser one needs parentheses where a tighter one is wanted.
_LEVELS = {"or": 0, "and": 1, "equal": 2, "is_null": 2, "order": 3, "between": 3, "in": 3,
           "not": 4, "minus": 4, "plus": 4}


class Generator:
    """Draws from any object with Random's methods, so that Hypothesis can shrink."""

    def __init__(self, random: Random) -> None:
        self._random = random

    # -- trees -------------------------------------------------------------------------------------

    def tree(self) -> Tree:
        return self._condition(self._random.randint(0, 3))

    def _condition(self, depth: int) -> Tree:
        kind = self._random.randint(0, 99)
        if kind < 4:
            return self._value(depth)
        if depth and kind < 45:
            pair = (self._condition(depth - 1), self._condition(depth - 1))
            return ("and" if kind < 25 else "or", *pair)
        if depth and kind < 55:
            return ("not", self._condition(depth - 1))
        if depth and kind < 58:
            return ("paren", self._condition(depth - 1))
        if kind < 70:
            return ("equal", self._pick(("=", "<>")), self._side(depth), self._side(depth))
        if kind < 82:
            return ("order", self._pick(("<", "<=", ">", ">=")),
                    self._ordered(depth), self._ordered(depth))
        negated = self._pick((False, True))
        if kind < 88:
            return ("between", self._ordered(depth), self._ordered(depth), self._ordered(depth),
                    negated)
        if kind < 94:
            items = [("text", self._pick(WORDS)) for _ in range(self._random.randint(1, 3))]
            if self._random.randint(0, 30) == 0:
                items.append(("int", "5"))
            operand = self._property() if kind < 93 else self._value(depth)
            return ("in", operand, tuple(items), negated)
        return ("is_null", self._side(depth), negated)

    def _side(self, depth: int) -> Tree:
        """Of = or IS NULL."""
        kind = self._random.randint(0, 9)
        if kind < 5:
            return self._property()
        if depth and kind == 9:
            return self._condition(depth - 1)
        return self._value(depth)

    def _ordered(self, depth: int) -> Tree:
        """Mostly what may be ordered."""
        kind = self._random.randint(0, 19)
        if kind < 9:
            return self._property()
        if kind < 17:
            return self._number()
        return ("minus", self._value(depth)) if kind < 19 else self._value(depth)

    def _value(self, depth: int) -> Tree:
        kind = self._random.randint(0, 19)
        if kind < 5:
            return self._property()
        if kind < 11:
            return self._number()
        if kind < 14:
            return ("text", self._pick(WORDS))
        if kind < 16:
            return ("bool", self._pick((True, False)))
        if kind == 16:
            return ("null",)
        if kind == 17:
            return ("plus", self._value(depth))
        return ("minus", self._condition(depth - 1) if depth and kind == 18 else self._value(depth))

    def _number(self) -> Tree:
        kind = self._random.randint(0, 9)
        if kind < 5:
            return ("int", self._pick(WHOLE[:5]))
        if kind < 7:
            return ("int", self._pick(WHOLE))
        if kind < 9:
            return ("float", self._pick(REAL))
        return ("minus", ("int", self._pick(WHOLE)))

    def _property(self) -> Tree:
        return ("property", self._pick(NAMES))

    def _pick(self, choices: tuple) -> object:
        return choices[self._random.randint(0, len(choices) - 1)]

    # -- text --------------------------------------------------------------------------------------

    def text(self, tree: Tree) -> str:
        """`tree` in words, with random gaps, comments and capitals."""
        tokens = self._tokens(tree, 0)
        parts = [tokens[0]]
        for before, token in pairwise(tokens):
            tight = before in "()," or token in "(),"
            parts.append("" if tight and self._random.randint(0, 1) else self._pick(GAPS))
            parts.append(token)
        return "".join(parts)

    def _tokens(self, tree: Tree, level: int) -> list[str]:
        if _LEVELS.get(tree[0], 5) < level:
            return ["(", *self._tokens(tree, 0), ")"]
        match tree:
            case ("text", text):
                return ["'" + text.replace("'", "''") + "'"]
            case ("int" | "float" | "property", text):
                return [text]
            case ("bool", value):
                return [self._word("TRUE" if value else "FALSE")]
            case ("null",):
                return [self._word("NULL")]
            case ("paren", inner):
                return ["(", *self._tokens(inner, 0), ")"]
            case ("plus" | "minus" | "not" as kind, operand):
                sign = {"plus": "+", "minus": "-"}.get(kind) or self._word("NOT")
                return [sign, *self._tokens(operand, 4)]
            case ("or" | "and" as word, left, right):
                own = _LEVELS[word]
                return [*self._tokens(left, own), self._word(word), *self._tokens(right, own + 1)]
            case ("equal", sign, left, right):
                return [*self._tokens(left, 2), sign, *self._tokens(right, 3)]
            case ("is_null", operand, negated):
                words = ("IS", "NOT", "NULL") if negated else ("IS", "NULL")
                return [*self._tokens(operand, 2), *map(self._word, words)]
            case ("order", sign, left, right):
                return [*self._tokens(left, 3), sign, *self._tokens(right, 4)]
        return self._tokens_of_range(tree)

    def _tokens_of_range(self, tree: Tree) -> list[str]:
        negation = [self._word("NOT")] if tree[-1] else []
        before = [*self._tokens(tree[1], 3), *negation]
        if tree[0] == "between":
            return [*before, self._word("BETWEEN"), *self._tokens(tree[2], 4), self._word("AND"),
                    *self._tokens(tree[3], 4)]
        items = [token for item in tree[2] for token in (",", *self._tokens(item, 5))]
        return [*before, self._word("IN"), "(", *items[1:], ")"]

    def _word(self, word: str) -> str:
        return str(self._pick((word.upper(), word.lower(), word.capitalize())))

    # -- other things ------------------------------------------------------------------------------

    def soup(self) -> str:
        """A text of tokens that hardly ever is an expression; often one with something behind."""
        count = self._random.randint(1, 7)
        gap = self._pick(("", " ", " "))
        tail = str(gap).join(str(self._pick(SOUP)) for _ in range(count))
        return f"{self.text(self.tree())} {tail}" if self._random.randint(0, 1) else tail

    def properties(self) -> dict[str, str]:
        """Up to six properties of a message; no empty values, which no store keeps."""
        found = {}
        for _ in range(self._random.randint(0, 6)):
            value = self._pick(WORDS if self._random.randint(0, 2) else VALUES)
            if value:
                found[str(self._pick(NAMES[:-2]))] = str(value)
        return found

    def property_bytes(self) -> bytes:
        """Stored property bytes: duplicates and items that do not count among them."""
        items = []
        for _ in range(self._random.randint(0, 3)):
            items += [f"{name}\x01{value}" for name, value in self.properties().items()]
            items.append(str(self._pick(("", "\x01", "a\x01", "\x01x", "a", "UNIQ_KEY\x01C0A8"))))
        return "\x02".join(items).encode()
