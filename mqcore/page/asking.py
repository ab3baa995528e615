"""
Asks a cluster, by the functions behind the commands: a page and a command have one truth.

Each question has a deadline. One that fails is an Answer with the error: the rest of a page stands.
"""
from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import click

from mqcore.admin.shell.exits import Exit, status_of
from mqcore.admin.shell.runner import Plan, hint_of, work_of
from mqcore.admin.shell.view import Part, Table, View
from mqcore.client import AsyncAdmin, Credentials, RocketMQError
from mqcore.client.admin import Unreachable
from mqcore.client.config import Contexts
from mqcore.page.masking import MaskedAdmin, Masks, PageAdmin

REQUEST_S = 2.0                        # one request to one broker
PAGE_S = 6.0                           # all that one section of a page asks
ERRORS = (RocketMQError, OSError, click.ClickException)


@dataclass(frozen=True)
class Answer:
    """
    The answer to one question of a page.

    view      None: the question failed
    error     why, in one sentence
    status    as the command ends
    command   the command that asks the same
    """

    view: View | None = None
    error: str = ""
    status: Exit = Exit.DONE
    command: str = ""

    @property
    def document(self) -> Mapping[str, Any]:
        """The view's document; empty without one."""
        return {} if self.view is None else self.view.document

    @property
    def missing(self) -> list[Unreachable]:
        """The brokers that did not answer."""
        return [] if self.view is None else list(self.view.missing)

    @property
    def tables(self) -> list[Table]:
        """The tables of the view."""
        parts: tuple[Part, ...] = () if self.view is None else tuple(self.view.parts)
        return [part for part in parts if isinstance(part, Table)]

    def whole(self) -> dict[str, Any]:
        """For ?format=json."""
        return {"error": self.error, "status": self.status.name.lower()} if self.view is None \
            else self.view.whole()


@dataclass
class Cluster:
    """
    One cluster that the page shows.

    name      of its context, or ""
    namesrv   addresses of its name servers
    base      what its URLs begin with
    addresses   where brokers are reached, by the address that they register
    tls       what connections to an address are made with, where `namesrv` does not say it
    """

    namesrv: str
    credentials: Credentials | None = None
    name: str = ""
    base: str = ""
    addresses: Mapping[str, str] = field(default_factory=dict)
    tls: Contexts | None = None
    _admins: dict[tuple[str, bool], PageAdmin] = field(default_factory=dict)

    async def admin(
        self, credentials: Credentials | None = None, masks: Masks | None = None,
    ) -> PageAdmin:
        """The open client that signs as an account, None: as the cluster's own; what it hides."""
        account = credentials or self.credentials
        key = "" if account is None else account.access_key, masks is not None
        found = self._admins.get(key)
        if found is None:
            found = self._admins[key] = self.new_admin(account, masks)
            await found.start()
        return found

    def new_admin(
        self, credentials: Credentials | None = None, masks: Masks | None = None,
    ) -> PageAdmin:
        """One of its own, which its user starts and closes."""
        made = (PageAdmin if masks is None else MaskedAdmin)(
            self.namesrv, credentials=credentials or self.credentials, timeout=REQUEST_S,
            time_limit=PAGE_S, addresses=self.addresses, tls=self.tls or False)
        made.masks = masks or Masks()
        return made

    async def forget(self, access_key: str) -> None:
        """Close the clients of an account that has logged out."""
        for key in [key for key in self._admins if key[0] == access_key]:
            await self._admins.pop(key).close(0)

    async def close(self) -> None:
        """Close all clients."""
        for access_key, _ in list(self._admins):
            await self.forget(access_key)


async def ask(
    admin: AsyncAdmin, command: click.Command, line: str = "", /, seconds: float = PAGE_S,
    **options: Any,
) -> Answer:
    """The view of a command that reads; `line`: the same as one would type it."""
    work = cast(Callable[..., Coroutine[Any, Any, View]], work_of(command))
    return await told(work(admin, **options), line, seconds, admin)


async def told(
    work: Coroutine[Any, Any, View], line: str = "", seconds: float = PAGE_S,
    admin: AsyncAdmin | None = None,
) -> Answer:
    """
    The answer to a question; an error of the cluster or of the question becomes one too.

    admin   looks for a topic of nearly the name that does not exist
    """
    try:
        async with asyncio.timeout(seconds):
            view = await work
    except TimeoutError as error:
        text = str(error) or f"no answer within {seconds:g} s"
        return Answer(None, text, Exit.UNREACHABLE, line)
    except ERRORS as error:
        status = code_of(error)
        hint = "" if admin is None or status != Exit.NOT_FOUND else await hint_of(admin, error)
        return Answer(None, text_of(error) + hint, status, line)
    return Answer(view, "", view.status, line)


async def planned(admin: AsyncAdmin, command: click.Command, **options: Any) -> Plan:
    """The plan of a command that changes something. Raises what the command raises."""
    work = cast(Callable[..., Coroutine[Any, Any, Plan]], work_of(command))
    async with asyncio.timeout(PAGE_S):
        return await work(admin, **options)


def text_of(error: BaseException) -> str:
    """An error as one sentence."""
    return error.format_message() if isinstance(error, click.ClickException) else (
        str(error) or type(error).__name__)


def code_of(error: BaseException) -> Exit:
    """The exit status that a command would end with."""
    if isinstance(error, click.ClickException):
        return Exit(error.exit_code) if error.exit_code in set(Exit) else Exit.REFUSED
    return status_of(error)
