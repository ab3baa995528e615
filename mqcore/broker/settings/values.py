"""
Values of settings on their way: each is checked against the type and bounds of its field when it is
read, so that an error can name the place it came from.
"""
from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from msgspec import Meta, Struct, ValidationError, convert

from mqcore.broker.settings.model import SettingsError
from mqcore.wire.printable import SHOWN_MAX

_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udc7f\udd00-\udfff]")   # and half characters


@functools.cache
def types_of(kind: type[Struct]) -> dict[str, Any]:
    """The types of its fields, with their bounds: looked up once, which takes a millisecond."""
    return get_type_hints(kind, include_extras=True)


class Values:
    """The values read so far, and for each where it came from."""

    def __init__(self, sections: Mapping[str, type[Struct]]) -> None:
        self._types = {section: types_of(kind) for section, kind in sections.items()}
        self._values: dict[str, dict[str, Any]] = {section: {} for section in sections}
        self._sources: dict[str, str] = {}

    def section(self, name: str) -> dict[str, Any]:
        return self._values[name]

    def has_section(self, name: str) -> bool:
        return name in self._types

    def has_key(self, section: str, key: str) -> bool:
        return key in self._types[section]

    def source(self, key: str) -> str:
        """The place that "section.key" came from."""
        return self._sources.get(key, "default")

    def put(
        self, section: str, key: str, value: Any, source: str, *, as_text: bool, shown: str = ""
    ) -> None:
        """
        Keep a value; `as_text`: it is text that stands for a number, boolean or list.

        `shown` is the name for error messages when the source has its own (a stock key).
        """
        shown = shown or f"{section}.{key}"
        if section not in self._types:
            known = ", ".join(self._types)
            raise SettingsError(
                f"{source}: unknown section [{one_line(section)}]; expected one of {known}")
        kind = self._types[section].get(key)
        if kind is None:
            known = ", ".join(self._types[section])
            raise SettingsError(f"{source}: unknown key {one_line(shown)}; expected one of {known}")
        parsed = value
        if as_text and get_origin(kind) is tuple:
            parsed = [part.strip() for part in re.split(r"[;,]", value) if part.strip()]
        try:
            converted = convert(parsed, kind, strict=not as_text)
        except (ValidationError, UnicodeError):
            raise SettingsError(wrong(source, shown, value, expected(kind))) from None
        for text in converted if isinstance(converted, tuple) else (converted,):
            if isinstance(text, str) and _CONTROL.search(text):
                raise SettingsError(wrong(source, shown, value,
                                          "text of one line, without control characters"))
        self._values[section][key] = converted
        self._sources[f"{section}.{key}"] = source


def wrong(source: str, key: str, value: Any, wanted: str) -> str:
    """The one shape of a message about a bad value."""
    return f"{source}: {key} = {shown_value(value)}: expected {wanted}"


def expected(kind: Any) -> str:
    """What a field takes, in words."""
    if get_origin(kind) is Annotated:
        base, *marks = get_args(kind)
        for meta in marks:
            if not isinstance(meta, Meta):
                continue
            if base is int and meta.ge is not None:
                if meta.le is None:
                    return f"a whole number of at least {meta.ge}"
                return f"a whole number from {meta.ge} to {meta.le}"
            if base is str:
                least, most = meta.min_length or 0, meta.max_length
                return f"text of at least {least}" + (
                    f" and at most {most} characters" if most else " characters"
                )
        return expected(base)
    if get_origin(kind) is Union:
        return ", or ".join(map(expected, get_args(kind)))
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(f'"{choice}"' for choice in get_args(kind))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "one of " + ", ".join(f'"{choice.value}"' for choice in kind)
    if get_origin(kind) is tuple:
        item = get_args(kind)[0]
        return "a list of texts" if item is str else f"a list, each item {expected(item)}"
    return {bool: "true or false", int: "a whole number", str: "text"}.get(kind, str(kind))


def shown_value(value: Any) -> str:
    """A value as a message shows it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{one_line(value)}"'
    if isinstance(value, tuple):
        return one_line(list(value))
    return one_line(value)


def one_line(value: Any) -> str:
    """Text for a message: of one line, printable, and not too long."""
    try:
        text = str(value)
    except ValueError:                   # Python does not print numbers of thousands of digits
        return "a number without an end"
    shown = "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text[:SHOWN_MAX])
    return shown if len(text) <= SHOWN_MAX else f"{shown}... ({len(text)} characters)"
