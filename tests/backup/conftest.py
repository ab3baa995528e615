"""A store of ours at rest, and backups of it; whoever changes one takes a copy."""
from __future__ import annotations

from pathlib import Path

import pytest

from mqcore.backup.make import to_folder
from tests.backup.stores import SETTINGS, copied
from tests.support.mqcore_process import mqcore_up
from tests.verify.stores import load


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """After a clean stop: 1,500 messages in four queues, six segments."""
    folder = tmp_path_factory.mktemp("backed-up")
    with mqcore_up(folder, SETTINGS) as broker:
        load(broker, 1500)
    return broker.store


@pytest.fixture(scope="session")
def first_backups(tmp_path_factory: pytest.TempPathFactory, store: Path) -> Path:
    folder = tmp_path_factory.mktemp("made") / "backups"
    to_folder(store, folder, copy=True)
    return folder


@pytest.fixture
def backups(first_backups: Path, tmp_path: Path) -> Path:
    """A folder with one backup, to be spoiled."""
    return copied(first_backups, tmp_path / "backups")
