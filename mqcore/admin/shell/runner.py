"""Runs commands that are coroutines over AsyncAdmin: prints views, asks before changes, ends."""
from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from functools import wraps
from typing import Any, NoReturn, TypeVar

import click
from msgspec import Struct

from mqcore.admin.lines import say
from mqcore.admin.shell.connection import Connection, connects
from mqcore.admin.shell.exits import Exit, Failure, near, status_of
from mqcore.admin.shell.view import View
from mqcore.client import AsyncAdmin, RocketMQError
from mqcore.wire.printable import json_line, printable

T = TypeVar("T")

CLEAR = "\x1b[H\x1b[2J\x1b[3J"
WORK = "mqcore_work"                       # a command without its options
WATCH_S = 2.0
WATCH_MIN_S = 0.1


class Plan(Struct, frozen=True):
    """
    The change that a command is about to make.

    before     what will change, as it stands now
    work       makes the change; its view is the command's result
    question   asked on a terminal, e.g. "delete topic orders"; "" = not asked
    name       typed instead of `y` where the context wants confirmation
    """

    before: View
    work: Callable[[], Awaitable[View]]
    question: str = ""
    name: str = ""


class LocalPlan(Struct, frozen=True):
    """The same of a change on this machine, whose work is no coroutine."""

    before: View
    work: Callable[[], View]
    question: str = ""
    name: str = ""


class Output(Struct, frozen=True):
    """How a view is printed: the options of a command."""

    as_json: bool = False
    as_ndjson: bool = False
    names_only: bool = False
    wide: bool = False
    watch_s: float | None = None

    def show(self, view: View) -> None:
        """Print a view to standard output, and a line to standard error for what is missing."""
        if self.as_json:
            click.echo(json_line(view.whole()) if self.watch_s else _document(view.whole()))
        elif self.as_ndjson:
            for row in view.rows():
                click.echo(json_line(row))
        elif self.names_only:
            say(str(row.get(view.name, "")) for row in view.rows())
        else:
            say(view.lines(self.wide))
        if not self.as_json:
            for one in view.missing:
                say(f"no answer from {one.name} ({one.address}): {one.error}", err=True)


def _document(value: Mapping[str, Any]) -> str:
    """JSON on several lines; a terminal obeys none of its characters."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    return "".join(
        c if c == "\n" or c.isprintable() else json.dumps(c)[1:-1] for c in text)


def work_of(command: click.Command) -> Callable[..., Coroutine[Any, Any, Any]]:
    """
    The coroutine of a command under `reads` or `changes`, for other front ends.

    It takes an open AsyncAdmin and every option of the command, and returns a View or a
    Plan.
    """
    work: Callable[..., Coroutine[Any, Any, Any]] = vars(command.callback)[WORK]
    return work


_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON document, raw numbers.")
_FORM = click.option("-o", "--output", "form", type=click.Choice(["wide"]),
                     help="wide: more columns.")
_ITEMS = (
    click.option("--ndjson", "as_ndjson", is_flag=True, help="One JSON line an item."),
    click.option("-q", "--quiet", "names_only", is_flag=True, help="Names only."),
)
_CHANGES = (
    click.option("--json", "as_json", is_flag=True, help="One JSON document."),
    click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing."),
    click.option("--yes", is_flag=True, help="Do not ask."),
)


def _output_options(items: bool, every_s: float | None) -> list[Callable[..., Any]]:
    options = [
        _JSON, _FORM,
        click.option("--watch", "watch_s", type=click.FloatRange(WATCH_MIN_S), is_flag=False,
                     flag_value=every_s or WATCH_S, default=every_s, metavar="[SECONDS]",
                     help="Repeat until Ctrl-C."),
    ]
    if every_s is not None:
        options.append(click.option("--once", is_flag=True, help="Do not repeat."))
    return [*options, *_ITEMS] if items else options


def _form_of(as_json: bool, as_ndjson: bool, names_only: bool, form: str | None,
             watch_s: float | None = None) -> Output:
    """Raises click.UsageError."""
    if as_json + as_ndjson + names_only + (form == "wide") > 1:
        raise click.UsageError("give one of --json, --ndjson, --quiet and -o wide")
    return Output(as_json, as_ndjson, names_only, form == "wide", watch_s)


def reads(*, items: bool = False, every_s: float | None = None) -> Callable[
        [Callable[..., Coroutine[Any, Any, View]]], Callable[..., None]]:
    """
    A command that looks something up.

    The coroutine gets an open AsyncAdmin and the command's own options, and returns a View.

    :param items: whether the view has a list, which `--ndjson` and `-q` print
    :param every_s: it repeats by itself, unless `--once` is given
    """

    def decorate(command: Callable[..., Coroutine[Any, Any, View]]) -> Callable[..., None]:
        @wraps(command)
        def run(*, connection: Connection, as_json: bool, form: str | None,
                watch_s: float | None, as_ndjson: bool = False, names_only: bool = False,
                once: bool = False, **options: Any) -> None:
            look(connection, command, options, _form_of(
                as_json, as_ndjson, names_only, form, None if once else watch_s))

        vars(run)[WORK] = command
        for option in _output_options(items, every_s):
            run = option(run)
        return connects(run)

    return decorate


def look(
    connection: Connection, command: Callable[..., Coroutine[Any, Any, View]],
    options: dict[str, Any], output: Output,
) -> NoReturn:
    """Print the view that a coroutine over AsyncAdmin returns, and end."""
    _run(_read(connection, command, options, output))


async def _read(
    connection: Connection, command: Callable[..., Coroutine[Any, Any, View]],
    options: dict[str, Any], output: Output,
) -> Exit:
    async with _admin(connection) as admin:
        while True:
            view = await _told(admin, command(admin, **options))
            if output.watch_s and not output.as_json and sys.stdout.isatty():
                click.echo(CLEAR, nl=False)
            output.show(view)
            if not output.watch_s:
                return status_of(view.missing[0].error) if view.missing else view.status
            sys.stdout.flush()
            await asyncio.sleep(output.watch_s)


def streams(
    command: Callable[..., AsyncIterator[tuple[Mapping[str, Any], str]]],
) -> Callable[..., None]:
    """
    A command that prints items as they come, until Ctrl-C or its own end.

    The async generator gets `connection` and its own options, and yields documents with their
    lines for people. It makes its own client.
    """

    @wraps(command)
    def run(*, connection: Connection, as_ndjson: bool, **options: Any) -> None:
        async def work() -> Exit:
            async for document, line in command(connection, **options):
                if as_ndjson:
                    click.echo(json_line(document))
                else:
                    say(line)
                sys.stdout.flush()
            return Exit.DONE

        async def told() -> Exit:
            try:
                return await work()
            except (RocketMQError, OSError) as error:
                raise Failure(str(error), status_of(error)) from error

        _run(told())

    run = click.option("--ndjson", "as_ndjson", is_flag=True, help="One JSON line an item.")(run)
    return connects(run)


def changes(command: Callable[..., Coroutine[Any, Any, Plan]]) -> Callable[..., None]:
    """
    A command that changes something.

    The coroutine looks up what there is and returns a Plan. `--dry-run` prints the plan and ends.
    On a terminal a plan with a question is printed and asked about, unless `--yes` is given.
    """

    @wraps(command)
    def run(*, connection: Connection, as_json: bool, dry_run: bool, yes: bool,
            **options: Any) -> None:
        _run(_change(connection, command, options, Output(as_json), dry_run, yes))

    vars(run)[WORK] = command
    for option in _CHANGES:
        run = option(run)
    return connects(run)


def looks_here(command: Callable[..., View]) -> Callable[..., NoReturn]:
    """A command that looks something up on this machine, and prints a list."""

    @wraps(command)
    def run(*, as_json: bool, as_ndjson: bool, names_only: bool, form: str | None,
            **options: Any) -> NoReturn:
        output = _form_of(as_json, as_ndjson, names_only, form)
        view = command(**options)
        output.show(view)
        sys.exit(view.status)

    for option in (_JSON, _FORM, *_ITEMS):
        run = option(run)
    return run


def changes_here(command: Callable[..., LocalPlan]) -> Callable[..., NoReturn]:
    """A command that changes files of this machine: it shows its plan and asks as others do."""

    @wraps(command)
    def run(*, as_json: bool, dry_run: bool, yes: bool, **options: Any) -> NoReturn:
        plan = command(**options)
        output = Output(as_json)
        if dry_run:
            output.show(_planned(plan))
            sys.exit(Exit.DONE)
        if plan.question and not yes:
            _ask(plan, confirm=False)
        view = plan.work()
        output.show(view)
        sys.exit(view.status)

    for option in _CHANGES:
        run = option(run)
    return run


def _planned(plan: Plan | LocalPlan) -> View:
    document = {**plan.before.document, "dryRun": True}
    return View(document, plan.before.parts, missing=plan.before.missing)


async def _change(
    connection: Connection, command: Callable[..., Coroutine[Any, Any, Plan]],
    options: dict[str, Any], output: Output, dry_run: bool, yes: bool,
) -> Exit:
    async with _admin(connection) as admin:
        plan = await _told(admin, command(admin, **options))
        if dry_run:
            output.show(_planned(plan))
            return Exit.DONE
        if plan.question and not yes:
            _ask(plan, confirm=connection.confirm)
        view = await _told(admin, _awaited(plan.work()))
        output.show(view)
        return status_of(view.missing[0].error) if view.missing else view.status


def _ask(plan: Plan | LocalPlan, *, confirm: bool) -> None:
    """
    Returns when the change may be made; raises click.Abort or Failure.

    :param confirm: the name is typed
    """
    at_a_terminal(plan.question)
    say(plan.before.lines(), err=True)
    if confirm and plan.name:
        typed = click.prompt(
            printable(f"{plan.question}: type {plan.name!r} to confirm"), err=True, default="",
            show_default=False)
        if typed != plan.name:
            raise click.Abort
        return
    click.confirm(printable(f"{plan.question}?"), abort=True, err=True)


def at_a_terminal(question: str) -> None:
    """Raises Failure where there is no terminal to ask."""
    if not sys.stdin.isatty():
        raise Failure(f"{question}: there is no terminal to ask: give --yes", Exit.USAGE)


async def _awaited(work: Awaitable[View]) -> View:
    return await work


def _admin(connection: Connection) -> AsyncAdmin:
    try:
        return AsyncAdmin(connection.namesrv, credentials=connection.credentials)
    except RocketMQError as error:
        raise Failure(str(error), status_of(error)) from error


async def _told(admin: AsyncAdmin, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`; the client's errors become a sentence with the next step."""
    try:
        return await work
    except (RocketMQError, OSError) as error:
        status = status_of(error)
        hint = await hint_of(admin, error) if status == Exit.NOT_FOUND else ""
        raise Failure(f"{error}{hint}", status) from error


async def hint_of(admin: AsyncAdmin, error: BaseException) -> str:
    """A topic of nearly that name, if there is one."""
    topic = getattr(error, "topic", "")
    if not topic:
        return ""
    try:
        close = near(topic, await admin.topics())
    except (RocketMQError, OSError):
        return ""
    return (f"; did you mean {close!r}?" if close else "; `mqcore topic ls` lists topics")


def _run(work: Coroutine[Any, Any, Exit]) -> NoReturn:
    try:
        status = asyncio.run(work)
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)
    sys.exit(status)
