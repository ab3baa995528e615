"""Masters on stores of their own."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.replication.ends import Make, MasterEnd


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[MasterEnd] = []

    def one(**changes: Any) -> MasterEnd:
        made.append(MasterEnd(tmp_path / f"master-{len(made)}", **changes))
        return made[-1]

    yield one
    for each in made:
        each.close()
