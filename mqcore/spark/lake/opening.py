"""Which kind of table a folder has, and its reading by Spark."""
from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from mqcore.spark.errors import OptionError, SparkSourceError
from mqcore.spark.lake import log_table
from mqcore.spark.lake.log_table import LogTable
from mqcore.spark.lake.options import DELTA, ICEBERG, PARQUET
from mqcore.spark.lake.table import State, Table, local_folder

ICEBERG_TABLE: Final = "mqcore.messages"
_MARKS: Final = {log_table.LOG: PARQUET, "_delta_log": DELTA, "catalog.db": ICEBERG}


def kind_of(root: Path) -> str | None:
    """The format of the table in a folder, by what lies there; None: there is none."""
    return next((kind for mark, kind in _MARKS.items() if (root / mark).exists()), None)


def open_table(
    path: str | Path, kind: str | None = None, *, catalog: Mapping[str, str] | None = None,
    name: str = ICEBERG_TABLE,
) -> Table:
    """
    The table in a folder, which may have none yet.

    kind           parquet, delta or iceberg; None: that of the table, of none parquet
    catalog, name  of Iceberg: see the options icebergCatalog and icebergTable
    Raises OptionError.
    """
    root = local_folder(str(path))
    there = kind_of(root) or (ICEBERG if catalog is not None else None)
    if kind is not None and there not in (None, kind):
        raise OptionError(f"{root}: has a table of format {there}, not {kind}")
    chosen = kind or there or PARQUET
    if chosen == PARQUET:
        return LogTable(root)
    try:
        if chosen == DELTA:
            from mqcore.spark.lake.delta_table import DeltaTable

            return DeltaTable(root)
        from mqcore.spark.lake.iceberg_table import IcebergTable

        return IcebergTable(root, catalog, name)
    except ImportError as error:
        raise OptionError(f"tableFormat {chosen} needs {error.name}: pip install 'mqcore[lake]'"
                          ) from None


def existing(table: Table) -> Table:
    """The table; raises SparkSourceError when there is none."""
    if not table.exists():
        raise SparkSourceError(f"{table.root}: there is no table here: expected one that"
                               " rocketmq-lake has written")
    return table


def read_lake(
    spark: Any, path: str | Path, *, catalog: Mapping[str, str] | None = None,
    name: str = ICEBERG_TABLE,
) -> Any:
    """
    The frame of what is committed in a table of `rocketmq-lake`, read by Spark's own Parquet scan.

    It is the table of this moment: what is written later is in the frame of a later call.
    catalog, name  of Iceberg: see the options icebergCatalog and icebergTable
    Raises SparkSourceError.
    """
    table = existing(open_table(path, catalog=catalog, name=name))
    return frame_of(spark, table, table.state())


def frame_of(spark: Any, table: Table, state: State, paths: list[str] | None = None) -> Any:
    """The frame of a table's files, all of a state or some. Raises SparkSourceError."""
    chosen = [one.path for one in state.files] if paths is None else paths
    if not chosen:
        raise SparkSourceError(f"{table.root}: the table has no rows (any more)")
    return spark.read.parquet(*(_plain(str(table.root / path)) for path in chosen))


def _plain(path: str) -> str:
    """A path in which Hadoop sees no pattern."""
    return "".join(f"\\{each}" if each in "{}[]*?\\" else each for each in path)
