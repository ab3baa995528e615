"""Threads that wait for the disk at a start."""
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

FEW_PARTS: Final = 8                   # for which threads cost more than they save


def side_by_side(work: Callable[..., None], parts: list[tuple[Any, ...]]) -> None:
    """
    `work` for each part's arguments, in threads of their own: a cold disk answers many at once. A
    few are done one after the other.
    """
    if len(parts) <= FEW_PARTS:
        for part in parts:
            work(*part)
        return
    with ThreadPoolExecutor(len(parts)) as readers:
        for done in [readers.submit(work, *part) for part in parts]:
            done.result()
