"""A control group with a limit of memory, in which a test starts programs."""
from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.waiting import wait_until

GROUPS = Path("/sys/fs/cgroup")
PLACES = (                             # of cgroup 2, and of 1; the file that holds the limit
    (GROUPS, "memory.max"), (GROUPS / "unified", "memory.max"),
    (GROUPS / "memory", "memory.limit_in_bytes"))


@contextlib.contextmanager
def control_group(memory_bytes: int) -> Iterator[list[str]]:
    """
    The words before a command that runs it in a new group. Skips the test where none can be made.
    """
    for root, limit in PLACES:
        group = root / f"mqcore-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            if not (group / limit).exists():           # of another kind, or not given to us
                continue
            (group / limit).write_text(str(memory_bytes))
            yield ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"]
            return
        finally:
            wait_until(partial(_removed, group), "the end of the control group")
    pytest.skip("no control group with a limit of memory can be made (that takes root, and a "
                "cgroup file system that is writable)")


def _removed(group: Path) -> bool:
    """The kernel lets it go a moment after its last process."""
    with contextlib.suppress(OSError):
        group.rmdir()
    return not group.exists()
