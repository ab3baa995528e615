"""What a process has in use is told well enough to bound it."""
from __future__ import annotations

import pytest

from mqcore.workers.coordinator.in_use import in_use

MIB = 1 << 20


def test_rows_of_a_table_are_told_by_their_number() -> None:
    before = in_use()
    rows = [{"queue": number + 1_000, "text": f"{number}", "at": number + 10**12}
            for number in range(50_000)]
    took = in_use() - before
    assert 8 * MIB < took < 40 * MIB             # they take some 17
    del rows
    assert in_use() - before < took // 4


def test_long_texts_are_told_by_their_size() -> None:
    before = in_use()
    texts = [bytes(8_000) for _ in range(2_000)]
    assert in_use() - before == pytest.approx(2_000 * 8_000, rel=0.2)
    del texts
    assert in_use() - before < 4 * MIB
