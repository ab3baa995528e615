"""What `mqcore.client` gives, and what it loads for it."""
from __future__ import annotations

import subprocess
import sys

import pytest

import mqcore.client
from mqcore.client import names


def loaded_by(statement: str) -> set[str]:
    """The client's modules that a fresh interpreter has after a statement."""
    done = subprocess.run(
        [sys.executable, "-c", f"{statement}\nimport sys\nprint(*sys.modules)"],
        capture_output=True, text=True, timeout=60, check=True)
    return {name for name in done.stdout.split() if name.startswith("mqcore.client.")}


def test_a_broker_loads_the_connections_and_no_role() -> None:
    loaded = loaded_by("import mqcore.workers.coordinator.coordinator")
    assert "mqcore.client.network.pool" in loaded
    assert loaded & {"mqcore.client.names", "mqcore.client.produce", "mqcore.client.read",
                     "mqcore.client.roles", "mqcore.client.admin", "mqcore.client.consume"} == set()


def test_every_name_is_the_package_s() -> None:
    assert mqcore.client.__all__ == names.__all__
    assert set(names.__all__) <= set(dir(mqcore.client))
    for name in names.__all__:
        assert getattr(mqcore.client, name) is getattr(names, name)


def test_another_name_is_an_error_that_says_it() -> None:
    with pytest.raises(AttributeError, match="'Produzer'"):
        _ = mqcore.client.Produzer
