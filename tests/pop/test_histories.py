"""Random histories of POP: receives, acks, clients, clocks that step, kills, torn files."""
from __future__ import annotations

from pathlib import Path

import tests.support.dice as throw
from tests.pop.model import History


def test_a_state_is_what_its_history_says(tmp_path: Path) -> None:
    dice = throw.dice()
    for _ in range(throw.times(150)):
        history = History(dice, tmp_path)
        for _ in range(120):
            history.step()
        history.drain()
