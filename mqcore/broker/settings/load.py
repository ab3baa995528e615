"""
The settings of a start, from all places that they may come from.

Later wins: the defaults (config/broker.toml shows the same values, a test compares them), the file
given with -c (ours in TOML, or a stock broker.conf), MQCORE_SECTION_KEY environment variables,
`--set section.key=value`.
"""
from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from mqcore.broker.settings.model import (
    FAILOVER_FILES,
    SECTIONS,
    AclSettings,
    BrokerSettings,
    EmbeddedNamesrvSettings,
    FailoverSettings,
    GrpcSettings,
    HttpSettings,
    LimitSettings,
    LogSettings,
    ProcessSettings,
    ReplicationSettings,
    Settings,
    SettingsError,
    StockReport,
    StoreSettings,
)
from mqcore.broker.settings.sources import (
    read_environment,
    read_file,
    read_overrides,
    read_stock_environment,
)
from mqcore.broker.settings.validation import advertised_ip, check, host_name
from mqcore.broker.settings.values import Values
from mqcore.tls.settings import TlsSettings, expanded
from mqcore.wire import home
from mqcore.wire.home import NoHomeError


def load(
    path: Path | None = None,
    environment: Mapping[str, str] | None = None,
    overrides: Sequence[str] = (),
) -> Settings:
    """
    Settings from the defaults, then `path`, then `environment`, then `overrides`.

    path         a TOML file, or a stock broker.conf (Java properties)
    environment  MQCORE_SECTION_KEY variables, and stock's NAMESRV_ADDR below the file
    overrides    "section.key=value" texts of the command line

    Empty name, advertised_ip are filled in, "~" in paths is expanded. Raises SettingsError.
    """
    environment = os.environ if environment is None else environment
    values = Values(SECTIONS)
    read_stock_environment(values, environment)
    report = read_file(values, path) if path is not None else StockReport()
    read_environment(values, environment)
    read_overrides(values, overrides)
    settings = Settings(
        broker=BrokerSettings(**values.section("broker")),
        store=StoreSettings(**values.section("store")),
        processes=ProcessSettings(**values.section("processes")),
        limits=LimitSettings(**values.section("limits")),
        namesrv=EmbeddedNamesrvSettings(**values.section("namesrv")),
        log=LogSettings(**values.section("log")),
        tls=TlsSettings(**values.section("tls")),
        acl=AclSettings(**values.section("acl")),
        replication=ReplicationSettings(**values.section("replication")),
        failover=FailoverSettings(**values.section("failover")),
        http=HttpSettings(**values.section("http")),
        grpc=GrpcSettings(**values.section("grpc")),
        file=str(path) if path is not None else "",
        stock=report,
    )
    filled = _filled(settings)
    check(settings, filled, values)
    return filled


def defaults() -> dict[str, dict[str, Any]]:
    """section -> key -> default value, as config/broker.toml must show them."""
    return {
        section: {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in ((key, getattr(kind(), key)) for key in kind.__struct_fields__)
        }
        for section, kind in SECTIONS.items()
    }


def _filled(settings: Settings) -> Settings:
    broker = replace(
        settings.broker,
        name=settings.broker.name or host_name(),
        advertised_ip=settings.broker.advertised_ip or advertised_ip(settings.broker),
    )
    store = replace(
        settings.store, path=_expanded("store.path", settings.store.path),
        **{key: tuple(_expanded(f"store.{key}", path) for path in getattr(settings.store, key))
           for key in ("commit_log_paths", "commit_log_read_only_paths")},
    )
    log = settings.log
    if log.file:
        log = replace(log, file=_expanded("log.file", log.file))
    acl = replace(settings.acl, folder=_acl_folder(settings))
    if acl.client_secret_key_file:
        acl = replace(acl, client_secret_key_file=_expanded(
            "acl.client_secret_key_file", acl.client_secret_key_file))
    failover = replace(settings.failover, **{
        key: _expanded(f"failover.{key}", path) for key in FAILOVER_FILES
        if (path := getattr(settings.failover, key))})
    try:
        tls = expanded(settings.tls)
    except NoHomeError as error:
        raise SettingsError(f"section [tls]: {error}") from error
    return replace(settings, broker=broker, store=store, log=log, acl=acl, failover=failover,
                   tls=tls)


def _acl_folder(settings: Settings) -> str:
    """A stock broker.conf lies beside its access files."""
    acl = settings.acl
    if acl.folder or not settings.file:
        try:
            return home.expanded(acl.folder or "~/.mqcore")
        except NoHomeError as error:
            if acl.folder or acl.enable:
                raise SettingsError(f"acl.folder: {error}") from error
            return ""                  # nothing is read from it
    return os.path.dirname(os.path.abspath(settings.file))


def _expanded(key: str, path: str) -> str:
    try:
        return home.expanded(path)
    except NoHomeError as error:
        raise SettingsError(f"{key}: {error}") from error
