"""The guide of the client (docs/client) is true: its examples print what it says, its tables name
what there is."""
from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mqcore.client
from mqcore.client.config import ClientConfig
from mqcore.client.consume.lite_pull import LitePullSettings
from mqcore.client.consume.options import GroupSettings, PushSettings
from mqcore.client.core.retry import RETRY_CODES
from mqcore.client.produce.producer_config import ProducerConfig
from mqcore.testing import Broker, broker

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs/client").glob("*.md"))
EXAMPLES = [page for page in PAGES if "```python" in page.read_text(encoding="utf-8")]
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.M | re.S)
ADDRESS = "127.0.0.1:9876"
CALL = re.compile(rf'(\w+)\(([^()]*namesrv="{ADDRESS}"[^()]*)\)')
PATIENCE_S = 60.0               # of a role, where a page leaves it at 3 s: others use the machine
PAGE_LIMIT_S = 120
OPTIONS = (ROOT / "docs/client/options.md").read_text(encoding="utf-8")
MIGRATION = (ROOT / "docs/client/migration.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with broker() as started:
        yield started


@pytest.mark.parametrize("page", EXAMPLES, ids=lambda page: page.stem)
def test_the_examples_of_a_page_print_what_it_says(
    page: Path, running: Broker, tmp_path: Path
) -> None:
    """One script of all blocks of a page, in order; a text block is what those before it print."""
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    script = tmp_path / "page.py"
    program = "\n".join(text for kind, text in blocks if kind == "python")
    script.write_text(CALL.sub(patient, program).replace(ADDRESS, running.namesrv),
                      encoding="utf-8")

    run = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False,
        timeout=PAGE_LIMIT_S, env={**os.environ, "NAMESRV_ADDR": running.namesrv})

    assert run.returncode == 0, run.stderr
    assert run.stdout == "".join(text for kind, text in blocks if kind == "text")


def patient(call: re.Match[str]) -> str:
    """The making of a role that waits longer for a broker."""
    role, given = call.groups()
    options = ["call_timeout", *["send_timeout"][:role.endswith("Producer")]]
    more = [f"{option}={PATIENCE_S}" for option in options if option not in given]
    return f"{role}({', '.join([given, *more])})"


def rows(text: str, title: str) -> list[list[str]]:
    """The rows of the first table of a section, without its head."""
    section = text.partition(f"## {title}")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip().replace(r"\|", "|") for cell in re.split(r" (?<!\\)\| ", line[2:])]
            for line in lines[1:]]


def shown(value: Any) -> str:
    """A default as the page writes it."""
    if value == RETRY_CODES:
        return " ".join(str(int(code)) for code in sorted(value))
    if callable(value):
        return str(value.__name__)
    if isinstance(value, str):
        return value or "''"
    return str(value) if type(value) in (int, float, bool, tuple, dict, type(None)) else (
        f"{type(value).__name__}.{value.name}")


def options_of(kind: type, above: type | None = None) -> dict[str, str]:
    inherited = {field.name for field in dataclasses.fields(above)} if above else set()
    return {field.name: shown(
                field.default_factory() if field.default is dataclasses.MISSING
                and field.default_factory is not dataclasses.MISSING else field.default)
            for field in dataclasses.fields(kind) if field.name not in inherited}


@pytest.mark.parametrize(("title", "kind", "above"), [
    ("Every role", ClientConfig, None), ("Producers", ProducerConfig, None),
    ("Consumers with a group", GroupSettings, None),
    ("Push consumers", PushSettings, GroupSettings),
    ("Lite pull consumers", LitePullSettings, GroupSettings)],
    ids=lambda value: value if isinstance(value, str) else "")
def test_the_options_and_defaults_are_those_of_the_code(
    title: str, kind: type, above: type | None
) -> None:
    said = {name.strip("`"): default.strip("`") for name, default, *_ in rows(OPTIONS, title)}

    assert said == options_of(kind, above)


def test_the_names_that_a_migration_leads_to_are_there() -> None:
    named = {name for row in re.findall(r"^\| .* \| (.*) \|$", MIGRATION, re.M)
             for name in re.findall(r"`([A-Z]\w+(?:\.\w+)?)[`(]", row)}
    missing = []
    for name in sorted(named):
        owner, _, attribute = name.partition(".")
        found = getattr(mqcore.client, owner, None)
        fields = getattr(found, "__dataclass_fields__", {})
        if found is None or (attribute and attribute not in fields and not hasattr(
                found, attribute)):
            missing.append(name)

    assert len(named) > 20
    assert missing == []


@pytest.mark.parametrize(("page", "first", "roles"), [
    ("admin", "about", (mqcore.client.Admin, mqcore.client.AsyncAdmin)),
    ("push-consumer", "call", (mqcore.client.PushConsumer, mqcore.client.AsyncPushConsumer)),
    ("consumer", "call", (mqcore.client.Consumer, mqcore.client.BlockingDelivery)),
])
def test_the_calls_of_a_table_are_there(page: str, first: str, roles: tuple[type, ...]) -> None:
    text = (ROOT / f"docs/client/{page}.md").read_text(encoding="utf-8")
    table = text.partition(f"\n| {first} |")[2].partition("\n\n")[0]
    column = 1 if page == "admin" else 0
    named = [name for line in table.splitlines()[2:]
             for name in re.findall(r"`(?:message\.)?(\w+)", line.split("|")[column + 1])]

    assert len(named) > 3
    assert [name for name in named if not any(hasattr(role, name) for role in roles)] == []


def test_the_errors_of_the_page_are_those_of_the_code() -> None:
    page = (ROOT / "docs/client/errors.md").read_text(encoding="utf-8")
    said = {re.findall(r"`(\w+)`", row[0])[0] for row in rows(page, "Errors")}
    code = {kind.__name__ for name in mqcore.client.__all__
            if isinstance(kind := getattr(mqcore.client, name), type)
            and issubclass(kind, mqcore.client.RocketMQError)}

    assert said == code - {"RocketMQError", "ClientError", "RemotingError"}
