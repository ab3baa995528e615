"""The key-value table of a name server, kept in kvConfig.json (remoting.md 4.7, broker.md 13.7).

The file has the stock's shape, `{"configTable":{namespace:{key:value}}}`, and is replaced whole on
each change: changes are rare and come from administrators.
"""
from __future__ import annotations

from pathlib import Path

from mqcore.namesrv.files import write_atomically
from mqcore.wire import fastjson

ORDER_TOPICS = "ORDER_TOPIC_CONFIG"     # namespace: topic -> "broker-a:4;broker-b:4"


class KeyValueError(ValueError):
    """The file cannot be read as a key-value table, or the table is full."""


class KeyValues:
    """Namespaces of keys; every change is on disk when the call returns."""

    def __init__(self, path: Path, *, entry_count_max: int = 100_000) -> None:
        """Load `path`; a missing or empty file is an empty table. Raises KeyValueError."""
        self._path = path
        self._entry_count_max = entry_count_max
        self._table: dict[str, dict[str, str]] = {}
        if path.exists():
            self._table = _read(path)

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """All keys of a namespace; None when it does not exist."""
        found = self._table.get(namespace)
        return None if found is None else dict(found)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value. Raises KeyValueError when the table is full, OSError when disk refuses."""
        entry_count = sum(len(keys) for keys in self._table.values())
        if entry_count >= self._entry_count_max and self.get(namespace, key) is None:
            raise KeyValueError(f"more than {self._entry_count_max} keys")
        table = {name: dict(keys) for name, keys in self._table.items()}
        table.setdefault(namespace, {})[key] = value
        self._store(table)

    def delete(self, namespace: str, key: str) -> None:
        """Remove a key if it is there; its namespace stays. Raises OSError when disk refuses."""
        if self.get(namespace, key) is None:
            return
        table = {name: dict(keys) for name, keys in self._table.items()}
        del table[namespace][key]
        self._store(table)

    def _store(self, table: dict[str, dict[str, str]]) -> None:
        """Memory follows the disk: a failed write leaves both as they were."""
        write_atomically(self._path, fastjson.dumps({"configTable": table}))
        self._table = table


def _read(path: Path) -> dict[str, dict[str, str]]:
    raw = path.read_bytes()
    if not raw.strip():
        return {}
    try:
        document = fastjson.loads(raw)
    except fastjson.JsonError as error:
        raise KeyValueError(f"{path}: {error}") from error
    table = document.get("configTable") if isinstance(document, dict) else None
    if not isinstance(table, dict) or not all(isinstance(keys, dict) for keys in table.values()):
        raise KeyValueError(f"{path}: configTable: expected an object of objects")
    return {
        str(name): {str(key): str(value) for key, value in keys.items() if value is not None}
        for name, keys in table.items()
    }
