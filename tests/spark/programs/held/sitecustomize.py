"""
Python runs this first, in each process of a driver under test: the commit of a table leaves a sign
in its folder and stands still until its process is killed. Before the change, in folders whose name
ends with `before`; else after it.
"""
from __future__ import annotations

import signal

from mqcore.spark.lake.table import Change, Shape, Table
from tests.spark.programs.parents import begin

SIGN = "held"
_commit = Table.commit


def held(self: Table, change: Change, shape: Shape | None = None) -> bool:
    if not self.root.name.endswith("before"):
        _commit(self, change, shape)
    (self.root / SIGN).touch()
    signal.pause()
    raise AssertionError("a signal that nobody sends")


Table.commit = held
begin()
