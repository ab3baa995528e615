"""
Two lanes for the whole suite: other people's clients, which wait most of their time, run beside all
other tests. `make test` runs both at once (pytest-xdist, --dist loadgroup).
"""
from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        lane = "clients" if "interop" in item.path.parts else "own"
        item.add_marker(pytest.mark.xdist_group(lane))
