"""The tables of the patterns: their names, and the databases that they are made in."""
from __future__ import annotations

import pytest
from sqlalchemy import Engine, create_engine, inspect
from sqlalchemy.engine import create_mock_engine

from mqcore.client import ConfigError
from mqcore.client.patterns import create_tables, metadata


def test_tables_have_their_prefix_and_are_made_once(engine: Engine) -> None:
    create_tables(engine)
    create_tables(engine, prefix="other_")
    names = {name.removeprefix("mqcore_") for name in metadata().tables}
    assert names == {
        "consumed", "transactions", "resumed", "pending", "runs", "steps", "outbox", "leases"}
    assert set(inspect(engine).get_table_names()) == {
        prefix + name for prefix in ("mqcore_", "other_") for name in names}


def test_a_migration_can_have_the_same_tables() -> None:
    """Alembic gets the MetaData, and makes all of it again and again."""
    assert metadata() is metadata()
    assert metadata("x_") is not metadata()
    made: list[str] = []
    mock = create_mock_engine("postgresql+psycopg://", lambda statement, *_: made.append(
        str(statement.compile(dialect=mock.dialect))))
    metadata().create_all(mock, checkfirst=False)
    assert sum("CREATE TABLE" in each for each in made) == 8
    assert any("BIGSERIAL" in each for each in made)


@pytest.mark.parametrize("prefix", ["", "7x", "a-b", "x" * 32, "a b", None])
def test_a_bad_prefix_is_told(prefix: str) -> None:
    with pytest.raises(ConfigError, match="prefix"):
        metadata(prefix)


def test_other_databases_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    other = create_engine("sqlite://")
    monkeypatch.setattr(other.dialect, "name", "oracle")
    with pytest.raises(ConfigError, match="engine: expected sqlite or postgresql, not oracle"):
        create_tables(other)
    with pytest.raises(ConfigError, match="Engine, not str"):
        create_tables("sqlite://")      # type: ignore[arg-type]
