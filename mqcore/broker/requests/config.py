"""
The settings of a running broker: shown, and changed as far as that can be done without a restart.

broker.md 10.5, remoting.md 4.4 (RocketMQ 4.9.8: AdminBrokerProcessor, Configuration). Keys are
those of a stock broker.conf where there is one, else `section.key`; both are taken. What can change
at once is changed in every process (mqcore.broker.settings.live), other keys of stock's are kept
for the next start. A change is kept before it is answered (mqcore.broker.settings.changed).
"""
from __future__ import annotations

import os
from collections.abc import Callable, Generator
from typing import Any

from mqcore.broker.core import Core
from mqcore.broker.request import Answer, OutcomeJob, Request, answers, refused
from mqcore.broker.settings.live import (
    AT_START,
    FILE_SIZES,
    LIVE,
    PATHS,
    ROOM,
    live_part,
    text,
    value_of,
    with_values,
)
from mqcore.broker.settings.model import SECTIONS, Settings, SettingsError
from mqcore.broker.settings.stock_conf import (
    ADDRESS_KEY,
    CONVERTED,
    FLUSH_KEYS,
    POOL_KEY,
    QUEUE_ENTRY_SIZE,
    REFUSED,
    RENAMED,
    SEGMENT_KEY,
    WITHOUT_EFFECT,
    address_target,
    parse_properties,
    put_flush,
    put_pool,
    stock_role,
)
from mqcore.broker.settings.values import Values
from mqcore.broker.tables.config_table import next_version
from mqcore.tls.settings import SECRETS
from mqcore.wire import fastjson
from mqcore.wire.codes import RequestCode, ResponseCode

FIXED = frozenset(("brokerConfigPath", "rocketmqHome", "configBlackList"))
STOCK_PATHS = frozenset(("storePathDLedgerCommitLog", "messageStorePlugIn"))
SOURCE = "request"
VALUE_LENGTH_MAX = 4_096
BODY_BYTES_MAX = 64 << 10            # several times all settings there are
# Settings of stock that mqcore does not have and tools read: mqadmin exportConfigs; exportMetrics
# takes the number of processors from the second one.
ABSENT = {"filterServerNums": "0",
          "clientCallbackExecutorThreads": str(len(os.sched_getaffinity(0)))}

# stock key -> our value as stock writes it, for those that are not taken as they are
_STOCK_FORMS: dict[str, Callable[[Any], str]] = {
    "registerNameServerPeriod": str,
    "mappedFileSizeConsumeQueue": lambda entries: str(entries * QUEUE_ENTRY_SIZE),
    "deleteWhen": lambda hours: ";".join(f"{hour:02d}" for hour in hours),
    "diskMaxUsedSpaceRatio": str,
    "serverChannelMaxIdleTimeSeconds": lambda idle_ms: str(idle_ms // 1000),
    "brokerRole": stock_role,
}


@answers(RequestCode.GET_BROKER_CONFIG)
def get_config(core: Core, request: Request) -> Answer:
    """
    GET_BROKER_CONFIG (26): a line for each key; the header says the version of the settings. What a
    request has changed for the next start is shown as it will be, as stock does.
    """
    table = shown(core.changes.wanted)
    lines = "".join(f"{key}={value}\n" for key, value in sorted(table.items()))
    version = fastjson.dumps(core.config_version.as_json()).decode()
    return Answer(ResponseCode.SUCCESS, ext={"version": version}, body=lines.encode())


@answers(RequestCode.UPDATE_BROKER_CONFIG)
def update_config(core: Core, request: Request) -> OutcomeJob:
    """
    UPDATE_BROKER_CONFIG (25): all keys of the body or none. What is not honoured at once is kept
    for the next start, and the remark says so.
    """
    size = len(request.command.body)
    if size > BODY_BYTES_MAX:
        return refused(ResponseCode.SYSTEM_ERROR,
                       f"body: {size} bytes, expected settings of at most {BODY_BYTES_MAX}")
    entries = parse_properties(request.command.body)
    for key, value in entries.items():
        trouble = _trouble(key, value)
        if trouble is not None:
            return trouble
    try:
        wanted = _wanted(core.changes.wanted, entries)
        settings = live_part(core.settings, wanted, core.started)
    except SettingsError as error:
        return refused(ResponseCode.SYSTEM_ERROR, str(error))
    if entries:
        before = shown(core.changes.wanted)
        try:
            core.changes.save(wanted)
        except OSError as error:
            return refused(ResponseCode.SYSTEM_ERROR, f"the change cannot be kept: {error}")
        core.access.changed(request, before, shown(wanted))
        yield from _apply(core, settings, request.now_ms)
    return Answer(ResponseCode.SUCCESS, _remark(entries, settings, wanted))


def take_said(core: Core, told: bytes, now_ms: int) -> Generator[None, None, None]:
    """The settings file was read again (SIGHUP); told: its lines, as shared memory holds them."""
    settings = core.changes.say(told, core.settings, core.started)
    if settings is not None:
        yield from _apply(core, settings, now_ms)


def shown(settings: Settings) -> dict[str, str]:
    """Every setting but secrets, under its stock name where it has one."""
    names = {target: key for key, target in RENAMED.items()}
    names |= {target: key for key, (target, _) in CONVERTED.items() if key in _STOCK_FORMS}
    table = ABSENT | {key: harmless for key, (harmless, _) in REFUSED.items()}
    table["useTLS"] = text(settings.tls.serves)
    for section in SECTIONS:
        struct = getattr(settings, section)
        for field in struct.__struct_fields__:
            if section == "tls" and field in SECRETS:
                continue
            key = names.get(f"{section}.{field}", f"{section}.{field}")
            table[key] = _STOCK_FORMS.get(key, text)(getattr(struct, field))
    ip, host = table.pop("broker.advertised_ip"), table.pop("broker.advertised_host")
    table[ADDRESS_KEY] = host or ip
    flush = table.pop("store.flush")
    flush_type, pool = FLUSH_KEYS
    table[flush_type] = "SYNC_FLUSH" if flush == "sync" else "ASYNC_FLUSH"
    table[pool] = text(flush == "transient-pool")
    return table


def _target(key: str) -> str:
    """The `section.key` that a key stands for; itself when it stands for none."""
    if key in CONVERTED:
        return CONVERTED[key][0]
    if key == POOL_KEY:
        return "store.pool_bytes"
    if key == ADDRESS_KEY:
        return "broker.advertised_host"
    return "store.flush" if key in FLUSH_KEYS else RENAMED.get(key, key)


def _trouble(key: str, value: str) -> Answer | None:
    """Why a key cannot be changed by request; None when it can, or has no effect here."""
    target = _target(key)
    if key in FIXED:
        return refused(ResponseCode.NO_PERMISSION, f"{key} cannot be changed")
    if target in PATHS or key in STOCK_PATHS:
        return refused(ResponseCode.NO_PERMISSION, f"{key} is a path: set it in the settings file")
    if target in FILE_SIZES:
        return refused(ResponseCode.NO_PERMISSION,
                       f"{key} is the size of files that this store has: it cannot be changed")
    if len(value) > VALUE_LENGTH_MAX:
        return refused(ResponseCode.SYSTEM_ERROR,
                       f"{key}: {len(value)} characters, expected at most {VALUE_LENGTH_MAX}")
    if key in REFUSED:
        harmless, reason = REFUSED[key]
        if value.lower() != harmless.lower():
            return refused(ResponseCode.SYSTEM_ERROR,
                           f'{key} = "{value}": {reason}; expected "{harmless}"')
        return None
    if target in LIVE or target in AT_START or key in WITHOUT_EFFECT:
        return None
    section, _, name = target.partition(".")
    if section in SECTIONS and name in SECTIONS[section].__struct_fields__:
        trouble = f"{key} is read at a start only: set it in the settings file and restart"
    else:
        trouble = f"{key[:VALUE_LENGTH_MAX]} is not a setting of this broker"
    return refused(ResponseCode.SYSTEM_ERROR, trouble)


def _wanted(before: Settings, entries: dict[str, str]) -> Settings:
    """`before` with the values of a request, each checked as in a file. Raises SettingsError."""
    values = Values(SECTIONS)
    for key, value in entries.items():
        if key in CONVERTED:
            target, converter = CONVERTED[key]
            value = str(converter(SOURCE, key, value))
        elif key == ADDRESS_KEY:
            target = address_target(value)
            values.put("broker", "advertised_host", "", SOURCE, as_text=True)    # only the IP
        else:
            target = _target(key)
        if key in FLUSH_KEYS or key == POOL_KEY or not (target in LIVE or target in AT_START):
            continue
        section, _, name = target.partition(".")
        values.put(section, name, value, SOURCE, as_text=True, shown=key)
    known = shown(before)
    if any(key in entries for key in FLUSH_KEYS):
        put_flush(values, {**{key: known[key] for key in FLUSH_KEYS}, **entries}, SOURCE)
    if POOL_KEY in entries:
        put_pool(values, {SEGMENT_KEY: known[SEGMENT_KEY], POOL_KEY: entries[POOL_KEY]}, SOURCE)
    return with_values(before, values)


def _remark(entries: dict[str, str], settings: Settings, wanted: Settings) -> str | None:
    """The keys of a change that take effect later; settings: the present ones."""
    beyond = {key for key in ROOM if value_of(settings, key) != value_of(wanted, key)}
    later = [key for key in entries if _target(key) in AT_START | beyond]
    nothing = [key for key in entries if key in WITHOUT_EFFECT or key in REFUSED]
    parts = []
    if later:
        parts.append(f"kept for the next start: {', '.join(later)}")
    if nothing:
        parts.append(f"without effect on this broker: {', '.join(nothing)}")
    return "; ".join(parts) or None


def _apply(core: Core, settings: Settings, now_ms: int) -> Generator[None, None, None]:
    permission = core.settings.broker.permission
    core.reconfigure(settings, next_version(core.config_version, now_ms))
    core.ports.tables.publish_settings(settings)
    if settings.broker.permission != permission:
        core.ports.tables.set_permission(readable=core.readable, writable=core.writable)
        yield from core.topics.publish_again(now_ms)
        yield from core.groups.publish_again()
