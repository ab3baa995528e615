"""Namespaces: a prefix that parts the names of several users of one cluster (client.md 1.8)."""
from __future__ import annotations

from mqcore.wire.codes import DLQ_PREFIX, RETRY_PREFIX, SYSTEM_GROUP_PREFIX, SYSTEM_TOPICS

_END = "%"
_SYSTEM_PREFIX = "rmq_sys_"


def wrap(namespace: str, name: str) -> str:
    """A topic or group as brokers know it; a name that is wrapped already stays."""
    if not namespace or not name or _is_system(name):
        return name
    prefix, rest = _split(name)
    own = namespace + _END
    return name if rest.startswith(own) else prefix + own + rest


def unwrap(namespace: str, name: str) -> str:
    """A topic or group as the application knows it; other namespaces' names stay."""
    if not namespace:
        return name
    prefix, rest = _split(name)
    return prefix + rest.removeprefix(namespace + _END)


def _split(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix):]
    return "", name


def _is_system(name: str) -> bool:
    return (name in SYSTEM_TOPICS or name.startswith(_SYSTEM_PREFIX)
            or name.startswith(SYSTEM_GROUP_PREFIX))
