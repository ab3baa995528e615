"""Fresh random cases, asked of mqcore and of the stock filter classes side by side."""
from __future__ import annotations

import secrets
from random import Random

import pytest

from tests.filter.stock import ask, random_cases
from tests.filter.test_sql92_recorded import letter
from tests.support.stock import require_stock

pytestmark = pytest.mark.interop
EXPRESSIONS = 2_000


@pytest.mark.slow
def test_mqcore_and_stock_give_the_same_answers() -> None:
    require_stock()
    seed = secrets.randbits(32)
    cases = list(random_cases(Random(seed), EXPRESSIONS))

    differences = [(*case, theirs, letter(*case))
                   for case, theirs in zip(cases, ask(cases), strict=True)
                   if letter(*case) != theirs]

    assert differences == [], f"seed {seed}"
