"""
Values of settings on their way: each is checked against the type and bounds of its field when it is
read, so that an error can name the place it came from.
"""
from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any, get_origin, get_type_hints

from msgspec import Struct, ValidationError, convert

from mqcore.broker.settings.model import SettingsError
from mqcore.tls.settings import SECRETS
from mqcore.wire.expected import expected, known_names, one_line, wrong

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
            raise SettingsError(f"{source}: unknown section [{one_line(section)}]; "
                                f"{known_names(section, self._types)}")
        kind = self._types[section].get(key)
        if kind is None:
            elsewhere = [f"{other}.{key}" for other, keys in self._types.items() if key in keys]
            wanted = (f"did you mean {' or '.join(elsewhere)}?" if elsewhere
                      else known_names(key, self._types[section]))
            raise SettingsError(f"{source}: unknown key {one_line(shown)}; {wanted}")

        def refused(wanted: str) -> str:
            if section == "tls" and key in SECRETS:
                return f"{source}: {shown}: expected {wanted}"
            return wrong(source, shown, value, wanted)

        parsed = value
        if as_text and get_origin(kind) is tuple:
            parsed = [part.strip() for part in re.split(r"[;,]", value) if part.strip()]
        try:
            converted = convert(parsed, kind, strict=not as_text)
        except (ValidationError, UnicodeError):
            raise SettingsError(refused(expected(kind))) from None
        for text in converted if isinstance(converted, tuple) else (converted,):
            if isinstance(text, str) and _CONTROL.search(text):
                raise SettingsError(refused("text of one line, without control characters"))
        self._values[section][key] = converted
        self._sources[f"{section}.{key}"] = source
