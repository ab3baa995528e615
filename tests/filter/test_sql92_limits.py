"""Hostile expressions and damaged programs cost little and harm nobody."""
from __future__ import annotations

import contextlib
import struct
import time

import pytest

from mqcore.filter import sql92_filter
from mqcore.filter.sql92 import Program
from mqcore.filter.sql92_compiler import INSTRUCTIONS_MAX, NAMES_MAX, Truth, compile_program
from mqcore.filter.sql92_filter import CACHE_COUNT_MAX, Filter
from mqcore.filter.sql92_program import numbers
from mqcore.wire.sql92_parser import (
    CHAIN_MAX,
    EXPRESSION_BYTES_MAX,
    IN_LIST_MAX,
    NESTING_MAX,
)
from mqcore.wire.sql92_tokens import SqlError
from tests.filter.generate import Generator
from tests.filter.refusal import program_or_refusal
from tests.support.dice import dice, times

NUMBERS = numbers()
HEAD_SIZE = 96
PROPERTIES_SIZE_MAX = 32_767
COMPILE_S_MAX = 2.0                 # generous: the aim is milliseconds, the machine may be busy
EVALUATE_S_MAX = 0.5


@pytest.mark.parametrize(("inside", "outside"), [
    ("(" * NESTING_MAX + "a = 1" + ")" * NESTING_MAX,
     "(" * (NESTING_MAX + 1) + "a = 1" + ")" * (NESTING_MAX + 1)),
    ("NOT " * NESTING_MAX + "a", "NOT " * (NESTING_MAX + 1) + "a"),
    ("a = " + "- " * NESTING_MAX + "1", "a = " + "- " * (NESTING_MAX + 1) + "1"),
    ("a = 1" + " = TRUE" * CHAIN_MAX, "a = 1" + " = TRUE" * (CHAIN_MAX + 1)),
    ("a IN (" + ",".join(f"'{i}'" for i in range(IN_LIST_MAX)) + ")",
     "a IN (" + ",".join(f"'{i}'" for i in range(IN_LIST_MAX + 1)) + ")"),
    ("a IN (" + ",".join(["'x'"] * 1_000) + ") OR b IN (" + ",".join(["'x'"] * 500) + ")",
     "a IN (" + ",".join(["'x'"] * 1_000) + ") OR b IN (" + ",".join(["'x'"] * 600) + ")"),
    (" OR ".join(f"n{i} = 1" for i in range(NAMES_MAX)),
     " OR ".join(f"n{i} = 1" for i in range(NAMES_MAX + 1))),
    ("a OR " * (INSTRUCTIONS_MAX // 3) + "a", "a OR " * (INSTRUCTIONS_MAX // 3 + 1) + "a"),
    ("a = '" + "x" * (EXPRESSION_BYTES_MAX - 6) + "'", "a = '" + "x" * EXPRESSION_BYTES_MAX + "'"),
], ids=["parentheses", "not", "minus", "chain", "list", "words", "names", "steps", "length"])
def test_a_limit_is_reached_but_not_passed(inside: str, outside: str) -> None:
    assert Filter.compile(inside).evaluate(b"a\x011") in Truth
    with pytest.raises(SqlError, match="at most"):
        Filter.compile(outside)


@pytest.mark.parametrize("text", [
    "(" * EXPRESSION_BYTES_MAX,
    "NOT " * 8_000,
    "-" * EXPRESSION_BYTES_MAX,
    "a = 1 OR " * 3_600 + "a = 1",
    " OR ".join("p > " + "-" * 60 + "5" for _ in range(400)),
    " OR ".join("(" * 60 + "a = b" + ")" * 60 for _ in range(250)),
    "a IN (" + "'x'," * 8_000 + "'x')",
    "/*" * 16_000,
    "--" * 16_000,
    "'" * EXPRESSION_BYTES_MAX,
    "'" * (EXPRESSION_BYTES_MAX - 1),
    "9" * EXPRESSION_BYTES_MAX,
    "1e" + "9" * 32_000,
    "0." + "0" * 32_000 + "1 = a",
    "a" * EXPRESSION_BYTES_MAX,
    "a = b" + " IS NULL" * 4_000,
    "x" * 10_000_000,
], ids=lambda text: f"{text[:6]}...{len(text)}")
def test_a_hostile_text_is_answered_quickly(text: str) -> None:
    begun = time.process_time()

    assert program_or_refusal(text)
    assert time.process_time() - begun < COMPILE_S_MAX


@pytest.mark.parametrize(("expression", "properties"), [
    (" OR ".join(["a = b"] * 680), b"a\x01" + b"x" * 16_000 + b"\x02b\x01" + b"x" * 15_999 + b"y"),
    (" OR ".join(["a > 5.5"] * 680), b"a\x010." + b"0" * 32_000 + b"1"),
    (" OR ".join(["a > 2147483648"] * 680), b"a\x01" + b"0" * 32_000 + b"1"),
    (" OR ".join(f"n{i} = 'x'" for i in range(NAMES_MAX)), b"n99\x01x\x02" * 5_461),
    (" OR ".join(f"n{i:02} = 'x'" for i in range(NAMES_MAX)), b"n99\x01x\x02" * 5_461),
    ("a IN (" + ",".join(f"'{i:04}'" for i in range(1_024)) + ")", b"a\x01xxxx"),
    ("a = 1", b"\x02" * PROPERTIES_SIZE_MAX),
    ("a = 1", b"\x01" * PROPERTIES_SIZE_MAX),
], ids=["texts", "reals", "wholes", "names", "names-of-one-length", "list", "no-items", "no-names"])
def test_a_hostile_message_is_evaluated_quickly(expression: str, properties: bytes) -> None:
    wanted = Filter.compile(expression)
    begun = time.process_time()

    assert not wanted.matches(properties[:PROPERTIES_SIZE_MAX])
    assert time.process_time() - begun < EVALUATE_S_MAX


def test_the_deepest_expression_that_the_parser_takes_fits_the_stack() -> None:
    text = "a = 1"
    for _ in range(NESTING_MAX):
        text = f"b = 2 OR c = 3 AND (d = 4) = ({text})"

    assert Filter.compile(text).evaluate(b"a\x011\x02b\x011\x02c\x013\x02d\x014") is Truth.TRUE
    with pytest.raises(SqlError, match="levels of nesting"):
        Filter.compile(f"({text})")


# -- programs that are not what the compiler made --------------------------------------------------


def program() -> bytearray:
    return bytearray(compile_program("a > 5 AND (b IN ('x', 'y') OR c = 7.5) = TRUE"))


def test_a_whole_program_is_accepted_and_any_other_length_of_it_is_not() -> None:
    good = bytes(program())
    assert Program(good).evaluate(b"a\x019\x02b\x01y\x02c\x018.5") == Truth.TRUE

    for size in range(len(good)):
        with pytest.raises(ValueError, match="expected"):
            Program(good[:size])
    with pytest.raises(ValueError, match="expected the sum of the parts"):
        Program(good + b"\x00")


@pytest.mark.parametrize(("offset", "value", "what"), [
    (0, b"\x00", "magic and version"),
    (4, b"\x02", "magic and version"),
    (6, b"\xff\xff", "inside the limits"),
    (8, b"\xff", "sum of the parts"),
    (32, b"\x03", "bucket: expected"),
    (HEAD_SIZE, b"\xff\xff", "name: expected a place"),
    (HEAD_SIZE + 4, b"\x00\x00", "name: expected a place"),
    (HEAD_SIZE + 6, b"\x00", "name: expected an earlier name"),
    (HEAD_SIZE + 24, b"\x09", "constant: expected a known type"),
])
def test_a_damaged_table_is_named(offset: int, value: bytes, what: str) -> None:
    damaged = program()
    damaged[offset:offset + len(value)] = value

    with pytest.raises(ValueError, match=what):
        Program(bytes(damaged))


def assembled(*steps: tuple[int, int, int, int, int]) -> bytes:
    """A program without names and constants."""
    code = b"".join(struct.pack("<BBHHH", *step) for step in steps)
    head = struct.pack("<IHHIHHIIq64s", NUMBERS["PROGRAM_MAGIC"], NUMBERS["PROGRAM_VERSION"], 0,
                       HEAD_SIZE + len(code), 0, len(steps), 0, 0, 0, b"\xff" * 64)
    return head + code


PUSH = (NUMBERS["OP_PUSH"], 0, NUMBERS["TRUTH_TRUE"], 0, 0)
AND = (NUMBERS["OP_AND"], 0, 0, 0, 0)
DROP = (NUMBERS["OP_DROP"], 0, 0, 0, 0)
TOP = NUMBERS["SOURCE_TOP"]


def jump(target: int) -> tuple[int, int, int, int, int]:
    return (NUMBERS["OP_JUMP_TRUE"], 0, 0, 0, target)


@pytest.mark.parametrize(("steps", "what"), [
    ([], "one condition on the stack"),
    ([PUSH, PUSH], "one condition on the stack"),
    ([PUSH, DROP], "one condition on the stack"),
    ([AND], "expected a condition on it"),
    ([PUSH, AND], "expected a condition on it"),
    ([(NUMBERS["OP_EQUAL"], TOP | TOP << 2, 0, 0, 0)], "expected a condition on it"),
    ([PUSH] * 257 + [DROP] * 256, "at most STACK_MAX"),
    ([(0, 0, 0, 0, 0)], "a known operation"),
    ([(99, 0, 0, 0, 0)], "a known operation"),
    ([(NUMBERS["OP_PUSH"], 0, 3, 0, 0)], "false, true or null"),
    ([(NUMBERS["OP_CAST"], 0, 0, 0, 0)], "the index of a name"),
    ([(NUMBERS["OP_IN"], 0, 0, 0, 0)], "the index of a name"),
    ([(NUMBERS["OP_IS_NULL"], NUMBERS["SOURCE_CONSTANT"], 0, 0, 0)], "left operand"),
    ([(NUMBERS["OP_EQUAL"], NUMBERS["SOURCE_PROPERTY"] << 2, 0, 9, 0)], "right operand"),
    ([PUSH, (NUMBERS["OP_ORDER"], TOP, 0, 0, 0), AND], "that are no conditions"),
    ([PUSH, jump(1)], "a later instruction"),
    ([PUSH, jump(0)], "a later instruction"),
    ([PUSH, jump(4), AND], "a later instruction"),
    ([PUSH, jump(3), PUSH, AND], "the same depth"),
    ([PUSH, jump(4), DROP, PUSH, PUSH, AND], None),
])
def test_code_that_could_leave_its_stack_or_never_end_is_refused(
    steps: list[tuple[int, int, int, int, int]], what: str | None,
) -> None:
    if what is None:
        assert Program(assembled(*steps)).evaluate(b"") == Truth.TRUE
    else:
        with pytest.raises(ValueError, match=what):
            Program(assembled(*steps))


def test_a_program_with_changed_bytes_is_refused_or_still_evaluates() -> None:
    cases = dice()
    generator = Generator(cases)
    evaluated = 0
    for _ in range(times(3_000)):
        made = program_or_refusal(generator.text(generator.tree()))
        damaged = program() if isinstance(made, SqlError) else bytearray(made)
        for _ in range(cases.randint(1, 4)):
            damaged[cases.randrange(len(damaged))] = cases.randrange(256)
        with contextlib.suppress(ValueError):
            changed = Program(bytes(damaged))
            assert changed.evaluate(generator.property_bytes()) in set(Truth), bytes(damaged)
            evaluated += 1
    assert evaluated > 0


# -- the cache -------------------------------------------------------------------------------------


def test_an_expression_is_compiled_once_while_it_is_among_the_last_hundred() -> None:
    first = Filter.compile("cached = 1")
    assert Filter.compile("cached = 1") is first

    for number in range(CACHE_COUNT_MAX):
        Filter.compile(f"other = {number}")
    assert Filter.compile("cached = 1") is not first
    assert len(sql92_filter._cache) == CACHE_COUNT_MAX


def test_a_text_beyond_the_length_limit_is_not_kept() -> None:
    text = "x" * (EXPRESSION_BYTES_MAX + 1)
    with pytest.raises(SqlError, match="at most"):
        Filter.compile(text)

    assert text not in sql92_filter._cache._known


def test_a_refusal_is_cached_and_raised_anew_each_time() -> None:
    caught = []
    for _ in range(2):
        with pytest.raises(SqlError) as info:
            Filter.compile("never =")
        caught.append(info.value)

    assert caught[0] is not caught[1]
    assert str(caught[0]) == str(caught[1])
