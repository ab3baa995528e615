"""A broker with in-memory ports for every test that asks for one."""
from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.fakes import Bench, make_bench, settings_in


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return make_bench(settings_in(tmp_path / "store"))
