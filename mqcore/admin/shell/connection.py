"""Where a command connects to, and as which account: options, environment, context."""
from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import click
from msgspec import Struct

from mqcore.admin.shell import contexts
from mqcore.client import Credentials
from mqcore.client.config import NAMESRV_VARIABLE
from mqcore.wire.printable import printable

DEFAULT_NAME_SERVER = "127.0.0.1:9876"
CONTEXT_VARIABLE = "MQCORE_CONTEXT"
ACCESS_VARIABLE = "MQCORE_ACCESS_KEY"
SECRET_VARIABLE = "MQCORE_SECRET_KEY"


class Connection(Struct, frozen=True):
    """
    Name servers and account of one run of a command.

    context   the name of the context that they are from, "" if none
    confirm   whether the context wants names typed before something is deleted
    """

    namesrv: str
    credentials: Credentials | None
    context: str = ""
    confirm: bool = False

    def __repr__(self) -> str:
        return f"Connection({self.namesrv!r}, {self.context!r})"


def connection(
    namesrv: str | None, context: str | None, access_key: str | None,
) -> Connection:
    """
    Resolve the options: an option wins over the environment, which wins over the context in use.

    The account of a context is used for that context's name servers only.
    Raises click.ClickException, which never shows a secret.
    """
    if namesrv and context:
        raise click.UsageError("give --namesrv or --context, not both")
    account = _named(access_key or os.environ.get(ACCESS_VARIABLE))
    if namesrv:
        return Connection(namesrv, account)
    name = context or os.environ.get(CONTEXT_VARIABLE)
    if not name:
        from_environment = os.environ.get(NAMESRV_VARIABLE)
        if from_environment:
            return Connection(from_environment, account)
        name = contexts.current()
    if not name:
        return Connection(DEFAULT_NAME_SERVER, account)
    found = contexts.load(name)
    return Connection(found.namesrv, account or found.credentials(), name, found.confirm)


def _named(access_key: str | None) -> Credentials | None:
    if not access_key:
        return None
    secret = os.environ.get(SECRET_VARIABLE)
    if not secret:
        if not sys.stdin.isatty():
            raise click.UsageError(
                f"--access-key {printable(access_key)}: its secret key is not in "
                f"{SECRET_VARIABLE}, and there is no terminal to ask for it")
        secret = str(click.prompt(
            f"secret key of {printable(access_key)}", hide_input=True, err=True))
    return Credentials(access_key, secret)


_ACCESS_OPTION = click.option(
    "--access-key", metavar="KEY",
    help=f"Sign as this account; its secret key is {SECRET_VARIABLE}, or asked for  "
         f"[env: {ACCESS_VARIABLE}].")
_CONTEXT_OPTION = click.option(
    "-x", "--context", metavar="NAME",
    help=f"A context (`mqcore context ls`)  [env: {CONTEXT_VARIABLE}].")
_NAMESRV_OPTION = click.option(
    "-n", "--namesrv", metavar="ADDRESSES",
    help="Name servers, host:port;host:port; by TLS: rocketmq://host:port?tls=verify&ca=FILE  "
         f"[env: {NAMESRV_VARIABLE}; default: {DEFAULT_NAME_SERVER}].")


def connects(command: Callable[..., Any]) -> Callable[..., Any]:
    """A click command that gets `connection` in place of the options."""

    @wraps(command)
    def run(*, namesrv: str | None, context: str | None, access_key: str | None,
            **options: Any) -> Any:
        return command(connection=connection(namesrv, context, access_key), **options)

    for option in (_ACCESS_OPTION, _CONTEXT_OPTION, _NAMESRV_OPTION):
        run = option(run)
    return run


def signs(command: Callable[..., Any]) -> Callable[..., Any]:
    """A click command that gets `credentials`, and connects by options of its own."""

    @wraps(command)
    def run(*, context: str | None, access_key: str | None, **options: Any) -> Any:
        return command(credentials=connection(None, context, access_key).credentials, **options)

    for option in (_ACCESS_OPTION, _CONTEXT_OPTION):
        run = option(run)
    return run
