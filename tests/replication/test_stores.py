"""Stores that are not alike, or not sound, are told apart by who judges a run of faults."""
from __future__ import annotations

from pathlib import Path

import pytest

from tests.replication.stores import hold_alike, log_of
from tests.store.golden import unpack

AT = 100                              # of a byte inside the first record


@pytest.fixture
def stores(tmp_path: Path) -> dict[str, Path]:
    return {name: unpack("basic", tmp_path / name) for name in ("master", "slave")}


def flip(store: Path) -> None:
    """One bit of the log."""
    first = min((store / "commitlog").iterdir())
    with first.open("r+b") as file:
        file.seek(AT)
        (was,) = file.read(1)
        file.seek(AT)
        file.write(bytes([was ^ 1]))


def test_copies_of_a_store_are_alike(stores: dict[str, Path]) -> None:
    hold_alike(stores)


def test_a_log_of_other_bytes_is_named_with_the_place(stores: dict[str, Path]) -> None:
    flip(stores["slave"])
    with pytest.raises(AssertionError, match=f"master and slave differ at {AT}"):
        hold_alike(stores)


def test_a_log_that_ends_earlier_is_another_one(stores: dict[str, Path]) -> None:
    end = len(log_of(stores["slave"]))
    last = max(path for path in (stores["slave"] / "commitlog").iterdir() if any(path.read_bytes()))
    last.write_bytes(last.read_bytes().rstrip(b"\0")[:-1].ljust(last.stat().st_size, b"\0"))
    with pytest.raises(AssertionError, match=rf"differ at \d+: they end at {end} and \d+"):
        hold_alike(stores)


def test_the_same_damage_in_both_is_found(stores: dict[str, Path]) -> None:
    for store in stores.values():
        flip(store)
    with pytest.raises(AssertionError, match="master: "):
        hold_alike(stores)
