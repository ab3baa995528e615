"""The few settings of a name server that UPDATE_NAMESRV_CONFIG (318) may change.

Only what is in SETTABLE: paths, addresses and limits are the business of whoever starts the
process, not of whoever reaches its port.
"""
from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from mqcore.namesrv.files import read_object, write_atomically
from mqcore.namesrv.settings import NamesrvSettings, parse_properties, stock_view
from mqcore.wire import fastjson

SETTABLE = {"orderMessageEnable": "order_message_enable", "productEnvName": "product_env_name"}
_STOCK_BLACK_LIST = ("configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome")


class NotSettable(ValueError):
    """The request names a key that may not be changed this way; nothing was changed."""


class RuntimeConfig:
    """The settings in force: those given at start, with changes from 318 on top."""

    def __init__(self, settings: NamesrvSettings) -> None:
        """Loads earlier changes; raises ValueError, naming the file, when it holds others."""
        self._path: Path | None = settings.runtime_file
        changes = read_object(self._path)
        if not changes.keys() <= SETTABLE.keys():
            raise ValueError(f"{self._path}: expected an object with keys of {sorted(SETTABLE)}")
        self._changes = {key: str(value) for key, value in changes.items()}
        try:
            self.say(settings)
        except ValueError as error:
            raise ValueError(f"{self._path}: {error}") from error

    def say(self, settings: NamesrvSettings) -> None:
        """The settings file says these from now on; changes from 318 stay over it."""
        self.settings = _changed(settings, self._changes)

    def text(self) -> str:
        """`key=value` lines for 319."""
        return "".join(f"{key}={value}\n" for key, value in stock_view(self.settings).items())

    def settable(self) -> dict[str, object]:
        """The values that 318 may change, by stock's keys."""
        view = stock_view(self.settings)
        return {key: view[key] for key in SETTABLE}

    def update(self, body: bytes) -> None:
        """Apply the properties text of 318. Keys that do not exist are left out, as in stock.

        Raises NotSettable, ValueError for a bad line or value, OSError when disk refuses.
        """
        asked = parse_properties(body.decode("utf-8"))
        known = stock_view(self.settings).keys() | set(NamesrvSettings.__struct_fields__)
        for key in asked:
            if key in _STOCK_BLACK_LIST or (key in known and key not in SETTABLE):
                raise NotSettable(f"{key} cannot be changed while the name server runs")
        changes = {key: value for key, value in asked.items() if key in SETTABLE}
        if not changes:
            return
        settings = _changed(self.settings, changes)
        changes = self._changes | changes
        write_atomically(self._path, fastjson.dumps(changes))
        self.settings, self._changes = settings, changes


def _changed(settings: NamesrvSettings, changes: dict[str, str]) -> NamesrvSettings:
    fields: dict[str, str | bool] = {}
    for key, value in changes.items():
        if key == "orderMessageEnable":
            if value.lower() not in ("true", "false"):
                raise ValueError(f"{key}={value}: expected true or false")
            fields[SETTABLE[key]] = value.lower() == "true"
        else:
            if len(value) > 255:
                raise ValueError(f"{key}: expected at most 255 characters")
            fields[SETTABLE[key]] = value
    return replace(settings, **fields)
