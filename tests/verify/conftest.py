"""Stores that several tests look at; whoever changes one puts it back (tests.verify.stores)."""
from __future__ import annotations

from pathlib import Path

import pytest

from tests.store.golden import unpack
from tests.support.mqcore_process import mqcore_up
from tests.verify.stores import (
    KILLED_MESSAGES,
    OWN_SETTINGS,
    STOPPED_MESSAGES,
    kill,
    load,
    wait_for_dispatch,
)


@pytest.fixture(scope="session")
def stock(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Sound stores of a stock broker by name."""
    folder = tmp_path_factory.mktemp("stock")
    return {name: unpack(name, folder / name) for name in (
        "basic", "delay_retry_dlq", "filter_ext", "ipv6", "lmq", "transactions")}


@pytest.fixture
def basic(stock: dict[str, Path]) -> Path:
    return stock["basic"]


@pytest.fixture(scope="session")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of ours after a clean stop: four queues, of each message two keys."""
    folder = tmp_path_factory.mktemp("stopped")
    with mqcore_up(folder, OWN_SETTINGS) as broker:
        load(broker, STOPPED_MESSAGES)
    return broker.store


@pytest.fixture(scope="session")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of ours after the end of all processes at once: dispatched."""
    folder = tmp_path_factory.mktemp("killed")
    with mqcore_up(folder, OWN_SETTINGS) as broker:
        load(broker, KILLED_MESSAGES)
        wait_for_dispatch(broker, KILLED_MESSAGES)
        kill(broker)
    return broker.store
