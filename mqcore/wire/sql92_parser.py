"""
Parses SQL92 filter expressions into a tree (broker.md 8.2).

What is refused here is what a stock 4.9 broker refuses, and what is over our own limits: those
keep a hostile expression from costing more than a few tens of milliseconds to compile.
"""
from __future__ import annotations

from mqcore.wire.sql92_tokens import (
    Kind,
    SqlError,
    SqlLimit,
    Token,
    Tokens,
    float_value,
    integer_value,
)
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
    can_be_condition,
    is_boolean_literal,
    is_condition,
)

EXPRESSION_BYTES_MAX = 32_768       # of the UTF-8 text
NESTING_MAX = 64                    # parentheses and unary operators that are open at a time
CHAIN_MAX = 16                      # comparisons of comparisons: a = 1 = TRUE
IN_LIST_MAX = 1_024                 # strings in one list


def parse(expression: str) -> Node:
    """The tree of `expression`. Raises SqlError: position in characters, and what was expected."""
    try:
        length = len(expression.encode())
    except UnicodeEncodeError as error:
        raise SqlError(error.start, "a character, found half of a surrogate pair") from None
    if length > EXPRESSION_BYTES_MAX:
        raise SqlLimit(0, f"at most {EXPRESSION_BYTES_MAX} bytes of UTF-8, found {length}")
    return _Parser(Tokens(expression)).condition()


class _Parser:
    """One method for each rule of the grammar; each leaves the token behind its rule unread."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._nesting = 0
        self._chained = 0

    def condition(self) -> Node:
        """The whole expression. What follows it is ignored, as stock brokers do."""
        position = self._tokens.peek().position
        return _as_condition(self._or(), position)

    def _or(self) -> Node:
        position = self._tokens.peek().position
        first = self._and()
        if not self._tokens.peek().is_keyword("OR"):
            return first
        items = [_as_condition(first, position)]
        while self._tokens.peek().is_keyword("OR"):
            self._tokens.take()
            position = self._tokens.peek().position
            items.append(_as_condition(self._and(), position))
        return Or(tuple(items))

    def _and(self) -> Node:
        position = self._tokens.peek().position
        first = self._equality()
        if not self._tokens.peek().is_keyword("AND"):
            return first
        items = [_as_condition(first, position)]
        while self._tokens.peek().is_keyword("AND"):
            self._tokens.take()
            position = self._tokens.peek().position
            items.append(_as_condition(self._equality(), position))
        return And(tuple(items))

    def _equality(self) -> Node:
        position = self._tokens.peek().position
        left = self._comparison()
        links = 0
        while True:
            token = self._tokens.peek()
            if not (token.is_sign("=", "<>") or token.is_keyword("IS")):
                return left
            self._count_link(token, links)
            links += 1
            self._tokens.take()
            if token.is_keyword("IS"):
                negated = self._take_keyword("NOT")
                if not self._take_keyword("NULL"):
                    raise _expected("NULL" if negated else "NULL or NOT NULL", self._tokens.peek())
                left = IsNull(left, negated)
                continue
            _check_not_null(left, position)
            right_position = self._tokens.peek().position
            right = self._comparison()
            _check_not_null(right, right_position)
            if is_boolean_literal(left) and _is_plain_literal(right):
                raise SqlError(right_position, "a boolean or a property beside TRUE or FALSE")
            left = Equal(left, right, negated=token.text == "<>")

    def _count_link(self, token: Token, links: int) -> None:
        if links:
            self._chained += 1
            if self._chained > CHAIN_MAX:
                raise SqlLimit(token.position, f"at most {CHAIN_MAX} comparisons of comparisons")

    def _comparison(self) -> Node:
        position = self._tokens.peek().position
        left = self._unary()
        while True:
            token = self._tokens.peek()
            if token.is_sign("<", "<=", ">", ">="):
                self._tokens.take()
                _check_ordered(left, position)
                left = Order(token.text, left, self._ordered_operand())
            elif token.is_keyword("NOT", "BETWEEN", "IN"):
                negated = self._take_keyword("NOT")
                if self._take_keyword("BETWEEN"):
                    left = self._between(left, position, negated)
                elif self._take_keyword("IN"):
                    left = self._in(left, position, negated)
                else:
                    raise _expected("BETWEEN or IN after NOT", self._tokens.peek())
            else:
                return left

    def _ordered_operand(self) -> Node:
        position = self._tokens.peek().position
        operand = self._unary()
        _check_ordered(operand, position)
        return operand

    def _between(self, operand: Node, position: int, negated: bool) -> Node:
        _check_ordered(operand, position)
        low_position = self._tokens.peek().position
        low = self._ordered_operand()
        if not self._take_keyword("AND"):
            raise _expected("AND and the upper bound of BETWEEN", self._tokens.peek())
        high = self._ordered_operand()
        low_value, high_value = _number_literal(low), _number_literal(high)
        if not negated and low_value is not None and high_value is not None \
                and _as_common(low_value, high_value) > _as_common(high_value, low_value):
            raise SqlError(low_position, "a lower bound that is not above the upper bound")
        return Between(operand, low, high, negated)

    def _in(self, operand: Node, position: int, negated: bool) -> Node:
        if not isinstance(operand, Property):
            raise SqlError(position, "a property name before IN")
        self._take_sign("(")
        texts = [self._text_of_list()]
        while self._tokens.peek().is_sign(","):
            token = self._tokens.take()
            if len(texts) == IN_LIST_MAX:
                raise SqlLimit(token.position, f"at most {IN_LIST_MAX} strings in a list")
            texts.append(self._text_of_list())
        self._take_sign(")")
        return In(operand.name, tuple(dict.fromkeys(texts)), negated)

    def _text_of_list(self) -> str:
        token = self._tokens.peek()
        if token.kind is not Kind.TEXT:
            raise _expected("a string in single quotes", token)
        return self._tokens.take().text

    def _unary(self) -> Node:
        token = self._tokens.peek()
        if not (token.is_sign("+", "-") or token.is_keyword("NOT")):
            return self._primary()
        self._tokens.take()
        self._open(token)
        position = self._tokens.peek().position
        operand = self._unary()
        self._nesting -= 1
        if token.is_sign("+"):
            return operand
        if token.is_sign("-"):
            return Negate(operand)
        return Not(_as_condition(operand, position))

    def _primary(self) -> Node:
        token = self._tokens.peek()
        if token.is_sign("("):
            self._tokens.take()
            self._open(token)
            inner = self._or()
            self._take_sign(")")
            self._nesting -= 1
            return inner
        if token.kind is Kind.NAME:
            return Property(self._tokens.take().text)
        return self._literal(token)

    def _literal(self, token: Token) -> Node:
        if token.kind is Kind.TEXT:
            node = Literal(token.text)
        elif token.kind is Kind.INTEGER:
            node = Literal(integer_value(token))
        elif token.kind is Kind.FLOAT:
            node = Literal(float_value(token))
        elif token.is_keyword("TRUE", "FALSE"):
            node = Literal(token.text == "TRUE")
        elif token.is_keyword("NULL"):
            node = Literal(None)
        else:
            raise _expected("a literal, a property name or (", token)
        self._tokens.take()
        return node

    def _open(self, token: Token) -> None:
        self._nesting += 1
        if self._nesting > NESTING_MAX:
            raise SqlLimit(token.position, f"at most {NESTING_MAX} levels of nesting")

    def _take_keyword(self, word: str) -> bool:
        if not self._tokens.peek().is_keyword(word):
            return False
        self._tokens.take()
        return True

    def _take_sign(self, sign: str) -> None:
        if not self._tokens.peek().is_sign(sign):
            raise _expected(sign, self._tokens.peek())
        self._tokens.take()


def _expected(what: str, found: Token) -> SqlError:
    shown = found.kind.value if found.kind is Kind.END else repr(found.text)
    return SqlError(found.position, f"{what}, found {shown}")


def _as_condition(node: Node, position: int) -> Node:
    if not can_be_condition(node):
        raise SqlError(position, "a condition, found a value")
    return node


def _check_not_null(node: Node, position: int) -> None:
    if isinstance(node, Literal) and node.value is None:
        raise SqlError(position, "a value beside = or <>, found NULL (write IS NULL)")


def _check_ordered(node: Node, position: int) -> None:
    """What < <= > >= and BETWEEN compare: numbers, properties, and negated things."""
    if is_condition(node) or (isinstance(node, Literal) and _number_literal(node) is None):
        raise SqlError(position, "a number or a property, found a string, a boolean or NULL")


def _is_plain_literal(node: Node) -> bool:
    return isinstance(node, Literal) and isinstance(node.value, int | float | str) \
        and not isinstance(node.value, bool)


def _number_literal(node: Node) -> int | float | None:
    """The number of a literal; -5 is not one: a negation is looked at when it is evaluated."""
    if not isinstance(node, Literal) or isinstance(node.value, bool | str | None):
        return None
    return node.value


def _as_common(value: int | float, other: int | float) -> int | float:
    return float(value) if isinstance(other, float) else value
