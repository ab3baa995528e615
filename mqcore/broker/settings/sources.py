"""Where settings come from: TOML, a stock broker.conf, environment variables, the command line."""
from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from mqcore.broker.settings import stock_conf
from mqcore.broker.settings.model import SettingsError, StockReport
from mqcore.broker.settings.values import Values
from mqcore.wire.expected import one_line

PREFIX = "MQCORE_"
_TOML_SECTION = re.compile(r"\s*\[[A-Za-z_.]+\]\s*(#.*)?$")


def read_file(values: Values, path: Path) -> StockReport:
    """Read a settings file, ours or a stock one; returns what of a stock file has no effect."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}") from None
    if is_stock(path, raw):
        return stock_conf.read(values, str(path), raw)
    try:
        document = tomllib.loads(raw.decode("utf-8"))
    except RecursionError:
        raise SettingsError(f"{path}: not a TOML file of ours: its lists are too deep") from None
    except ValueError as error:          # also of its encoding, and of numbers without an end
        raise SettingsError(f"{path}: not a TOML file: {one_line(error)}") from None
    for section, entries in document.items():
        if not isinstance(entries, dict):
            raise SettingsError(
                f"{path}: key {one_line(section)} stands outside a section; expected e.g. [broker]"
            )
        if not values.has_section(section):
            values.put(section, "", None, str(path), as_text=False)
        for key, value in entries.items():
            values.put(section, key, value, str(path), as_text=False)
    return StockReport()


def is_stock(path: Path, raw: bytes) -> bool:
    """True when the file is Java properties: a section line says TOML, then the name decides."""
    text = raw.decode("latin-1")
    if any(_TOML_SECTION.match(line) for line in text.splitlines()):
        return False
    return path.suffix != ".toml"


def read_stock_environment(values: Values, environment: Mapping[str, str]) -> None:
    """NAMESRV_ADDR is stock's default for namesrvAddr: any file or option wins over it."""
    if environment.get("NAMESRV_ADDR"):
        values.put(
            "broker", "namesrv_addrs", environment["NAMESRV_ADDR"], "environment NAMESRV_ADDR",
            as_text=True,
        )


def read_environment(values: Values, environment: Mapping[str, str]) -> None:
    """MQCORE_STORE_FLUSH=sync and the like; names outside the known sections are not ours."""
    for name in sorted(environment):
        if not name.startswith(PREFIX):
            continue
        section, _, key = name[len(PREFIX):].lower().partition("_")
        if values.has_section(section) and key:
            values.put(
                section, key, environment[name], f"environment {name}", as_text=True
            )


def read_overrides(values: Values, overrides: Sequence[str]) -> None:
    """`section.key=value` texts, in order."""
    for text in overrides:
        name, equals, value = text.partition("=")
        section, dot, key = name.strip().partition(".")
        if not equals or not dot or not key:
            raise SettingsError(f"--set {one_line(text)}: expected section.key=value")
        values.put(section, key, value.strip(), f"--set {one_line(text)}", as_text=True)
