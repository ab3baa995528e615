"""
Every setting of the name server: name, type, bounds, default.

config/namesrv.toml shows the same values; a test compares them. A stock namesrv.conf (Java
properties) is read too: keys that mean something here are mapped, the others are reported.
"""
from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, get_type_hints

from msgspec import Meta, Struct, ValidationError, convert
from msgspec.structs import asdict, replace

from mqcore.tls import stock as stock_tls
from mqcore.tls.settings import SECRETS, TlsServerSettings, expanded
from mqcore.tls.settings import trouble as tls_trouble
from mqcore.wire import home, java_properties
from mqcore.wire.expected import expected, is_address, known_names, one_line, wrong
from mqcore.wire.home import NoHomeError

MIB = 1 << 20
SECTIONS = ("namesrv", "tls", "acl")
IDLE_DIGITS_MAX = 9
Positive = Annotated[int, Meta(ge=1, le=(1 << 31) - 1)]

# Honoured at once by a running name server, when its settings are read again.
LIVE = frozenset(("order_message_enable", "product_env_name", "broker_timeout_ms",
                  "scan_interval_ms", "address_connection_count"))

_STOCK_KEYS = {
    "listenPort": "listen_port",
    "kvConfigPath": "kv_config_path",
    "orderMessageEnable": "order_message_enable",
    "productEnvName": "product_env_name",
}
_STOCK_IDLE = "serverChannelMaxIdleTimeSeconds"
_STOCK_WITHOUT_EFFECT = frozenset({
    "rocketmqHome", "configStorePath", "clusterTest", "configBlackList", "serverWorkerThreads",
    "serverCallbackExecutorThreads", "serverSelectorThreads", "serverOnewaySemaphoreValue",
    "serverAsyncSemaphoreValue", "serverSocketSndBufSize", "serverSocketRcvBufSize",
    "writeBufferHighWaterMark", "writeBufferLowWaterMark", "serverSocketBacklog",
    "serverPooledByteBufAllocatorEnable", "useEpollNativeSelector",
})
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_TOML_SECTION = re.compile(r"^\s*\[", re.MULTILINE)


class NamesrvSettingsError(ValueError):
    """A setting is wrong; the text names the file, the key, the value and what was expected."""


class NamesrvAclSettings(Struct, frozen=True, kw_only=True):
    """Section [acl]: who may change what the name server knows."""

    enable: bool = False
    folder: str = ""                                  # "" = that of the settings file, or ~/.mqcore
    routes: Literal["free", "checked"] = "free"
    audit: Literal["text", "json", "off"] = "text"
    audit_lines_per_second: Annotated[int, Meta(ge=1, le=100_000)] = 100


class NamesrvSettings(Struct, frozen=True, kw_only=True):
    """Section [namesrv]; as `tls` and `acl` the sections of these names."""

    listen_host: Annotated[str, Meta(min_length=1)] = "127.0.0.1"
    listen_port: Annotated[int, Meta(ge=0, le=65535)] = 9876
    http_listen: Annotated[str, Meta(max_length=259)] = ""                    # "": nowhere
    kv_config_path: Annotated[str, Meta(min_length=1)] = "~/.mqcore/namesrv/kvConfig.json"
    runtime_config_path: Annotated[str, Meta(min_length=1)] = "~/.mqcore/namesrv/runtime.json"
    order_message_enable: bool = False
    product_env_name: Annotated[str, Meta(max_length=255)] = "center"
    broker_timeout_ms: Positive = 120_000
    scan_interval_ms: Annotated[int, Meta(ge=10, le=3_600_000)] = 10_000
    connection_idle_ms: Positive = 120_000
    connection_count_max: Annotated[int, Meta(ge=1, le=1_000_000)] = 10_000
    address_connection_count: Annotated[int, Meta(ge=0, le=1_000_000)] = 0    # 0: no limit
    connection_output_bytes_max: Annotated[int, Meta(ge=65_536, le=1 << 30)] = MIB
    frame_size_max_bytes: Annotated[int, Meta(ge=65_536, le=16 * MIB)] = 16 * MIB
    connection_memory_bytes: Annotated[int, Meta(ge=64 * MIB, le=1 << 40)] = 256 * MIB
    topic_count_max: Annotated[int, Meta(ge=1, le=1_000_000)] = 100_000
    broker_count_max: Annotated[int, Meta(ge=1, le=1_000_000)] = 10_000
    route_count_max: Annotated[int, Meta(ge=1, le=100_000_000)] = 1_000_000
    kv_entry_count_max: Annotated[int, Meta(ge=1, le=1_000_000)] = 100_000
    kv_value_bytes_max: Annotated[int, Meta(ge=1, le=4 * MIB)] = 65_536
    kv_bytes_max: Annotated[int, Meta(ge=65_536, le=12 * MIB)] = 4 * MIB
    tls: TlsServerSettings = TlsServerSettings()
    acl: NamesrvAclSettings = NamesrvAclSettings()

    @property
    def kv_file(self) -> Path | None:
        """None: in the home folder, and there is none. Then nothing is kept."""
        return _in_home(self.kv_config_path)

    @property
    def runtime_file(self) -> Path | None:
        """As `kv_file`."""
        return _in_home(self.runtime_config_path)


def _in_home(path: str) -> Path | None:
    try:
        return Path(home.expanded(path))
    except NoHomeError:
        return None


def load(path: Path | None = None) -> tuple[NamesrvSettings, list[str]]:
    """Settings from a file, TOML or a stock namesrv.conf, over the defaults.

    Returns them and the stock keys that have no effect here. Raises NamesrvSettingsError.
    """
    if path is None:
        return NamesrvSettings(), []
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NamesrvSettingsError(f"{path}: cannot be read: {error}") from error
    if path.suffix == ".toml" or _TOML_SECTION.search(text):
        return _from_toml(text, str(path)), []
    return _from_stock(text, str(path))


def _from_toml(text: str, source: str) -> NamesrvSettings:
    try:
        document = tomllib.loads(text)
    except RecursionError:
        raise NamesrvSettingsError(f"{source}: not TOML of ours: its lists are too deep") from None
    except ValueError as error:          # also numbers of thousands of digits
        raise NamesrvSettingsError(f"{source}: not TOML: {error}") from error
    for section in document:
        if section not in SECTIONS:
            raise NamesrvSettingsError(f"{source}: {one_line(section)}: expected only the sections "
                                       "[namesrv], [tls] and [acl]")
    for section in SECTIONS:
        if not isinstance(document.get(section, {}), dict):
            raise NamesrvSettingsError(f"{source}: {section}: expected a section")
    return _checked(document.get("namesrv", {}), document.get("tls", {}), source,
                    access=document.get("acl", {}))


def _checked(
    values: Mapping[str, Any], secured: Mapping[str, Any], source: str, *,
    access: Mapping[str, Any] = MappingProxyType({}), strict: bool = True,
) -> NamesrvSettings:
    fields = _section("namesrv", NamesrvSettings, values, source, strict)
    tls = TlsServerSettings(**_section("tls", TlsServerSettings, secured, source, strict))
    trouble = tls_trouble(tls)
    if trouble is not None:
        key, wanted = trouble
        raise NamesrvSettingsError(f"{source}: tls.{key}: expected {wanted}")
    listen = fields.get("http_listen", "")
    if listen and not is_address(listen):
        raise NamesrvSettingsError(wrong(source, "namesrv.http_listen", listen, "host:port"))
    acl = NamesrvAclSettings(**_section("acl", NamesrvAclSettings, access, source, strict))
    folder = acl.folder or (os.path.dirname(os.path.abspath(source)) if acl.enable else "")
    if folder:
        acl = replace(acl, folder=_whole(folder, source, "acl.folder"))
    try:
        tls = expanded(tls)
    except NoHomeError as error:
        raise NamesrvSettingsError(f"{source}: section [tls]: {error}") from error
    return NamesrvSettings(**fields, tls=tls, acl=acl)


def _whole(path: str, source: str, key: str) -> str:
    try:
        return home.expanded(path)
    except NoHomeError as error:
        raise NamesrvSettingsError(f"{source}: {key}: {error}") from error


def _section(
    section: str, kind: type[Struct], values: Mapping[str, Any], source: str, strict: bool,
) -> dict[str, Any]:
    types = {key: one for key, one in get_type_hints(kind, include_extras=True).items()
             if one not in (TlsServerSettings, NamesrvAclSettings)}
    fields: dict[str, Any] = {}
    for key, value in values.items():
        if key not in types:
            raise NamesrvSettingsError(f"{source}: unknown key {section}.{one_line(key)}; "
                                       f"{known_names(key, types)}")
        where, wanted = f"{section}.{key}", "text of one line, without control characters"
        try:
            fields[key] = convert(value, types[key], strict=strict)
        except (ValidationError, UnicodeError):
            wanted = expected(types[key])
        else:
            if not isinstance(fields[key], str) or not _CONTROL.search(fields[key]):
                continue
        if section == "tls" and key in SECRETS:
            raise NamesrvSettingsError(f"{source}: {where}: expected {wanted}")
        raise NamesrvSettingsError(wrong(source, where, value, wanted))
    return fields


def parse_properties(text: str) -> dict[str, str]:
    """`key=value` lines; blank lines and lines that start with # or ! are left out.

    Raises ValueError, naming the line, for one without a separator.
    """
    values = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        key, found, value = stripped.partition("=")
        if not found or not key.strip():
            raise ValueError(f"line {number}: expected key=value, found {stripped[:80]!r}")
        values[key.strip()] = value.strip()
    return values


def _from_stock(text: str, source: str) -> tuple[NamesrvSettings, list[str]]:
    try:
        stock = parse_properties(text)
    except ValueError as error:
        raise NamesrvSettingsError(f"{source}: {error}") from error
    mapped: dict[str, Any] = {"listen_host": "0.0.0.0"}         # as stock
    ignored = []
    for key, value in stock.items():
        if key == _STOCK_IDLE:
            if not value.isascii() or not value.isdigit() or len(value) > IDLE_DIGITS_MAX:
                raise NamesrvSettingsError(wrong(source, key, value, "seconds"))
            mapped["connection_idle_ms"] = int(value) * 1000
        elif key in _STOCK_KEYS:
            mapped[_STOCK_KEYS[key]] = value
        elif not stock_tls.is_ours(key):
            ignored.append(key if key in _STOCK_WITHOUT_EFFECT else f"{key} (unknown)")
    try:
        found = stock_tls.settings(stock, source, java_properties.parse_properties)
    except stock_tls.StockTlsError as error:
        raise NamesrvSettingsError(f"{source}: {error}") from error
    secured = {name: text for name, text, *_ in found
               if name in TlsServerSettings.__struct_fields__}
    return _checked(mapped, secured, source, strict=False), ignored


def live_part(running: NamesrvSettings, wanted: NamesrvSettings) -> NamesrvSettings:
    """`running` with what is honoured at once of `wanted`."""
    return replace(running, **{key: getattr(wanted, key) for key in LIVE})


def stock_view(settings: NamesrvSettings) -> dict[str, str]:
    """The settings as GET_NAMESRV_CONFIG shows them: stock names where there is one."""
    names = {ours: stock for stock, ours in _STOCK_KEYS.items()}
    shown = {}
    for key, value in asdict(settings).items():
        if key in ("tls", "acl"):        # nobody's business
            continue
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if key == "connection_idle_ms":
            shown[_STOCK_IDLE] = str(value // 1000)
        else:
            shown[names.get(key, key)] = text
    return shown
