"""Numbers that came as text are read as Java reads them, as in native code (remoting.md 4.0)."""
from __future__ import annotations

import pytest

from mqcore.wire.numbers import I32_MAX, I32_MIN, I64_MAX, I64_MIN, whole_number


@pytest.mark.parametrize(("text", "number"), [
    ("0", 0), ("-1", -1), ("+7", 7), ("007", 7), (str(I64_MAX), I64_MAX), (str(I64_MIN), I64_MIN),
])
def test_digits_with_or_without_a_sign_are_a_number(text: str, number: int) -> None:
    assert whole_number(text) == number


@pytest.mark.parametrize("text", [
    "", " ", " 3", "3 ", "3\n", "1_0", "+", "-", "--1", "1.0", "1e3", "0x1", "\u0663", "\uff13",
    "\u00b2", "9" * 20, "1" + "0" * 400, str(I64_MAX + 1), str(I64_MIN - 1), "true",
    "\x00", "1\x00",
])
def test_nothing_else_is(text: str) -> None:
    assert whole_number(text) is None


def test_a_number_beyond_its_bounds_is_none() -> None:
    assert whole_number(str(I32_MAX), I32_MIN, I32_MAX) == I32_MAX
    assert whole_number(str(I32_MAX + 1), I32_MIN, I32_MAX) is None
    assert whole_number(str(I32_MIN - 1), I32_MIN, I32_MAX) is None
