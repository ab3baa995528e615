"""Exit statuses, and the status and the sentence of each error."""
from __future__ import annotations

from enum import IntEnum

import click

from mqcore.client.admin import AdminError
from mqcore.client.errors import (
    AccessDenied,
    ConfigError,
    ConnectError,
    NoRouteError,
    RequestTimeout,
    RocketMQError,
)
from mqcore.wire.codes import ResponseCode


class Exit(IntEnum):
    """How a command ended (docs/command.md)."""

    DONE = 0
    REFUSED = 1           # by the broker, with a code and a remark; or an error of this machine
    USAGE = 2
    NOT_FOUND = 3         # no such topic, group, message
    UNREACHABLE = 4       # no connection, no route
    UNKNOWN = 5           # no answer: the request may have been carried out
    DENIED = 6            # no permission
    UNHEALTHY = 10        # a check failed
    INTERRUPTED = 130


NOT_FOUND_CODES = frozenset({
    ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    ResponseCode.QUERY_NOT_FOUND, ResponseCode.NO_MESSAGE, ResponseCode.CONSUMER_NOT_ONLINE,
})


ACL_REMARK = "AclException"


class Failure(click.ClickException):
    """One sentence on standard error, and an exit status."""

    def __init__(self, message: str, exit_status: Exit = Exit.REFUSED) -> None:
        super().__init__(message)
        vars(self)["exit_code"] = int(exit_status)


class NotFound(Failure):
    """
    There is no such topic, group or message.

    :param kind: "topic", "group", ...
    :param name: the name that was asked for
    :param known: the names that exist; the nearest one is suggested
    :param where: the command that lists them
    """

    def __init__(self, kind: str, name: str, known: tuple[str, ...] = (), where: str = "") -> None:
        hint = near(name, known)
        super().__init__(
            f"there is no {kind} {name!r}"
            + (f"; did you mean {hint!r}?" if hint else "")
            + (f" `{where}` lists them" if where else ""),
            Exit.NOT_FOUND)
        self.kind, self.name = kind, name


def near(name: str, known: tuple[str, ...]) -> str | None:
    """The known name that is most like `name`, or None."""
    from difflib import get_close_matches

    found = get_close_matches(name, known, n=1, cutoff=0.7)
    return found[0] if found else None


def status_of(error: BaseException) -> Exit:
    """The exit status for an error of the client or of this machine."""
    if isinstance(error, AdminError):
        return status_of(error.failures[0].error)
    if isinstance(error, AccessDenied):
        return Exit.DENIED
    if isinstance(error, ConfigError):
        return Exit.USAGE
    if isinstance(error, NoRouteError):
        absent = error.is_no_such_topic or error.code == ResponseCode.TOPIC_NOT_EXIST
        return Exit.NOT_FOUND if absent else Exit.UNREACHABLE
    if isinstance(error, RequestTimeout):
        return Exit.UNKNOWN
    if isinstance(error, ConnectError):
        return Exit.UNKNOWN if error.stored is None else Exit.UNREACHABLE
    if isinstance(error, RocketMQError) and ACL_REMARK in error.remark:
        return Exit.DENIED                   # administration that is refused has code 1
    if isinstance(error, RocketMQError) and error.code in NOT_FOUND_CODES:
        return Exit.NOT_FOUND
    return Exit.REFUSED
