"""The API reference (docs/reference.py) is whole: what applications call is told."""
from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from docs import reference
from docs.reference import Member

LINK = re.compile(r"\]\(([\w.]+)#(\w+)\)")
EVERYTHING = {member.name: member for _, member in reference.public()}
CALLS_NOBODY = {"Message", "MessageQueue"}      # what these do is done when they return


def calls() -> Iterator[tuple[str, Member, Member]]:
    """(name, class or function, call) of all that is called."""
    for name, member in EVERYTHING.items():
        if getattr(member.value, "__name__", "") == name:       # not another name of something
            if member.call is not None:
                yield name, member, member
            yield from ((f"{name}.{one.name}", member, one) for one in member.members.values()
                        if one.call is not None)


def told(owner: Member, call: Member, depth: int = 3) -> str:
    """Its docstring, and those that it leaves something to."""
    texts = [call.text]
    for name in reference.LEFT_TO.findall(call.text) if depth else ():
        first, _, second = name.partition(".")
        there = EVERYTHING.get(first)
        if not second and first in owner.members:
            there, second = owner, first
        if there is not None:
            texts.append(told(there, there.members[second] if second else there, depth - 1))
    return "\n".join(texts)


def is_dataclass_of_results(call: Member) -> bool:
    """Results are made by the client, and their fields are attributes."""
    return inspect.isclass(call.value) and call.name not in CALLS_NOBODY | {"ClientConfig"} and (
        hasattr(call.value, "__dataclass_fields__"))


def test_every_name_and_member_has_a_docstring() -> None:
    silent = [name for name, member in EVERYTHING.items() if not member.text]
    silent += [name for name, _, call in calls() if not call.text]
    silent += [f"{name}.{one.name}" for name, member in EVERYTHING.items()
               for one in member.members.values()
               if isinstance(one.value, property) and not one.text]
    assert silent == []


def test_every_parameter_is_told() -> None:
    silent = [f"{name}({parameter})" for name, owner, call in calls()
              if call.call is not None and not is_dataclass_of_results(call)
              for parameter in call.call.parameters
              if not re.search(rf"\b{parameter}\b", told(owner, call))]
    assert silent == []


def test_every_float_has_a_unit() -> None:
    silent = [f"{name}({one.name})" for name, owner, call in calls()
              if call.call is not None and not is_dataclass_of_results(call)
              for one in call.call.parameters.values() if "float" in str(one.annotation)
              and not re.search(r"\bseconds?\b", told(owner, call))]
    assert silent == []


def test_what_asks_somebody_tells_its_errors() -> None:
    silent = [name for name, owner, call in calls()
              if call.is_async and "Methods raise " not in owner.text
              and not re.search(r"\b[Rr]aises?\b", told(owner, call))]
    assert silent == []


def test_the_pages_are_written_without_a_warning_and_their_links_lead_somewhere(
    tmp_path: Path,
) -> None:
    subprocess.run([sys.executable, "-W", "error", "-m", "docs.reference", tmp_path], check=True,
                   timeout=60, cwd=Path(reference.__file__).parents[1])
    pages = {page.name: page.read_text() for page in tmp_path.iterdir()}
    heads = {name: {head.lower().replace(".", "").replace(" ", "-")
                    for head in re.findall(r"^#+ (.*)$", text, re.M)}
             for name, text in pages.items()}
    links = [(name, *link) for name, text in pages.items() for link in LINK.findall(text)]

    assert len(links) > 100
    assert [link for link in links if link[2] not in heads.get(link[1], ())] == []
    for name in EVERYTHING:
        assert f"[{name}](" in pages["README.md"]
