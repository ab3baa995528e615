"""The order of the tests, and how long an example may take."""
from __future__ import annotations

import gc
import importlib
import os
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import settings

from tests.rare import is_rare
from tests.support.dice import times

# -- a machine that does much else takes longer for an example; no test fails for that
settings.register_profile("mqcore", deadline=None, max_examples=times(100))
settings.load_profile("mqcore")

# -- seconds that a test of the kind takes, about; most of them are waiting
DRIVERS_S = 120
SLOW_S = 15
INTEROP_S = 2


WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """
    Each process of `-n` looks at every file. In a fresh clone each would compile all files at the
    same time, which is half of its work then; so each begins with its own files, and finds the
    others done. All that is found stays: a look for garbage finds none.
    """
    gc.disable()
    asked = [Path(argument.partition("::")[0]).resolve() for argument in session.config.args]
    top = Path(__file__).parent
    files = [path for path in sorted(top.rglob("test_*.py"))
             if any(path.is_relative_to(one) for one in asked)]
    for path in files[WORKER::WORKERS] if WORKERS > 1 else ():
        try:
            importlib.import_module(".".join(path.relative_to(top.parent).with_suffix("").parts))
        except (ImportError, SyntaxError, pytest.skip.Exception):
            continue                   # it is said when the file is collected


def pytest_itemcollected(item: pytest.Item) -> None:
    """Before any `-m` is looked at."""
    top = Path(__file__).parent
    case = getattr(getattr(item, "callspec", None), "id", "")
    if item.path.is_relative_to(top) and is_rare(item.path.relative_to(top), case):
        item.add_marker(pytest.mark.rare)


@pytest.hookimpl(trylast=True)                # what is deselected has gone
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """
    Long tests begin first, shared out between the processes of `-n`, each of which first takes an
    equal stretch of the list: else the last process would run long by itself. A file of long tests
    stays whole, as they share what it starts, and so do files with one world of their folder; the
    tests that idle processes take from the ends of stretches are short. Short tests that share a
    world are with the long ones: elsewhere they would start it again.
    """
    if WORKERS == 1:
        return
    long = {item: seconds(item) for item in items}
    long_files = {item.path for item in items if long[item]}
    theirs = {world for item in items if item.path in long_files for world in worlds(item)}
    long_files |= {item.path for item in items if not theirs.isdisjoint(worlds(item))}
    lasting = [item for item in items if item.path in long_files]
    others = [item for item in items if item.path not in long_files]
    files = [list(group) for _, group in groupby(lasting, key=lambda item: item.path)]
    shares: list[list[pytest.Item]] = [[] for _ in range(WORKERS)]
    for some in sorted(together(files), key=lambda some: sum(map(long.__getitem__, some)),
                       reverse=True):
        min(shares, key=lambda share: sum(map(long.__getitem__, share))).extend(some)
    count = len(items)
    items[:] = []
    for number, share in enumerate(shares):
        stretch = (count - len(items)) // (WORKERS - number)
        fill = max(0, stretch - len(share))
        items += share + others[:fill]
        del others[:fill]


def together(files: list[list[pytest.Item]]) -> list[list[pytest.Item]]:
    """
    Files that share a world, or that are linked by others that do, as one: in processes of their
    own each would start it, a stock broker and some JVMs. The order stays.
    """
    group_of = list(range(len(files)))
    first: dict[tuple[str, str], int] = {}
    for number, file in enumerate(files):
        for world in {world for item in file for world in worlds(item)}:
            mine, other = group_of[number], group_of[first.setdefault(world, number)]
            group_of = [other if group == mine else group for group in group_of]
    return [[item for number, file in enumerate(files) if group_of[number] == group
             for item in file] for group in dict.fromkeys(group_of)]


def worlds(item: pytest.Item) -> Iterator[tuple[str, str]]:
    """Fixtures that outlive files, and the folder below here that they are of."""
    found = getattr(item, "_fixtureinfo", None)
    for name, definitions in found.name2fixturedefs.items() if found is not None else ():
        world = definitions[-1]
        if world.scope in ("session", "package") and world.baseid.startswith("tests/"):
            yield world.baseid, name


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """All tests are known: no look for garbage goes through them again."""
    gc.collect()
    gc.freeze()
    gc.enable()


def seconds(item: pytest.Item) -> int:
    """How long it takes, about; 0 for one that is short."""
    if item.get_closest_marker("drivers"):
        return DRIVERS_S
    if item.get_closest_marker("slow"):
        return SLOW_S
    return INTEROP_S if item.get_closest_marker("interop") else 0
