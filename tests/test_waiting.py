"""Who waits takes little from what is waited for."""
from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from tests.support import waiting
from tests.support.waiting import LOOK_S, LOOK_S_MAX, pause_s, wait_until


@pytest.mark.parametrize(("waited_s", "look_s", "pause"), [
    (0.0, 0.0, LOOK_S), (1.0, 0.0, 0.05), (60.0, 0.0, LOOK_S_MAX), (0.0, 0.02, 0.06),
    (0.0, 5.0, LOOK_S_MAX),
])
def test_pauses_grow_with_the_wait_and_with_a_look(
        waited_s: float, look_s: float, pause: float) -> None:
    assert pause_s(waited_s, look_s) == pytest.approx(pause)


def test_a_minute_is_less_than_a_thousand_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    now, looks = [0.0], itertools.count()

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(waiting, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    with pytest.raises(AssertionError, match=r"not within 60 s: what never is"):
        wait_until(lambda: next(looks) < 0, "what never is", 60)
    assert 500 < next(looks) < 1_000
