"""
The settings of a running broker: shown, and changed as far as that can be done without a restart.

broker.md 10.5, remoting.md 4.4 (RocketMQ 4.9.8: AdminBrokerProcessor, Configuration). Keys are
those of a stock broker.conf where there is one, else `section.key`; both are taken. Only what the
coordinator alone looks at can change: the other processes read their settings at their start. A
change is kept before it is answered, and holds for later starts (mqcore.broker.changed_settings).
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mqcore.broker.changed_settings import LIVE, text, with_values
from mqcore.broker.config_table import next_version
from mqcore.broker.core import Core
from mqcore.broker.requests import Answer, Request, refused
from mqcore.broker.settings import SECTIONS, Settings, SettingsError
from mqcore.broker.settings_sources import Values
from mqcore.broker.stock_conf import (
    CONVERTED,
    FLUSH_KEYS,
    QUEUE_ENTRY_SIZE,
    REFUSED,
    RENAMED,
    WITHOUT_EFFECT,
    parse_properties,
)
from mqcore.wire import fastjson
from mqcore.wire.codes import ResponseCode

FIXED = frozenset(("brokerConfigPath", "rocketmqHome", "configBlackList"))
SOURCE = "request"
# What mqcore does not have, in the words of tools that ask for it (mqadmin exportConfigs).
ABSENT = {"filterServerNums": "0", "slaveReadEnable": "false", "useTLS": "false"}

# stock key -> our value as stock writes it, for those that are not taken as they are
_STOCK_FORMS: dict[str, Callable[[Any], str]] = {
    "registerNameServerPeriod": str,
    "mappedFileSizeConsumeQueue": lambda entries: str(entries * QUEUE_ENTRY_SIZE),
    "deleteWhen": lambda hours: ";".join(f"{hour:02d}" for hour in hours),
    "diskMaxUsedSpaceRatio": str,
    "serverChannelMaxIdleTimeSeconds": lambda idle_ms: str(idle_ms // 1000),
}


def get_config(core: Core, request: Request) -> Answer:
    """GET_BROKER_CONFIG (26): a line for each key; the header says the version of the settings."""
    lines = "".join(f"{key}={value}\n" for key, value in sorted(shown(core.settings).items()))
    version = fastjson.dumps(core.config_version.as_json()).decode()
    return Answer(ResponseCode.SUCCESS, ext={"version": version}, body=lines.encode())


def update_config(core: Core, request: Request) -> Answer:
    """UPDATE_BROKER_CONFIG (25): all keys of the body or none."""
    entries = parse_properties(request.command.body)
    values = Values(SECTIONS)
    for key, value in entries.items():
        if key in FIXED:
            return refused(ResponseCode.NO_PERMISSION, f"{key} cannot be changed")
        target = _target(key)
        trouble = _trouble(key, target)
        if trouble:
            return refused(ResponseCode.SYSTEM_ERROR, trouble)
        section, _, name = target.partition(".")
        try:
            values.put(section, name, value, SOURCE, as_text=True, shown=key)
        except SettingsError as error:
            return refused(ResponseCode.SYSTEM_ERROR, str(error))
    try:
        settings = with_values(core.settings, values)
    except SettingsError as error:
        return refused(ResponseCode.SYSTEM_ERROR, str(error))
    if entries:
        try:
            core.changes.save(settings)
        except OSError as error:
            return refused(ResponseCode.SYSTEM_ERROR, f"the change cannot be kept: {error}")
        _apply(core, settings, request.now_ms)
    return Answer(ResponseCode.SUCCESS)


def shown(settings: Settings) -> dict[str, str]:
    """Every setting, under its stock name where it has one."""
    names = {target: key for key, target in RENAMED.items()}
    names |= {target: key for key, (target, _) in CONVERTED.items() if key in _STOCK_FORMS}
    table = ABSENT | {key: harmless for key, (harmless, _) in REFUSED.items()}
    for section in SECTIONS:
        struct = getattr(settings, section)
        for field in struct.__struct_fields__:
            key = names.get(f"{section}.{field}", f"{section}.{field}")
            table[key] = _STOCK_FORMS.get(key, text)(getattr(struct, field))
    flush = table.pop("store.flush")
    flush_type, pool = FLUSH_KEYS
    table[flush_type] = "SYNC_FLUSH" if flush == "sync" else "ASYNC_FLUSH"
    table[pool] = text(flush == "transient-pool")
    return table


def _target(key: str) -> str:
    """The `section.key` that a key stands for; itself when it stands for none."""
    if key in CONVERTED:
        return CONVERTED[key][0]
    return "store.flush" if key in FLUSH_KEYS else RENAMED.get(key, key)


def _trouble(key: str, target: str) -> str:
    """Why a key cannot be changed now; "" when it can."""
    if target in LIVE:
        return ""
    section, _, name = target.partition(".")
    if section in SECTIONS and name in SECTIONS[section].__struct_fields__:
        return f"{key} is read at a start only: set {target} in the settings file and restart"
    if key in WITHOUT_EFFECT or key in REFUSED:
        return f"{key} has no effect on this broker"
    return f"{key} is not a setting of this broker"


def _apply(core: Core, settings: Settings, now_ms: int) -> None:
    permission = core.settings.broker.permission
    core.reconfigure(settings, next_version(core.config_version, now_ms))
    if settings.broker.permission != permission:
        core.ports.tables.set_permission(readable=core.readable, writable=core.writable)
        core.topics.publish_again(now_ms)
        core.groups.publish_again()
