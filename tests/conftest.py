"""The order of the tests."""
from __future__ import annotations

import os

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """
    Slow tests begin first, shared out between the processes of `-n`, each of which first takes an
    equal stretch of the list: else one of them would run on alone at the end.
    """
    slow = [item for item in items if item.get_closest_marker("slow")]
    others = [item for item in items if not item.get_closest_marker("slow")]
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    items[:] = []
    for number in range(workers):
        start, end = (len(others) * share // workers for share in (number, number + 1))
        items += slow[number::workers] + others[start:end]
