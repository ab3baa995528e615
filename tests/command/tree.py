"""All commands, as the tree of `mqcore` has them: a new one stands in the tests by itself."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import click

from mqcore.admin.cli import main

# Their verbs are loaded with PySpark (tests/spark has them).
ELSEWHERE = {("spark",)}
# A value for each argument and option that must be given; of a new one a test says that it has none
VALUES = {
    "account": "account", "aim": "begin", "addresses": "10.0.0.1", "broker": "BROKER", "count": "2",
    "file": "FILE", "group": "GROUP", "handle": "", "key": "key", "member": "", "message_id": "ID",
    "name_server": "", "namespace": "namespace", "queue_id": "0", "settings": "key=value",
    "source": "GROUP", "target": "OTHER", "topic": "TOPIC", "value": "value",
    "url": "http://127.0.0.1:4318/v1/traces", "which": "TOPIC/BROKER/0/0",
    # of commands that ask no cluster
    "store": "STORE", "to": "NEW", "path": "ACCESS", "name": "name", "shell": "bash",
    "words": "", "arguments": "", "master": "127.0.0.1:1",
}
OTHERS = {("offset import", "file"): "OFFSETS"}       # where one name means two things
# Verbs that have tests of their own: they run for long, or work on a store at rest beside
APART = ("broker run", "namesrv run", "replication promote", "replication status", "bench consume",
         "bench e2e", "bench produce", "message consume", "message recall", "message spans")
# Options without which a command refuses to run
BESIDE = {
    "topic edit": ["--perm", "rw"], "group edit": ["--retries", "3"],
    "acl user": ["--topic-default", "SUB"],
    "message send": ["-t", "TOPIC", "--body", "body"],
    "message tail": ["--limit", "1", "--since", "1h ago"], "check stalled": ["--for", "0.1s"],
    "broker gc": ["-b", "BROKER"], "top": ["--once"], "debug bundle": ["-f", "BUNDLE"],
}


@dataclass(frozen=True)
class Verb:
    """A command, and its options."""

    words: tuple[str, ...]
    command: click.Command

    @property
    def name(self) -> str:
        return " ".join(self.words)

    @property
    def options(self) -> set[str]:
        return {option for parameter in self.command.params for option in parameter.opts}

    @property
    def changes(self) -> bool:
        """Whether it shows a change first, and asks."""
        return {"--dry-run", "--yes"} <= self.options

    def arguments(self, **values: str) -> list[str]:
        """Words with which it can run; values: for the capital words of VALUES and BESIDE."""
        given: list[str] = []
        for parameter in self.command.params:
            name = str(parameter.name)
            assert not parameter.required or name in VALUES, (self.name, name)
            value = OTHERS.get((self.name, name), VALUES.get(name, ""))
            if isinstance(parameter, click.Argument):
                given += filter(None, [value])
            elif parameter.required:
                given += [parameter.opts[0], value]
        return [*self.words, *_filled([*given, *BESIDE.get(self.name, ())], values)]

    def with_name(self, parameter: click.Parameter, name: str, values: dict[str, str],
                  ) -> list[str]:
        """Words with which it runs, of which one parameter's is `name`."""
        beside = list(BESIDE.get(self.name, ()))
        if parameter.opts[0] in beside and not getattr(parameter, "multiple", False):
            at = beside.index(parameter.opts[0])
            del beside[at:at + 2]
        options, given = [*_filled(beside, values)], []
        for one in self.command.params:
            kind = str(one.name)
            (value,) = _filled([OTHERS.get((self.name, kind), VALUES.get(kind, ""))], values)
            if isinstance(one, click.Argument):
                if one is parameter or value:
                    given.append(name if one is parameter else value)
            elif one is parameter or (one.required and one.opts[0] not in beside):
                long = max(one.opts, key=len)
                options.append(f"{long}={name if one is parameter else value}")
        return [*self.words, *options, "--", *given]


def _filled(words: list[str], values: dict[str, str]) -> list[str]:
    filled = []
    for word in words:
        for name, value in values.items():
            word = word.replace(name, value)
        filled.append(word)
    return filled


def verbs(command: click.Command = main, *words: str) -> Iterator[Verb]:
    """Those below a command, or itself."""
    if words in ELSEWHERE:
        return
    if not isinstance(command, click.Group):
        yield Verb(words, command)
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from verbs(found, *words, name)


def asking() -> list[Verb]:
    """Those that connect to a cluster, ask or change something, and end."""
    return [verb for verb in verbs() if "--namesrv" in verb.options and verb.name not in APART]


def parse(*words: str) -> None:
    """Read a command line as `mqcore` does, and run nothing. Raises click.UsageError."""
    command: click.Command | None = main
    name, rest = "mqcore", list(words)
    context = None
    while command is not None:
        context = command.make_context(name, rest, parent=context)
        if not isinstance(command, click.Group):
            return
        found, command, rest = command.resolve_command(
            context, [*context._protected_args, *context.args])
        name = str(found)
