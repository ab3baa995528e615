"""
Writes the API reference of the client, Markdown pages made of its docstrings: `make docs`.

usage: python -m docs.reference [FOLDER]        (build/docs)
"""
from __future__ import annotations

import enum
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import MemberDescriptorType
from typing import Any

import mqcore.client
import mqcore.client.patterns
import mqcore.testing

MODULES = (mqcore.client, mqcore.client.patterns, mqcore.testing)
FOLDER = Path(__file__).parents[1] / "build/docs"
ENTRY = re.compile(r"(\*{0,2}\w+(?:, \w+)*) {2,}(?=\S)")    # `timeout   seconds for all tries`
# begins what is not for applications
INSIDE = re.compile(r"\s*Of the (client itself|member|relay): ")
SIGNED = re.compile(r"[\w.]+\(.*\)\n\n")                 # Cython's first line
# What a docstring leaves to another one: "as AsyncProducer.send", "errors are those of `send`"
LEFT_TO = re.compile(
    r"\b(?:as|as of|like|those of|name of|see)\s+`?((?:[A-Z]\w+\.)?\w+)\b(?!\()", re.I)


@dataclass(slots=True)
class Member:
    """Something with a name that applications use: a function, class, method or attribute."""

    name: str
    text: str                                           # its docstring
    call: inspect.Signature | None = None               # None: it is not called
    is_async: bool = False
    members: dict[str, Member] = field(default_factory=dict)
    value: Any = None


def public() -> Iterator[tuple[str, Member]]:
    """Each public name's module, and what it is."""
    for module in MODULES:
        for name in module.__all__:
            value = getattr(module, name)
            yield module.__name__, (
                a_class(name, value) if inspect.isclass(value) else a_function(name, value))


def a_class(name: str, kind: type) -> Member:
    found: dict[str, Any] = {}
    for base in kind.__mro__:
        if base.__module__.startswith("mqcore"):
            for key, value in {**dict.fromkeys(inspect.get_annotations(base)),
                               **vars(base)}.items():
                found.setdefault(key, value)
    constructor = found.get("__init__")
    text = doc(kind)
    made = Member(name, text, value=kind)
    if constructor is not None and not INSIDE.match(doc(constructor)) and (
            not issubclass(kind, BaseException | enum.Enum)):
        made.call = without_self(constructor)
        made.text = f"{text}\n\n{doc(constructor)}".strip()
    for key, value in found.items():
        member = None if key.startswith("_") else a_member(key, value)
        if member is not None and not INSIDE.match(member.text):
            made.members[key] = member
    return made


def a_member(name: str, value: Any) -> Member | None:
    """None for what is no member that is used: a constant."""
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    value = getattr(value, "__wrapped__", value)
    if callable(value) and not inspect.isclass(value):
        return a_function(name, value)
    if value is None or isinstance(value, property | MemberDescriptorType | enum.Enum) or (
            inspect.isgetsetdescriptor(value)):
        return Member(name, doc(value) if isinstance(value, property) else "", value=value)
    return None


def a_function(name: str, function: Callable[..., Any]) -> Member:
    return Member(name, doc(function), without_self(function),
                  inspect.iscoroutinefunction(function), value=function)


def doc(value: Any) -> str:
    text = inspect.cleandoc(value.__doc__) if value.__doc__ else ""
    return SIGNED.sub("", text)


def without_self(function: Callable[..., Any]) -> inspect.Signature:
    signature = inspect.signature(function)
    return signature.replace(parameters=[
        one for one in signature.parameters.values() if one.name not in ("self", "cls")])


def is_waiting(kind: Any, name: str) -> bool:
    """Whether a class waits for what this asyncio method does: Admin's methods are such."""
    return not inspect.iscoroutinefunction(vars(kind).get(name)) and hasattr(
        vars(kind).get(name), "__wrapped__")


# -- pages ----------------------------------------------------------------------------------------


def page_of(member: Member) -> str:
    if not inspect.isclass(member.value):
        return "functions"
    return "errors" if issubclass(member.value, BaseException) else member.name


def pages() -> dict[str, str]:
    """File names and texts; README.md lists all names."""
    texts: dict[str, list[str]] = {}
    index = ["# API reference"]
    places: dict[str, str] = {}
    everything = list(public())
    for _, member in everything:
        places[member.name] = f"{page_of(member)}.md#{member.name.lower()}"
    module = ""
    for name, member in everything:
        if name != module:
            module = name
            index += [f"## {module}", "| name | what |\n|---|---|"]
        summary = member.text.partition("\n\n")[0].replace("\n", " ").partition(". ")[0]
        index[-1] += f"\n| [{member.name}]({places[member.name]}) | {summary} |"
        texts.setdefault(page_of(member), []).extend(section(module, member))
    made = {f"{page}.md": linked("\n\n".join(parts), page, places) for page, parts in texts.items()}
    return {"README.md": "\n\n".join(index) + "\n", **made}


def section(module: str, member: Member) -> Iterator[str]:
    """A class or function and what it has."""
    kind = member.value
    yield f"# {member.name}"
    if not inspect.isclass(kind):
        yield code(f"{module}.{member.name}", member)
        yield as_markdown(member.text)
        return
    if kind.__name__ != member.name:
        yield f"Another name of `{kind.__name__}`."
        return
    yield code(f"{module}.{member.name}", member)
    bases = [base.__name__ for base in kind.__mro__[1:] if base.__name__ in mqcore.client.__all__]
    if bases:
        yield f"Is a {', '.join(f'`{base}`' for base in bases)}."
    yield as_markdown(member.text)
    plain = [one for one in member.members.values() if one.call is None and (
        one.text or not re.search(rf"\b{one.name}\b", member.text))]
    if plain:
        yield "## Attributes"
        yield "\n".join(f"- **{one.name}** {one.text}".rstrip().replace("\n", " ") for one in plain)
    for one in member.members.values():
        if one.call is not None:
            one.is_async = one.is_async and not is_waiting(kind, one.name)
            yield f"## {member.name}.{one.name}"
            yield code(one.name, one)
            yield as_markdown(one.text)


def code(name: str, member: Member) -> str:
    """How it is called."""
    if member.call is None:
        return f"```python\n{name}\n```"
    given = [str(one.replace(annotation=one.empty) if one.annotation is one.empty else one)
             .replace(f"'{one.annotation}'", str(one.annotation))
             for one in member.call.parameters.values()]
    stars = [one.kind for one in member.call.parameters.values()]
    if inspect.Parameter.KEYWORD_ONLY in stars and inspect.Parameter.VAR_POSITIONAL not in stars:
        given.insert(stars.index(inspect.Parameter.KEYWORD_ONLY), "*")
    returned = "" if inspect.isclass(member.value) or (
        member.call.return_annotation is member.call.empty
    ) else f" -> {member.call.return_annotation}"
    line = f"{'async ' * member.is_async}{name}({', '.join(given)}){returned}"
    if len(line) > 100:
        listed = "".join(f"    {one},\n" for one in given)
        line = f"{'async ' * member.is_async}{name}(\n{listed}){returned}"
    return f"```python\n{line}\n```"


def as_markdown(text: str) -> str:
    """A docstring, with a list of its entries."""
    lines: list[str] = []
    column = 0                      # where the text of the entry at hand stands, 0 = there is none
    for line in text.splitlines():
        found = ENTRY.match(line)
        is_entry = column and line.startswith(" " * column)
        if bool(found) != bool(column) and line and not is_entry and lines and lines[-1]:
            lines.append("")
        if found:
            lines.append(f"- **{found[1]}**: {line[found.end():]}")
            column = found.end()
        elif is_entry:
            lines.append(f"  {line[column:]}")
        else:
            lines.append(line)
            column = 0
    return "\n".join(lines)


def linked(text: str, page: str, places: dict[str, str]) -> str:
    """Classes that are named outside of code lead to their pages."""
    classes = [name for name in places if name[0].isupper()]
    names = "|".join(sorted(classes, key=len, reverse=True))
    parts = re.split(r"(^```.*?^```|`[^`\n]*`|^#.*?$)", text, flags=re.M | re.S)
    for at in range(0, len(parts), 2):
        parts[at] = re.sub(rf"\b({names})(\.\w+)?\b", lambda one: (
            one[0] if places[one[1]].startswith(f"{page}.md") else
            f"[{one[0]}]({places[one[1]].partition('#')[0]}#"
            f"{one[0].lower().replace('.', '')})"), parts[at])
    return "".join(parts) + "\n"


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
