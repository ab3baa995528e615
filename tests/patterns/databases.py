"""Engines for tests."""
from __future__ import annotations

from typing import Any

from sqlalchemy import Engine, create_engine, event


def open_engine(url: str, **options: Any) -> Engine:
    """Programs are killed here, never the machine: nothing has to reach the disk."""
    engine = create_engine(url, **options)
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect",
                     lambda driver, _: driver.execute("pragma synchronous = off"))
    return engine
