"""Record batches of what lies in a store's log."""
from __future__ import annotations

from typing import Any

from mqcore.client.native.columns import Columns
from mqcore.spark.columns import Cutter
from mqcore.spark.store.at_rest import Trouble


class LogCutter(Cutter):
    """Cuts records of a log, and what cannot be read there."""

    def trouble(self, found: Trouble) -> Any:
        """A batch of one row that says where and what: all else in it is null."""
        said = {"commitLogOffset": found.position, "damage": str(found)}
        return self._pa.RecordBatch.from_arrays(
            [self._pa.array([said.get(field.name)], field.type) for field in self.schema],
            schema=self.schema)

    def _array(self, name: str, kind: Any, made: Columns, count: int, broker: str | None,
               topic: str | None) -> Any:
        if name == "damage":
            return self._pa.nulls(count, kind)
        return super()._array(name, kind, made, count, broker, topic)
