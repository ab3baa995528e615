"""
An Iceberg table, by `pyiceberg`.

The last number of each writer is a property of the table, `mqcore.last.WRITER`, which changes with
the same commit as its files; a snapshot's summary has both, too, for who reads the history.
"""
from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationException,
)
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.table import Table as Opened
from pyiceberg.table import TableProperties
from pyiceberg.transforms import DayTransform
from sqlalchemy.exc import OperationalError

from mqcore.spark.errors import OptionError, SparkSourceError
from mqcore.spark.lake.table import (
    DAY,
    DAY_OF,
    NOTHING,
    Change,
    DataFile,
    Shape,
    State,
    Table,
    fits,
)

CATALOG: Final = "catalog.db"
METADATA: Final = "metadata"
LAST_PROPERTY: Final = "mqcore.last."
WRITER: Final = "mqcore.writer"
NUMBER: Final = "mqcore.number"
COLUMNS_PROPERTY: Final = "mqcore.columns"
PARTS_PROPERTY: Final = "mqcore.parts"
_EPOCH: Final = date(1970, 1, 1)
# Retries are ours: a look at the writer's last number belongs to each. Old metadata goes by itself.
_PROPERTIES: Final = {
    TableProperties.COMMIT_NUM_RETRIES: "0",
    TableProperties.MANIFEST_MERGE_ENABLED: "true",
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
    TableProperties.METADATA_PREVIOUS_VERSIONS_MAX: "20",
}


class IcebergTable(Table):
    kind = "iceberg"

    def __init__(self, root: Path, catalog: Mapping[str, str] | None, name: str) -> None:
        super().__init__(root)
        self._name = name
        self._properties = dict(catalog) if catalog is not None else {
            "type": "sql", "uri": f"sqlite:///{root / CATALOG}", "warehouse": str(root)}
        self._own_catalog = catalog is None
        self._opened: Catalog | None = None

    def exists(self) -> bool:
        if self._own_catalog and not (self.root / CATALOG).exists():
            return False
        return bool(self._catalog().table_exists(self._name))

    def state(self) -> State:
        table = self._table()
        snapshot = table.current_snapshot()
        return State(0 if snapshot is None else snapshot.sequence_number or 0, tuple(
            one for one, _ in self._files(table).values()))

    def parts(self) -> tuple[str, ...]:
        said = self._table().properties.get(PARTS_PROPERTY, "")
        return tuple(part for part in said.split(",") if part)

    def committed(self, writer: str) -> int:
        return _last(self._table(), writer)

    def kept(self, since_ms: int) -> set[str]:
        table = self._table()
        found: set[str] = set()
        for snapshot in self._current_since(table, since_ms):
            found |= {self._below(entry.data_file.file_path)
                      for entry in _entries(table, snapshot)}
        return found

    def forget(self, before_ms: int) -> int:
        """Snapshots that were replaced before then, and what only they have of metadata."""
        table = self._table()
        staying = {one.snapshot_id for one in self._current_since(table, before_ms)}
        old = [one for one in table.metadata.snapshots if one.snapshot_id not in staying]
        if not old:
            return 0
        needed = {path for one in table.metadata.snapshots if one.snapshot_id in staying
                  for path in _metadata_of(table, one)}
        unneeded = {path for one in old for path in _metadata_of(table, one)} - needed
        table.maintenance.expire_snapshots().by_ids([one.snapshot_id for one in old]).commit()
        for path in unneeded:
            table.io.delete(path)
        return len(old)

    def _change(self, change: Change, shape: Shape | None) -> bool:
        try:
            table = self._table() if shape is None or self.exists() else self._create(shape)
            if _last(table, change.writer) >= change.number:
                return False            # since the caller's look
            if shape is not None:
                _check(table, shape, self.root)
            files = self._files(table) if change.remove else {}
            fits(files, change.remove, self.root)
            said = {WRITER: change.writer, NUMBER: str(change.number)}
            paths = [str(self.root / one.path) for one in change.add]
            with table.transaction() as transaction:
                transaction.set_properties({LAST_PROPERTY + change.writer: str(change.number)})
                if not change.remove:
                    transaction.add_files(paths, said, check_duplicate_files=False)
                else:
                    with transaction.update_snapshot(snapshot_properties=said).overwrite() as both:
                        for path in change.remove:
                            both.delete_data_file(files[path][1])
                        for path in paths:
                            both.append_data_file(parquet_file_to_data_file(
                                table.io, transaction.table_metadata, path))
        except (CommitFailedException, ValidationException, TableAlreadyExistsError):
            return False
        except OperationalError as error:
            if "locked" in str(error):
                return False
            raise SparkSourceError(f"{self.root}: the catalog fails: {error.orig}") from None
        return True

    def _create(self, shape: Shape) -> Opened:
        self.root.mkdir(parents=True, exist_ok=True)
        catalog = self._catalog()
        with contextlib.suppress(NamespaceAlreadyExistsError):
            catalog.create_namespace(self._name.rpartition(".")[0])
        with catalog.create_table_transaction(
            self._name, shape.schema, location=str(self.root),
            properties={**_PROPERTIES, COLUMNS_PROPERTY: shape.text,
                        PARTS_PROPERTY: ",".join(shape.parts), **_without_bounds(shape)},
        ) as transaction:
            with transaction.update_spec() as spec:
                for name in shape.parts:
                    if name == DAY:
                        spec.add_field(DAY_OF, DayTransform(), DAY)
                    else:
                        spec.add_identity(name)
            schema = transaction.table_metadata.schema()
            transaction.set_properties({
                TableProperties.DEFAULT_NAME_MAPPING: schema.name_mapping.model_dump_json()})
        return self._table()

    def _catalog(self) -> Catalog:
        if self._opened is None:
            if self._own_catalog:
                self.root.mkdir(parents=True, exist_ok=True)
            try:
                self._opened = load_catalog("mqcore", **self._properties)
            except (ValueError, OSError, OperationalError) as error:
                raise OptionError(f"icebergCatalog: {error}") from None
        return self._opened

    def _table(self) -> Opened:
        try:
            return self._catalog().load_table(self._name)
        except NoSuchTableError:
            raise SparkSourceError(f"{self.root}: its catalog has no table {self._name}: give"
                                   " icebergTable") from None

    def _files(self, table: Opened) -> dict[str, tuple[DataFile, Any]]:
        """Path -> file, as here and as there."""
        snapshot = table.current_snapshot()
        found = {}
        for entry in () if snapshot is None else _entries(table, snapshot):
            one = entry.data_file
            path = self._below(one.file_path)
            if int(one.content) != 0:
                raise SparkSourceError(f"{self.root}: another writer has deleted rows of the table:"
                                       " read it with Iceberg's own readers")
            values = [one.partition[index] for index in range(len(table.spec().fields))]
            parts = {field.name: _shown(field.name, value)
                     for field, value in zip(table.spec().fields, values, strict=True)}
            found[path] = DataFile(path, one.record_count, one.file_size_in_bytes, parts), one
        return found

    def _below(self, path: str) -> str:
        plain = Path(path.removeprefix("file://"))
        if not plain.is_relative_to(self.root):
            raise SparkSourceError(f"{self.root}: {path} is not in the table's folder: read it with"
                                   " Iceberg's own readers")
        return plain.relative_to(self.root).as_posix()

    @staticmethod
    def _current_since(table: Opened, since_ms: int) -> list[Any]:
        """The snapshots that were the table's newest then, or later."""
        log = table.metadata.snapshot_log
        replaced = {one.snapshot_id: after.timestamp_ms
                    for one, after in itertools.pairwise(log)}
        return [one for one in table.metadata.snapshots
                if replaced.get(one.snapshot_id, since_ms) >= since_ms]


def _without_bounds(shape: Shape) -> dict[str, str]:
    """Of times that may be any 64 bits pyiceberg cannot tell the least and the largest."""
    return {f"{TableProperties.METRICS_MODE_COLUMN_CONF_PREFIX}.{one.name}": "counts"
            for one in shape.schema if pa.types.is_temporal(one.type) and one.name != DAY_OF}


def _last(table: Opened, writer: str) -> int:
    return int(table.properties.get(LAST_PROPERTY + writer, NOTHING))


def _entries(table: Opened, snapshot: Any) -> Iterator[Any]:
    for manifest in snapshot.manifests(table.io):
        yield from manifest.fetch_manifest_entry(table.io, discard_deleted=True)


def _metadata_of(table: Opened, snapshot: Any) -> set[str]:
    return {snapshot.manifest_list, *(one.manifest_path for one in snapshot.manifests(table.io))}


def _shown(name: str, value: Any) -> str | None:
    if value is None:
        return None
    if name == DAY:
        return (value if isinstance(value, date) else _EPOCH + timedelta(days=value)).isoformat()
    return str(value)


def _check(table: Opened, shape: Shape, root: Path) -> None:
    """Raises OptionError unless the table was made for this shape."""
    columns, parts = table.properties.get(COLUMNS_PROPERTY), table.properties.get(PARTS_PROPERTY)
    if columns is None or parts is None:
        raise OptionError(f"{root}: the table was not made by this sink: expected its property"
                          f" {COLUMNS_PROPERTY}")
    if parts != ",".join(shape.parts):
        raise OptionError(f"{root}: the table is partitioned by {parts or 'none'}, not by"
                          f" {','.join(shape.parts) or 'none'}: give partitionBy alike")
    if columns != shape.text:
        raise OptionError(f"{root}: the table has the columns {columns}: the frame has"
                          f" {shape.text}")
    if table.properties.get(TableProperties.COMMIT_NUM_RETRIES) != "0":
        raise OptionError(f"{root}: the table's property {TableProperties.COMMIT_NUM_RETRIES} has"
                          " to be 0: this sink tries again by itself")
