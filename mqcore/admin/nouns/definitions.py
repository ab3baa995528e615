"""Topics and groups of a cluster as one TOML file: read, written, compared, applied."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from mqcore.admin.nouns.parameters import QUEUES_MAX, permission
from mqcore.admin.shell import files, toml
from mqcore.admin.shell.exits import Failure
from mqcore.client import AsyncAdmin
from mqcore.client.admin import Unreachable
from mqcore.client.admin.groups import is_system_group
from mqcore.client.core.options import check_group, check_topic
from mqcore.wire.codes import DLQ_PREFIX, PERM_READ, PERM_WRITE, RETRY_PREFIX

PERMISSIONS = {"rw": PERM_READ | PERM_WRITE, "r": PERM_READ, "w": PERM_WRITE, "none": 0}

# key -> (type, smallest, largest)
TOPIC_KEYS: Mapping[str, tuple[type, int, int]] = {
    "read_queues": (int, 0, QUEUES_MAX), "write_queues": (int, 0, QUEUES_MAX),
    "permission": (str, 0, 0),
}
GROUP_KEYS: Mapping[str, tuple[type, int, int]] = {
    "consume_enable": (bool, 0, 1), "consume_broadcast_enable": (bool, 0, 1),
    "retry_queue_count": (int, 0, QUEUES_MAX), "retry_max_times": (int, 0, 1_000_000),
}
TOPIC_DEFAULTS: Mapping[str, Any] = {"read_queues": 8, "write_queues": 8, "permission": "rw"}
GROUP_DEFAULTS: Mapping[str, Any] = {
    "consume_enable": True, "consume_broadcast_enable": True, "retry_queue_count": 1,
    "retry_max_times": 16,
}


class Definitions(Struct, frozen=True):
    """
    Settings of topics and groups by name.

    Of several brokers that differ, the first one by name counts. `missing` are masters that did
    not answer.
    """

    topics: Mapping[str, Mapping[str, Any]]
    groups: Mapping[str, Mapping[str, Any]]
    missing: Sequence[Unreachable] = ()

    @classmethod
    async def of_cluster(cls, admin: AsyncAdmin, cluster: str | None) -> Definitions:
        """The users' topics and groups; the brokers' own are left out."""
        systems = set(await admin.system_topics())
        on_brokers = await admin.topics_on_brokers(cluster=cluster)
        topics: dict[str, Mapping[str, Any]] = {}
        for one in on_brokers:
            name, config = one.config.name, one.config
            if name not in systems and not name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
                topics.setdefault(name, {
                    "read_queues": config.read_queue_count,
                    "write_queues": config.write_queue_count,
                    "permission": permission(config.perm)})
        groups: dict[str, Mapping[str, Any]] = {}
        group_settings = await admin.groups_on_brokers(cluster=cluster)
        for found in group_settings:
            if not is_system_group(found.config.name):
                groups.setdefault(found.config.name, {
                    key: getattr(found.config, key) for key in GROUP_KEYS})
        missing = {one.address: one
                   for one in (*on_brokers.unreachable, *group_settings.unreachable)}
        return cls(topics, groups, tuple(missing.values()))

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {"topics": {name: dict(keys) for name, keys in self.topics.items()},
                "groups": {name: dict(keys) for name, keys in self.groups.items()}}


def to_toml(found: Definitions) -> str:
    """The file's text: a section for each topic and group, sorted."""
    lines = ["# Topics and groups; `mqcore cluster diff FILE`, `mqcore cluster apply FILE`."]
    for kind, sections in (("topics", found.topics), ("groups", found.groups)):
        for name in sorted(sections):
            lines += ["", f"[{kind}.{toml.value(name)}]"]
            lines += [f"{key} = {toml.value(value)}" for key, value in sections[name].items()]
    return "\n".join(lines) + "\n"


def read_file(file: Path) -> Definitions:
    """The definitions of a file; - is standard input. Raises Failure with the key."""
    import tomllib  # most commands read no file

    raw = files.read(file)
    try:
        document = tomllib.loads(raw.decode())
    except (ValueError, RecursionError) as error:
        raise Failure(f"{file}: not a TOML file: {error}") from None
    unknown = sorted(set(document) - {"topics", "groups"})
    if unknown:
        raise Failure(f"{file}: unknown section {unknown[0]!r}; expected topics, groups")
    return Definitions(
        _sections(document.get("topics", {}), TOPIC_KEYS, TOPIC_DEFAULTS, f"{file}: topics"),
        _sections(document.get("groups", {}), GROUP_KEYS, GROUP_DEFAULTS, f"{file}: groups"))


def _sections(
    sections: Any, keys: Mapping[str, tuple[type, int, int]], defaults: Mapping[str, Any],
    where: str,
) -> dict[str, Mapping[str, Any]]:
    if not isinstance(sections, dict):
        raise Failure(f"{where}: expected sections")
    found: dict[str, Mapping[str, Any]] = {}
    for name, section in sections.items():
        place = f"{where}.{toml.value(name)}"
        if not isinstance(section, dict):
            raise Failure(f"{place}: expected a section")
        for key, value in section.items():
            _check(key, value, keys, place)
        found[name] = {**defaults, **section}
    return found


def _check(
    key: str, value: Any, keys: Mapping[str, tuple[type, int, int]], place: str,
) -> None:
    if key not in keys:
        raise Failure(f"{place}: unknown key {key!r}; expected {', '.join(keys)}")
    kind, least, most = keys[key]
    if kind is str:
        if value not in PERMISSIONS:
            raise Failure(f"{place}.{key}: expected one of {', '.join(PERMISSIONS)}")
    elif kind is bool:
        if not isinstance(value, bool):
            raise Failure(f"{place}.{key}: expected true or false")
    elif isinstance(value, bool) or not isinstance(value, int):
        raise Failure(f"{place}.{key}: expected a whole number")
    elif not least <= value <= most:
        raise Failure(f"{place}.{key}: expected {least} to {most}, found {value}")


# -- changes --------------------------------------------------------------------------------------


class Change(Struct, frozen=True):
    """
    One step from a cluster to a file.

    sign     + create, ~ change, - delete
    kind     topic or group
    before   the settings in the cluster, None when there are none
    after    those of the file, None when it is deleted
    """

    sign: str
    kind: str
    name: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None

    def row(self) -> dict[str, Any]:
        """For a table and for JSON."""
        return {"sign": self.sign, "kind": self.kind, "name": self.name,
                "before": None if self.before is None else dict(self.before),
                "after": None if self.after is None else dict(self.after), "text": self._text()}

    def _text(self) -> str:
        if self.after is None:
            return "delete"
        if self.before is None:
            return "create: " + ", ".join(f"{key} {value}" for key, value in self.after.items())
        return ", ".join(f"{key} {self.before[key]} -> {value}"
                         for key, value in self.after.items() if self.before[key] != value)


def changes_between(
    found: Definitions, wanted: Definitions, *, prune: bool,
) -> list[Change]:
    """
    The steps that make the cluster what the file says; topics first, then groups, by name.

    Raises Failure for a new name that clients cannot use; one that exists may be any.

    :param prune: whether the steps delete topics and groups that the file does not have
    """
    steps = []
    for kind, there, asked in (("topic", found.topics, wanted.topics),
                               ("group", found.groups, wanted.groups)):
        for name in sorted({*there, *asked}):
            before, after = there.get(name), asked.get(name)
            if after is None:
                if prune:
                    steps.append(Change("-", kind, name, before, None))
            elif before is None:
                _check_name(kind, name)
                steps.append(Change("+", kind, name, None, after))
            elif before != after:
                steps.append(Change("~", kind, name, before, after))
    return steps


def _check_name(kind: str, name: str) -> None:
    try:
        check_topic(name) if kind == "topic" else check_group(name)
    except ValueError as error:
        raise Failure(str(error)) from None


async def apply_changes(
    admin: AsyncAdmin, steps: Sequence[Change], cluster: str | None,
) -> None:
    """Make the changes in their order; the first one that fails ends it, with its name."""
    for step in steps:
        work = _topic if step.kind == "topic" else _group
        await work(admin, step, cluster)


async def _topic(admin: AsyncAdmin, step: Change, cluster: str | None) -> None:
    if step.after is None:
        await admin.delete_topic(step.name, cluster=cluster)
        return
    settings = {
        "read_queues": step.after["read_queues"], "write_queues": step.after["write_queues"],
        "perm": PERMISSIONS[step.after["permission"]]}
    if step.before is None:
        await admin.create_topic(step.name, cluster=cluster, **settings)
    else:
        await admin.update_topic(step.name, cluster=cluster, **settings)


async def _group(admin: AsyncAdmin, step: Change, cluster: str | None) -> None:
    if step.after is None:
        await admin.delete_group(step.name, remove_offsets=True, cluster=cluster)
    elif step.before is None:
        await admin.create_group(step.name, cluster=cluster, **step.after)
    else:
        await admin.update_group(step.name, cluster=cluster, **step.after)
