"""
Where settings come from: TOML, a stock broker.conf, environment variables, the command line.

Each value is checked against the type and bounds of its field when it is read, so that an error can
name the place it came from. Checks that need several keys come last (`check`).
"""
from __future__ import annotations

import os
import re
import socket
import struct
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from msgspec import Meta, Struct, ValidationError, convert

from mqcore.broker import stock_conf
from mqcore.broker.delay_levels import parse_delay_levels
from mqcore.broker.settings import BrokerSettings, Settings, SettingsError, StockReport
from mqcore.store.paths import folder_name_trouble
from mqcore.wire.printable import label_trouble

PREFIX = "MQCORE_"
SHOWN_MAX = 120                    # characters of a wrong value in a message
RECORD_SLACK_BYTES = 65_536        # header, topic and properties beside the largest body
BLANK_SIZE_BYTES = 8               # the record that ends a segment (store.md 2.8)
PAGE_SIZE_BYTES = 4_096
STORE_PATH_BYTES_MAX = 3_800       # the native side has buffers of 4,096 bytes for paths
LABELS = {                         # bytes: the first two are names of topics as well
    "name": 127, "cluster": 127 - len("_REPLY_TOPIC"), "region_id": 256,
}
_TOML_SECTION = re.compile(r"\s*\[[A-Za-z_.]+\]\s*(#.*)?$")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udc7f\udd00-\udfff]")   # and half characters
HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9])?", re.ASCII)
_SIOCGIFADDR = 0x8915              # Linux: the IPv4 address of an interface


class Values:
    """The values read so far, and for each where it came from."""

    def __init__(self, sections: Mapping[str, type[Struct]]) -> None:
        self._types = {
            section: get_type_hints(kind, include_extras=True)
            for section, kind in sections.items()
        }
        self._values: dict[str, dict[str, Any]] = {section: {} for section in sections}
        self._sources: dict[str, str] = {}

    def section(self, name: str) -> dict[str, Any]:
        return self._values[name]

    def has_section(self, name: str) -> bool:
        return name in self._types

    def has_key(self, section: str, key: str) -> bool:
        return key in self._types[section]

    def source(self, key: str) -> str:
        """The place that "section.key" came from."""
        return self._sources.get(key, "default")

    def put(
        self, section: str, key: str, value: Any, source: str, *, as_text: bool, shown: str = ""
    ) -> None:
        """
        Keep a value; `as_text`: it is text that stands for a number, boolean or list.

        `shown` is the name for error messages when the source has its own (a stock key).
        """
        shown = shown or f"{section}.{key}"
        if section not in self._types:
            known = ", ".join(self._types)
            raise SettingsError(
                f"{source}: unknown section [{_line(section)}]; expected one of {known}")
        kind = self._types[section].get(key)
        if kind is None:
            known = ", ".join(self._types[section])
            raise SettingsError(f"{source}: unknown key {_line(shown)}; expected one of {known}")
        parsed = value
        if as_text and get_origin(kind) is tuple:
            parsed = [part.strip() for part in re.split(r"[;,]", value) if part.strip()]
        try:
            converted = convert(parsed, kind, strict=not as_text)
        except (ValidationError, UnicodeError):
            raise SettingsError(wrong(source, shown, value, expected(kind))) from None
        for text in converted if isinstance(converted, tuple) else (converted,):
            if isinstance(text, str) and _CONTROL.search(text):
                raise SettingsError(wrong(source, shown, value,
                                          "text of one line, without control characters"))
        self._values[section][key] = converted
        self._sources[f"{section}.{key}"] = source


def wrong(source: str, key: str, value: Any, wanted: str) -> str:
    """The one shape of a message about a bad value."""
    return f"{source}: {key} = {_shown(value)}: expected {wanted}"


def expected(kind: Any) -> str:
    """What a field takes, in words."""
    if get_origin(kind) is Annotated:
        base, *marks = get_args(kind)
        for meta in marks:
            if not isinstance(meta, Meta):
                continue
            if base is int and meta.ge is not None:
                if meta.le is None:
                    return f"a whole number of at least {meta.ge}"
                return f"a whole number from {meta.ge} to {meta.le}"
            if base is str:
                least, most = meta.min_length or 0, meta.max_length
                return f"text of at least {least}" + (
                    f" and at most {most} characters" if most else " characters"
                )
        return expected(base)
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(f'"{choice}"' for choice in get_args(kind))
    if get_origin(kind) is tuple:
        item = get_args(kind)[0]
        return "a list of texts" if item is str else f"a list, each item {expected(item)}"
    return {bool: "true or false", int: "a whole number", str: "text"}.get(kind, str(kind))


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
        raise SettingsError(f"{path}: not a TOML file: {_line(error)}") from None
    for section, entries in document.items():
        if not isinstance(entries, dict):
            raise SettingsError(
                f"{path}: key {_line(section)} stands outside a section; expected e.g. [broker]"
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
            raise SettingsError(f"--set {_line(text)}: expected section.key=value")
        values.put(section, key, value.strip(), f"--set {_line(text)}", as_text=True)


def check(settings: Settings, filled: Settings, values: Values) -> None:
    """
    The rules that need more than one key, or more than a range. Raises SettingsError.

    filled  the same with nothing left empty and whole paths
    """

    def refuse(key: str, wanted: str) -> None:
        section, _, name = key.partition(".")
        value = getattr(getattr(settings, section), name)
        raise SettingsError(wrong(values.source(key), key, value, wanted))

    broker, store = settings.broker, settings.store
    for name, bytes_max in LABELS.items():
        trouble = label_trouble(getattr(broker, name), bytes_max)
        if trouble is not None:
            refuse(f"broker.{name}", trouble)
    if folder_name_trouble(broker.trace_topic_name) is not None:
        refuse("broker.trace_topic_name", "a name that a folder can have")
    if broker.permission not in (2, 4, 6):
        refuse("broker.permission", "2 (write), 4 (read) or 6 (both)")
    if broker.advertised_ip and not _is_ipv4(broker.advertised_ip):
        refuse("broker.advertised_ip", "an IPv4 address, or nothing to find one")
    if broker.advertised_host and not HOST_NAME.fullmatch(broker.advertised_host):
        refuse("broker.advertised_host", "a host name or an IPv4 address")
    if broker.fast_port_enable and broker.listen_port < 3:
        refuse("broker.listen_port", "3 or more, since the fast port is 2 below it")
    if settings.namesrv.embedded and settings.namesrv.listen_port in (
        broker.listen_port, settings.fast_port,
    ):
        refuse("namesrv.listen_port", "a port that the broker does not use itself")
    for addr in broker.namesrv_addrs:
        host, _, port = addr.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            refuse("broker.namesrv_addrs", f"host:port in each entry, not {_shown(addr)}")
    try:
        parse_delay_levels(broker.message_delay_levels)
    except ValueError as error:
        refuse("broker.message_delay_levels", str(error))
    largest = store.message_size_max_bytes + RECORD_SLACK_BYTES + BLANK_SIZE_BYTES
    if store.segment_size_bytes <= largest:
        refuse(
            "store.segment_size_bytes",
            f"more than {largest} (store.message_size_max_bytes + 64 KiB + 8)",
        )
    if store.segment_size_bytes % PAGE_SIZE_BYTES:
        refuse("store.segment_size_bytes", f"a multiple of {PAGE_SIZE_BYTES}")
    for key in ("commit_log_paths", "commit_log_read_only_paths"):
        paths = getattr(store, key)
        if any(not path or "\n" in path for path in paths) or len(set(paths)) < len(paths):
            refuse(f"store.{key}", "different paths, none of them empty or of several lines")
    root_bytes = len(os.fsencode(filled.store.path))
    if root_bytes > STORE_PATH_BYTES_MAX:
        refuse("store.path", f"a path of at most {STORE_PATH_BYTES_MAX} bytes, not {root_bytes}: "
               "the names of queues and files follow")
    try:
        filled.log_folders.text()
    except ValueError as error:
        refuse("store.commit_log_paths", str(error))


def host_name() -> str:
    """The name of this machine, stock's default broker name."""
    return socket.gethostname() or "DEFAULT_BROKER"


def advertised_ip(broker: BrokerSettings) -> str:
    """
    The IPv4 address that records carry when none is set: that of `advertised_host`, else the first
    one of this machine. Raises SettingsError for a host that has none.
    """
    if not broker.advertised_host:
        return first_address()
    if not HOST_NAME.fullmatch(broker.advertised_host):
        return ""                      # refused by its own rule
    try:
        return socket.gethostbyname(broker.advertised_host)
    except (OSError, UnicodeError) as error:
        raise SettingsError(
            f'broker.advertised_host = "{broker.advertised_host}": has no IPv4 address ({error}); '
            "set broker.advertised_ip too, or mend the name") from None


def first_address() -> str:
    """The first IPv4 address that is not of the loopback interface, else 127.0.0.1 (brokerIP1)."""
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                reply = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
            except OSError:        # this interface has no IPv4 address
                continue
            address = socket.inet_ntoa(reply[20:24])
            if not address.startswith("127."):
                return address
    return "127.0.0.1"


def _is_ipv4(text: str) -> bool:
    try:
        socket.inet_pton(socket.AF_INET, text)
    except OSError:
        return False
    return True


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{_line(value)}"'
    if isinstance(value, tuple):
        return _line(list(value))
    return _line(value)


def _line(value: Any) -> str:
    """Text for a message: of one line, printable, and not too long."""
    try:
        text = str(value)
    except ValueError:                   # Python does not print numbers of thousands of digits
        return "a number without an end"
    shown = "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text[:SHOWN_MAX])
    return shown if len(text) <= SHOWN_MAX else f"{shown}... ({len(text)} characters)"
