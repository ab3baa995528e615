"""Options and arguments that several nouns have in common."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click

from mqcore.admin.shell.names import group_names, topic_names
from mqcore.client import AsyncAdmin
from mqcore.wire.codes import PERM_READ, PERM_WRITE

QUEUES_MAX = 65_535

topic_argument = click.argument("topic", shell_complete=topic_names)
group_argument = click.argument("group", shell_complete=group_names)


def topic_option(*name: str, **attributes: Any) -> Callable[[Any], Any]:
    """`-t`, which shells complete; name: of the argument, if it is not `topic`."""
    return click.option("-t", "--topic", *name, shell_complete=topic_names, **attributes)


def group_option(*name: str, **attributes: Any) -> Callable[[Any], Any]:
    """`-g`, likewise."""
    return click.option("-g", "--group", *name, shell_complete=group_names, **attributes)


cluster_option = click.option("--cluster", metavar="NAME", help="Only the brokers of this cluster.")
broker_option = click.option("-b", "--broker", metavar="NAME",
                             help="Only this broker: its name, or host:port.")


async def masters(
    admin: AsyncAdmin, broker: str | None, cluster: str | None = None,
) -> list[tuple[str, str]]:
    """Names and addresses of the masters that `--broker` and `--cluster` choose."""
    if broker is not None and cluster is not None:
        raise click.UsageError("give --broker or --cluster, not both")
    if broker is not None:
        return [(broker, broker)]
    return [(one.broker_name, one.addresses[0]) for found in await admin.clusters()
            for one in found.brokers if cluster in (None, found.name) and 0 in one.addresses]


class Permission(click.ParamType):
    """`r`, `w`, `rw`, `none`, or RocketMQ's number."""

    name = "rw|r|w|none"
    WORDS: Final = {"rw": PERM_READ | PERM_WRITE, "r": PERM_READ, "w": PERM_WRITE, "none": 0}

    def convert(self, value: Any, param: click.Parameter | None,
                ctx: click.Context | None) -> int:
        """The bits of a permission."""
        if isinstance(value, int):
            return value
        word = str(value).lower()
        if word in self.WORDS:
            return self.WORDS[word]
        if word in ("0", "2", "4", "6"):
            return int(word)
        self.fail(f"{value!r}: expected rw, r, w or none", param, ctx)


def permission(perm: int) -> str:
    """The word for permission bits."""
    word = ("r" if perm & PERM_READ else "") + ("w" if perm & PERM_WRITE else "")
    return word or "none"
