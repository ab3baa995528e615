"""Groups of commands that import a command's module only to run or explain it."""
from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from mqcore.wire.printable import printable

Commands = Mapping[str, tuple[str, str, str]]       # name -> module, object, one line
HELP = {"help_option_names": ["-h", "--help"]}
SENTENCE_MAX = 1_200             # characters of an error


class LazyGroup(click.Group):
    """
    A group whose commands are named, and loaded when they are asked for.

    commands   those that help shows
    short      further names, without a line in help
    verb       the command of arguments that name none: `mqcore broker -n HOST:9876`
    """

    def __init__(
        self, commands: Commands, *, short: Commands | None = None, verb: str = "",
        **attributes: Any,
    ) -> None:
        super().__init__(**attributes)
        self.table = commands
        self.short = short or {}
        self.verb = verb

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the verb before arguments that name none; only `-h` is for the group."""
        if self.verb and (not args or args[0].startswith("-")) and args not in (["-h"], ["--help"]):
            args = [self.verb, *args]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; an error is one line, of which a terminal obeys no character."""
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            vars(error)["message"] = _one_line(error.message)
            raise

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the table."""
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a command; None for a name that is not in the table."""
        found = self.table.get(cmd_name) or self.short.get(cmd_name)
        if found is None:
            return None
        module, name, _ = found
        command = getattr(import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str],
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; the error for another name suggests the nearest one."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = get_close_matches(args[0], self.table, n=1, cutoff=0.6)
            if near:
                vars(error)["message"] += f" Did you mean {near[0]!r}?"
            raise

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names of commands and options, without loading anything."""
        found = [CompletionItem(name, help=line) for name, (_, _, line) in self.table.items()
                 if name.startswith(incomplete)]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The names with their lines, without loading anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in self.table.items()])


def _one_line(text: str) -> str:
    """The text escaped; of a long one, which repeats a long name, the begin and the end."""
    shown = printable(text)
    if len(shown) <= SENTENCE_MAX:
        return shown
    return f"{shown[:SENTENCE_MAX * 3 // 4]} ... {shown[-SENTENCE_MAX // 4:]}"


def group(name: str, commands: Commands, text: str, *, verb: str = "") -> LazyGroup:
    """A noun with its verbs."""
    return LazyGroup(commands, verb=verb, name=name, help=text, context_settings=HELP)
