"""A broker that checks transactions back every fraction of a second, for this folder."""
from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.mqcore_process import MqcoreProcess, mqcore_up

TIMEOUT_MS = 300
INTERVAL_MS = 200
CHECK_MAX = 3
SETTINGS: dict[str, object] = {
    "broker.transaction_timeout_ms": TIMEOUT_MS,
    "broker.transaction_check_interval_ms": INTERVAL_MS,
    "broker.transaction_check_max": CHECK_MAX,
}


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreProcess]:
    with mqcore_up(tmp_path_factory.mktemp("transactions"), SETTINGS) as running:
        yield running
