"""The key-value table of a name server, kept in kvConfig.json (remoting.md 4.7, broker.md 13.7).

The file has the stock's shape, `{"configTable":{namespace:{key:value}}}`, and is replaced whole on
each change: changes are rare and come from administrators. What a change may add is bounded, so
that the file stays one that is read, written and sent in a moment.

Where no account is asked for, every client may add keys. A network holds at most half of the room
that others leave, so that each further one still finds some. The keys that were read from the file
belong to no network.
"""
from __future__ import annotations

from pathlib import Path
from typing import Any

from mqcore.namesrv.files import read_object, write_atomically
from mqcore.turns import within_half
from mqcore.wire import fastjson

ORDER_TOPICS = "ORDER_TOPIC_CONFIG"     # namespace: topic -> "broker-a:4;broker-b:4"


NAME_BYTES_MAX = 1_024                  # of a namespace or a key
_MEMBER = "configTable"


class KeyValueError(ValueError):
    """The file cannot be read as a key-value table, or the table is full."""


class KeyValues:
    """Namespaces of keys; every change is on disk when the call returns."""

    def __init__(
        self, path: Path | None, *, entry_count_max: int = 100_000, value_bytes_max: int = 65_536,
        bytes_max: int = 4 << 20,
    ) -> None:
        """
        Load `path`; a missing or empty file is an empty table. Raises KeyValueError.

        The limits are for changes: a file beyond them is read, and then nothing may be added.
        """
        self._path = path
        self._entry_count_max = entry_count_max
        self._value_bytes_max = value_bytes_max
        self._bytes_max = bytes_max
        self._table, self._unknown = _read(path)
        # each entry as text, by namespace and key: the file is joined of them
        self._texts = {
            namespace: {key: _text(key, value) for key, value in keys.items()}
            for namespace, keys in self._table.items()
        }
        self._bodies: dict[str, bytes] = {}              # answers, until something changes
        self._writers: dict[tuple[str, str], str] = {}   # of keys of this run, with a network

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """All keys of a namespace; None when it does not exist."""
        found = self._table.get(namespace)
        return None if found is None else dict(found)

    def namespace_body(self, namespace: str) -> bytes | None:
        """All keys of a namespace as an answer's body; None when it does not exist."""
        if namespace not in self._table:
            return None
        if namespace not in self._bodies:
            texts = self._texts[namespace]
            joined = ",".join(map(texts.__getitem__, sorted(texts)))
            self._bodies[namespace] = f'{{"table":{{{joined}}}}}'.encode()
        return self._bodies[namespace]

    def put(self, namespace: str, key: str, value: str, network: str = "") -> None:
        """
        Set a value; network: whose share of the room it may take, "": the whole room. Raises
        KeyValueError when there is no room, OSError when disk refuses.
        """
        takes = self._check_room(namespace, key, value, network)
        known = namespace in self._table
        before = self.get(namespace, key)
        self._set(namespace, key, value)
        try:
            self._store()
        except OSError:                  # memory follows the disk: as if nothing had been asked
            if not known:
                del self._table[namespace], self._texts[namespace]
            elif before is None:
                del self._table[namespace][key], self._texts[namespace][key]
            else:
                self._set(namespace, key, before)
            raise
        if not network:
            self._writers.pop((namespace, key), None)
        elif takes:
            self._writers[namespace, key] = network

    def delete(self, namespace: str, key: str) -> None:
        """Remove a key if it is there; its namespace stays. Raises OSError when disk refuses."""
        before = self._table.get(namespace, {}).pop(key, None)
        if before is None:
            return
        del self._texts[namespace][key]
        try:
            self._store()
        except OSError:
            self._set(namespace, key, before)
            raise
        self._writers.pop((namespace, key), None)

    def _check_room(self, namespace: str, key: str, value: str, network: str) -> bool:
        """Whether the value takes room. Raises KeyValueError when there is none."""
        for what, name in (("namespace", namespace), ("key", key)):
            if len(name.encode("utf-8", "replace")) > NAME_BYTES_MAX:
                raise KeyValueError(f"the {what} has more than {NAME_BYTES_MAX} bytes")
        size = len(value.encode("utf-8", "replace"))
        if size > self._value_bytes_max:
            raise KeyValueError(f"the value has {size} bytes: expected at most "
                                f"{self._value_bytes_max} (setting namesrv.kv_value_bytes_max)")
        known = self._texts.get(namespace, {}).get(key)
        count = sum(map(len, self._table.values()))
        if known is None and count >= self._entry_count_max:
            raise KeyValueError(f"the table has {self._entry_count_max} keys: expected no more "
                                "(setting namesrv.kv_entry_count_max)")
        used = sum(_bytes(name) + sum(map(_bytes, texts.values()))
                   for name, texts in self._texts.items())
        growth = _bytes(_text(key, value)) - (_bytes(known) if known else 0) + (
            0 if namespace in self._table else _bytes(fastjson.quote(namespace)))
        if growth > 0 and used + growth > self._bytes_max:
            raise KeyValueError(f"the table has {used} bytes: expected at most {self._bytes_max} "
                                "with this value (setting namesrv.kv_bytes_max)")
        takes = known is None or growth > 0
        if takes and network:
            others_count, others_bytes = count - (known is not None), used - (
                _bytes(known) if known else 0)
            own_count, own_bytes = 1, used + growth - others_bytes
            for place, writer in self._writers.items():
                if writer == network and place != (namespace, key):
                    size = _bytes(self._texts[place[0]][place[1]])
                    own_count, others_count = own_count + 1, others_count - 1
                    own_bytes, others_bytes = own_bytes + size, others_bytes - size
            _check_share("keys", own_count, self._entry_count_max - others_count,
                         "namesrv.kv_entry_count_max")
            _check_share("bytes", own_bytes, self._bytes_max - others_bytes, "namesrv.kv_bytes_max")
        return takes

    def _set(self, namespace: str, key: str, value: str) -> None:
        self._table.setdefault(namespace, {})[key] = value
        self._texts.setdefault(namespace, {})[key] = _text(key, value)

    def _store(self) -> None:
        self._bodies = {}
        table = ",".join(f"{fastjson.quote(namespace)}:{{{','.join(texts.values())}}}"
                         for namespace, texts in self._texts.items())
        others = "".join(f",{fastjson.quote(name)}:{fastjson.dumps(value).decode()}"
                         for name, value in self._unknown.items())
        write_atomically(self._path, f'{{"{_MEMBER}":{{{table}}}{others}}}'.encode())


def _check_share(what: str, own: int, room: int, setting: str) -> None:
    if not within_half(own, room):
        raise KeyValueError(
            f"the key-values of this network would have {own} {what}: expected at most "
            f"{max(room, 0) // 2}, half of the room that others leave (setting {setting}; with "
            "acl.enable an administrator has the whole)")


def _text(key: str, value: str) -> str:
    return f"{fastjson.quote(key)}:{fastjson.quote(value)}"


def _bytes(text: str) -> int:
    """What a text takes in the file, with its comma, at most."""
    return (len(text) if text.isascii() else len(text.encode("utf-8", "replace"))) + 4


def _read(path: Path | None) -> tuple[dict[str, dict[str, str]], dict[str, Any]]:
    """(namespaces, other members of the file, to be kept). Raises KeyValueError."""
    try:
        document = read_object(path)
    except ValueError as error:
        raise KeyValueError(str(error)) from error
    table = document.get(_MEMBER, {})
    if not isinstance(table, dict) or not all(isinstance(keys, dict) for keys in table.values()):
        raise KeyValueError(f"{path}: {_MEMBER}: expected an object of objects")
    return {
        str(name): {str(key): str(value) for key, value in keys.items() if value is not None}
        for name, keys in table.items()
    }, {str(name): value for name, value in document.items() if name != _MEMBER}
