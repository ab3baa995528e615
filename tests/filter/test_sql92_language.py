"""The rules of SQL92 filters that people meet, one by one (broker.md 8, docs/sql92.md)."""
from __future__ import annotations

import pytest

from mqcore.filter.sql92_compiler import Truth
from mqcore.filter.sql92_filter import Filter
from mqcore.wire.sql92_tokens import SqlError

ORDER = b"price\x01120\x02weight\x012.5\x02color\x01blue\x02vip\x01True\x02TAGS\x01TagA"


def outcome(expression: str, properties: bytes = ORDER) -> Truth:
    return Filter.compile(expression).evaluate(properties)


@pytest.mark.parametrize("expression", [
    "price > 100 AND color = 'blue'",
    "price BETWEEN 120 AND 120",
    "price NOT BETWEEN 1 AND 100",
    "TAGS IN ('TagB', 'TagA')",
    "TAGS NOT IN ('TagB')",
    "size IS NULL AND color IS NOT NULL",
    "vip = TRUE",
    "weight < 2.75 and not (price < 5)",
    "100 < price",
])
def test_an_ordinary_expression_passes_the_message_it_describes(expression: str) -> None:
    assert Filter.compile(expression).matches(ORDER)


@pytest.mark.parametrize(("expression", "expected"), [
    ("size = 'x'", Truth.NULL),
    ("size <> 'x'", Truth.NULL),
    ("size > 1 OR price = 120", Truth.TRUE),
    ("size > 1 AND price = 1", Truth.FALSE),
    ("NOT size = 1", Truth.NULL),
    ("color = size", Truth.FALSE),
    ("size = other", Truth.TRUE),
])
def test_a_missing_property_is_null(expression: str, expected: Truth) -> None:
    assert outcome(expression) is expected


def test_a_whole_number_does_not_match_a_property_with_a_fraction() -> None:
    assert outcome("weight > 2") is Truth.RAISED
    assert outcome("weight > 2.0") is Truth.TRUE


def test_a_text_that_is_no_number_ends_the_whole_evaluation() -> None:
    assert outcome("color > 1 OR price = 120") is Truth.RAISED
    assert outcome("price = 120 OR color > 1") is Truth.TRUE


def test_a_32_bit_literal_cannot_be_compared_with_a_larger_property() -> None:
    properties = b"n\x012147483648"

    assert outcome("n > 5", properties) is Truth.RAISED
    assert outcome("n > 2147483647", properties) is Truth.RAISED
    assert outcome("n >= 2147483648", properties) is Truth.TRUE
    assert outcome("n > 5.0", properties) is Truth.TRUE


def test_not_binds_tighter_than_a_comparison() -> None:
    assert outcome("NOT price = 1") is Truth.FALSE
    assert outcome("NOT (price = 1)") is Truth.TRUE


def test_a_bare_property_is_never_true() -> None:
    assert outcome("vip") is Truth.FALSE
    assert outcome("NOT vip") is Truth.TRUE


def test_a_boolean_literal_belongs_on_the_right() -> None:
    assert outcome("vip = TRUE") is Truth.TRUE
    assert outcome("TRUE = vip") is Truth.RAISED


def test_names_are_case_sensitive_and_keywords_are_not() -> None:
    assert outcome("Price is Null aNd price Is noT nUll") is Truth.TRUE


def test_what_follows_a_complete_expression_is_ignored_unless_it_is_no_token() -> None:
    assert outcome("price = 120 whatever #") is Truth.TRUE
    with pytest.raises(SqlError):
        Filter.compile("price = 120 #")


def test_a_comment_needs_its_end() -> None:
    assert outcome("price = --121\n120") is Truth.TRUE
    assert outcome("price = --120") is Truth.TRUE        # no line end: two minus signs
    with pytest.raises(SqlError, match="end of this comment"):
        Filter.compile("price = /* 120")


def test_of_a_property_that_stands_twice_the_last_counts() -> None:
    assert outcome("a = 2", b"a\x011\x02a\x012") is Truth.TRUE


@pytest.mark.parametrize(("expression", "position", "expected"), [
    ("", 0, "a literal, a property name or (, found the end"),
    ("price >", 7, "a literal, a property name or (, found the end"),
    ("price > 'x'", 8, "a number or a property"),
    ("(price = 1", 10, "), found the end"),
    ("price = NULL", 8, "write IS NULL"),
    ("price IS 5", 9, "NULL or NOT NULL, found '5'"),
    ("price IN (5)", 10, "a string in single quotes, found '5'"),
    ("5 IN ('5')", 0, "a property name before IN"),
    ("price NOT 5", 10, "BETWEEN or IN after NOT"),
    ("price BETWEEN 9 AND 1", 14, "not above the upper bound"),
    ("price BETWEEN 1 OR 2", 16, "AND and the upper bound"),
    ("a = 1 AND 5", 10, "a condition, found a value"),
    ("TRUE = 5", 7, "a boolean or a property"),
    ("a = 9223372036854775808", 4, "an integer up to 9223372036854775807"),
    ("a = 0.0", 4, "a number between 4.9e-324"),
    ("a = 'x", 4, "a closing quote"),
    ("a != 1", 2, "found '!'"),
    ("a = 1 AND \ud800 = 2", 10, "half of a surrogate pair"),
])
def test_a_refusal_says_where_and_what_was_expected(
    expression: str, position: int, expected: str,
) -> None:
    with pytest.raises(SqlError) as caught:
        Filter.compile(expression)

    assert caught.value.position == position
    assert expected in caught.value.expected
