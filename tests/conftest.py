"""The order of the tests, and how long an example may take."""
from __future__ import annotations

import os
from itertools import groupby

import pytest
from hypothesis import settings

# -- a machine that does much else takes longer for an example; no test fails for that
settings.register_profile("mqcore", deadline=None)
settings.load_profile("mqcore")

# -- seconds that a test of the kind takes, about; most of them are waiting
SLOW_S = 15
INTEROP_S = 2


@pytest.hookimpl(trylast=True)                # what is deselected has gone
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """
    What takes long begins first, shared out between the processes of `-n`, each of which first
    takes an equal stretch of the list: else one of them would run on alone at the end. A file of
    such tests stays whole, as they share what it starts; what idle processes take from the ends of
    stretches is short.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers == 1:
        return
    lasting = [item for item in items if seconds(item)]
    others = [item for item in items if not seconds(item)]
    files = [list(group) for _, group in groupby(lasting, key=lambda item: item.path)]
    shares: list[list[pytest.Item]] = [[] for _ in range(workers)]
    for file in sorted(files, key=lambda file: sum(map(seconds, file)), reverse=True):
        min(shares, key=lambda share: sum(map(seconds, share))).extend(file)
    count = len(items)
    items[:] = []
    for number, share in enumerate(shares):
        stretch = (count - len(items)) // (workers - number)
        fill = max(0, stretch - len(share))
        items += share + others[:fill]
        del others[:fill]


def seconds(item: pytest.Item) -> int:
    """How long it takes, about; 0 for one that is short."""
    if item.get_closest_marker("slow"):
        return SLOW_S
    return INTEROP_S if item.get_closest_marker("interop") else 0
