"""Random expressions over random messages: the native evaluation and the slow reference agree."""
from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from mqcore.filter.sql92_compiler import Truth, compile_program
from mqcore.filter.sql92_filter import Filter
from mqcore.wire.properties import decode_properties
from mqcore.wire.sql92_tokens import SqlError
from tests.filter import reference
from tests.filter.generate import Generator
from tests.filter.refusal import program_or_refusal
from tests.support.dice import dice, text, times

EXPRESSIONS = 2_500
TEXTS = times(3_000)
MESSAGES = 25                       # for each expression
SEEDS = 200                         # of the bulk run, each with SEED_EXPRESSIONS
SEED_EXPRESSIONS = 15
LETTERS = {Truth.TRUE: "T", Truth.FALSE: "F", Truth.NULL: "N", Truth.RAISED: "X"}


def check(tree: reference.Tree, expression: str, messages: Generator, count: int) -> Counter[str]:
    """Compares one expression over `count` messages; returns how often each outcome was seen."""
    if reference.refused(tree):
        assert isinstance(program_or_refusal(expression), SqlError), expression
        return Counter("R")
    compiled = Filter(expression, compile_program(expression))
    seen: Counter[str] = Counter()
    for _ in range(count):
        properties = messages.property_bytes()
        expected = reference.outcome(tree, decode_properties(properties))
        assert (LETTERS[compiled.evaluate(properties)], properties) == (expected, properties), \
            expression
        assert compiled.matches(properties) == (expected == "T")
        seen[expected] += 1
    return seen


@pytest.mark.slow
def test_a_random_expression_means_what_the_reference_says() -> None:
    generator = Generator(dice())
    for _ in range(EXPRESSIONS):
        tree = generator.tree()
        check(tree, generator.text(tree), generator, MESSAGES)


@pytest.mark.slow
def test_fifty_thousand_seeded_cases_agree_and_reach_every_outcome() -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(SEEDS):
        generator = Generator(Random(seed))
        for _ in range(SEED_EXPRESSIONS):
            tree = generator.tree()
            outcomes += check(tree, generator.text(tree), generator, MESSAGES)

    assert set(outcomes) == set("RTFNX")
    assert min(outcomes.values()) > SEEDS
    assert outcomes.total() > 50_000


def test_any_text_is_compiled_or_refused_with_a_position_in_it() -> None:
    cases = dice()
    generator = Generator(cases)
    for number in range(TEXTS):
        expression = generator.soup() if number % 2 else text(cases, 60)
        program = program_or_refusal(expression)
        assert isinstance(program, SqlError) or (
            Filter(expression, program).evaluate(b"a\x015") in Truth), expression
