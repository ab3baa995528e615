"""
The changes that the page can make: commands, with forms made of their options.

A command under `changes` plans first, so each form has a preview: what the command prints with
--dry-run. One that asks on a terminal wants the name of its object typed.
"""
from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import click

NOUNS = "mqcore.admin.nouns"
NOT_FIELDS = frozenset({"namesrv", "context", "access_key", "as_json", "dry_run", "yes"})
DEFAULTS: Mapping[tuple[str, str], str] = {("dlq-redrive", "rate"): "100"}     # of forms only

# verb of a URL -> module, command, what it is called, the page that it goes back to
CHANGES: dict[str, tuple[str, str, str, str]] = {
    "topic-create": (f"{NOUNS}.topic", "create_command", "Create a topic", "/topics"),
    "topic-edit": (f"{NOUNS}.topic", "edit_command", "Change a topic", "/topic"),
    "topic-rm": (f"{NOUNS}.topic", "remove_command", "Delete a topic", "/topics"),
    "group-create": (f"{NOUNS}.group", "create_command", "Create a group", "/groups"),
    "group-edit": (f"{NOUNS}.group", "edit_command", "Change a group", "/group"),
    "group-pause": (f"{NOUNS}.group", "pause_command", "Pause a group", "/group"),
    "group-resume": (f"{NOUNS}.group", "resume_command", "Resume a group", "/group"),
    "group-rm": (f"{NOUNS}.group", "remove_command", "Delete a group", "/groups"),
    "offset-reset": (f"{NOUNS}.offset", "reset_command", "Move offsets of a group", "/group"),
    "offset-copy": (f"{NOUNS}.offset", "copy_command", "Copy offsets of a group", "/groups"),
    "dlq-redrive": (f"{NOUNS}.dlq", "redrive_command", "Send dead letters again",
                    "/dead-letters/group"),
    "dlq-purge": (f"{NOUNS}.dlq", "purge_command", "Delete all dead letters of a group",
                  "/dead-letters"),
    "transaction-check": (f"{NOUNS}.transaction", "check_command", "Ask the producer",
                          "/transactions"),
    "transaction-rollback": (f"{NOUNS}.transaction", "rollback_command", "Roll back a transaction",
                             "/transactions"),
    "message-resend": (f"{NOUNS}.message", "resend_command", "Send a message again", "/messages"),
    "message-send": ("mqcore.page.sending", "send_command", "Send a message", "/topic"),
    "broker-set": (f"{NOUNS}.broker", "set_command", "Change a setting", "/settings"),
}
# Settings that name files or programs, or who may do what: not from a browser.
UNSAFE_SETTINGS = ("path", "file", "dir", "home", "acl", "access", "secret", "tls", "http", "etcd",
                   "command", "ssl", "rmq")


@dataclass(frozen=True)
class Field:
    """
    One option or argument of a command as a form has it.

    kind   text, choice, flag, or long for a text of several lines
    """

    name: str
    label: str
    help: str
    kind: str
    choices: tuple[str, ...]
    default: str
    needed: bool


@dataclass(frozen=True)
class Change:
    """A command with its form."""

    verb: str
    title: str
    back: str
    command: click.Command

    @property
    def line(self) -> list[str]:
        """How it is called, without its options."""
        noun, _, verb = self.verb.partition("-")
        return ["mqcore", noun, verb]

    def _parameters(self) -> list[click.Parameter]:
        return [one for one in self.command.params if one.name not in NOT_FIELDS]

    @property
    def fields(self) -> list[Field]:
        """The form's fields, needed ones first."""
        found = [_field(one, DEFAULTS.get((self.verb, one.name or ""), ""))
                 for one in self._parameters()]
        return sorted(found, key=lambda field: not field.needed)

    def options(self, form: Mapping[str, str]) -> dict[str, Any]:
        """The options of the command's coroutine. Raises click.UsageError with the field's name."""
        context = click.Context(self.command)
        given: dict[str, Any] = {}
        for one in self.command.params:
            if one.name is None or one.name in NOT_FIELDS:
                continue
            text = form.get(one.name, "").strip() if one.name in {
                field.name for field in self.fields} else ""
            value: Any = text
            if isinstance(one, click.Option) and one.is_flag:
                value = _flag(one, text)
            elif not text:
                if one.required:
                    raise click.UsageError(f"{one.name}: expected a value")
                value = _default(one)
            elif one.nargs == -1:
                value = _words(text)
            given[one.name] = None if value is None else one.process_value(context, value)
        return given

    def as_typed(self, form: Mapping[str, str]) -> str:
        """The command as one would type it."""
        words, last = list(self.line), []
        for one in self._parameters():
            text = form.get(one.name or "", "").strip()
            if not text:
                continue
            if isinstance(one, click.Argument):
                last += _words(text) if one.nargs == -1 else [text]
            elif one.opts and getattr(one, "is_flag", False):
                secondary = one.secondary_opts
                words += [one.opts[-1]] if text in ("yes", "on") else secondary[:1]
            elif text != str(_default(one)):
                words += [one.opts[-1], text]
        return shlex.join([*words, *last])


def _default(one: click.Parameter) -> str | int | float | None:
    """The value of a parameter when it is not given; None for no value."""
    return one.default if isinstance(one.default, str | int | float) else None


def _words(text: str) -> list[str]:
    """The words of a field that takes several. Raises click.UsageError."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise click.UsageError(f"{text!r:.120}: {error}") from error


def _flag(option: click.Option, text: str) -> bool | None:
    """yes, no, or nothing for an option of two names that is not given."""
    if option.secondary_opts and not text:
        return None
    return text in ("yes", "on")


def _field(one: click.Parameter, default: str) -> Field:
    name = one.name or ""
    is_flag = isinstance(one, click.Option) and one.is_flag
    choices: tuple[str, ...] = ()
    if is_flag:
        kind = "choice" if one.secondary_opts else "flag"
        choices = ("", "yes", "no") if one.secondary_opts else ()
    elif isinstance(one.type, click.Choice):
        kind, choices = "choice", (*(() if one.required or _default(one) else ("",)),
                                   *map(str, one.type.choices))
    elif one.type.name == "rw|r|w|none":
        kind, choices = "choice", (*(() if _default(one) else ("",)), "rw", "r", "w", "none")
    else:
        kind = "long" if name == "body" else "text"
    if not is_flag and _default(one) is not None:
        default = str(_default(one))
    help_text = one.help or "" if isinstance(one, click.Option) else ""
    return Field(name, name.replace("_", " "), help_text, kind, choices, default, one.required)


@cache
def change(verb: str) -> Change | None:
    """The change of a URL's verb; None: there is none."""
    found = CHANGES.get(verb)
    if found is None:
        return None
    module, name, title, back = found
    return Change(verb, title, back, getattr(import_module(module), name))


def unsafe(verb: str, form: Mapping[str, str]) -> str:
    """Why a change is not made from a browser, whatever the account may do; "": it may be made."""
    if verb != "broker-set":
        return ""
    for pair in _words(form.get("settings", "")):
        name = pair.partition("=")[0]
        if any(part in name.lower() for part in UNSAFE_SETTINGS):
            return (f"{name}: settings of files, programs and access are not changed from a "
                    "browser: `mqcore broker set`")
    return ""
