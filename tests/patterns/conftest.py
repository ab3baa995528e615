"""A broker, and databases: SQLite and PostgreSQL, each test with its own."""
from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text

from mqcore.client.patterns import create_tables
from mqcore.testing import Broker, broker
from tests.patterns.databases import open_engine
from tests.patterns.postgres import postgres, programs
from tests.support.ci import unavailable

SETTINGS = {
    "broker.transaction_timeout_ms": 200, "broker.transaction_check_interval_ms": 100,
    "broker.transaction_check_max": 1_000,
}
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def running() -> Iterator[Broker]:
    with broker(SETTINGS) as started:
        yield started


@pytest.fixture(scope="session")
def forgetful() -> Iterator[Broker]:
    """It gives a half message up after one question that nobody answered."""
    with broker({**SETTINGS, "broker.transaction_check_max": 1}) as started:
        yield started


@pytest.fixture(scope="session")
def postgres_address() -> Iterator[str]:
    folder = programs()
    if folder is None:
        unavailable("no PostgreSQL: apt-get install postgresql")
    with postgres(folder) as address:
        yield address


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'test.db'}"
    address = request.getfixturevalue("postgres_address")
    schema = f"s{next(_numbers)}"
    admin = create_engine(f"postgresql+psycopg://{address}")
    with admin.begin() as connection:
        connection.execute(text(f"create schema {schema}"))
    admin.dispose()
    return f"postgresql+psycopg://{address}&options=-csearch_path%3D{schema}"


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    """Of an empty database with the tables of the patterns."""
    made = open_engine(url)
    create_tables(made)
    yield made
    made.dispose()
