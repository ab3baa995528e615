"""The honest client itself: it sees what it is for."""
from __future__ import annotations

import pytest

from tests.attacks.honest import Honest, Span


def test_it_is_served_when_nobody_attacks(honest: Honest, watch) -> None:
    calm = honest.measure()
    with honest.span() as later:
        honest.until(lambda: len(later.sends_ms) >= 50 and later.beats_ms, "50 sends")
    honest.assert_served(later, calm)
    assert not later.refusals


def test_a_message_that_is_not_there_is_found_out(honest: Honest) -> None:
    honest.measure(10)
    honest.acknowledged[-1] = honest.acknowledged[1]
    with pytest.raises(AssertionError, match=r"1 of .* acknowledged are not there"):
        honest.check()
    del honest.acknowledged[-1]


def test_waiting_longer_than_before_is_found_out(honest: Honest) -> None:
    calm = Span([1.0] * 100, [1.0] * 100, [1.0] * 100)
    slow = Span([400.0] * 100, [1.0] * 100, [1.0] * 100)
    with pytest.raises(AssertionError, match="sends_ms: p99 400"):
        honest.assert_served(slow, calm)
