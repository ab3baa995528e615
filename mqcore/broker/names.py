"""
Which names peers may bring: of consumer groups, and of topics that tables and files remember.

RocketMQ 4.9.8 checks the names of topics that are sent to (TopicValidator), and those of groups
never. A group's retry topic and dead letter queue become folders of the store, so a group may be
called whatever such a folder can be called; the first request that brings another name is refused.
"""
from __future__ import annotations

from mqcore.broker.request import FieldError
from mqcore.store.paths import FOLDER_NAME_BYTES_MAX, folder_name_trouble
from mqcore.wire.codes import RETRY_PREFIX
from mqcore.wire.command import Command

GROUP_BYTES_MAX = FOLDER_NAME_BYTES_MAX - len(RETRY_PREFIX)
GROUP_FIELDS = ("consumerGroup", "group", "groupName", "srcGroup", "destGroup")


def group_trouble(name: str) -> str | None:
    """Why no consumer group may be called so; None when one may."""
    trouble = folder_name_trouble(name)
    if trouble is None and len(name.encode()) > GROUP_BYTES_MAX:
        trouble = f"it has {len(name.encode())} bytes: expected at most {GROUP_BYTES_MAX}"
    if trouble is None:
        return None
    return f"no consumer group may be called {name[:160]!r}: {trouble}"


def check_group(name: str, known: bool) -> None:
    """
    Raises FieldError for a group that may not be called so.

    known: the broker has it already, from a file that another broker wrote; it is served as it was.
    """
    trouble = None if known or not name else group_trouble(name)
    if trouble is not None:
        raise FieldError(trouble)


def check_topic(name: str) -> None:
    """Raises FieldError for a topic that no queue can be of: no table is to remember it."""
    trouble = folder_name_trouble(name) if name else None
    if trouble is not None:
        raise FieldError(f"no topic may be called {name[:160]!r}: {trouble}")


def groups_of_header(command: Command) -> list[str]:
    """The consumer groups that a request's header names."""
    ext = command.ext or {}
    return [name for name in map(ext.get, GROUP_FIELDS) if name]
