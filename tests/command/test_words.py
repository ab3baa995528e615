"""The words of the command: groups, short forms, near matches, help without imports."""
from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.command import mqcore


@pytest.mark.parametrize("words", [
    ("broker", "--set", "nonsense"), ("broker", "run", "--set", "nonsense"),
])
def test_a_broker_without_a_verb_is_run(words: tuple[str, ...]) -> None:
    done = mqcore(*words)

    assert done.returncode == 2
    assert "section.key=value" in done.stderr.lower() or "nonsense" in done.stderr


@pytest.mark.parametrize("name", ["send", "consume", "verify", "repair", "backup", "restore"])
def test_short_forms_are_the_long_ones_and_stand_in_no_help(name: str) -> None:
    noun = "message" if name in ("send", "consume") else "store"

    short, long = mqcore(name, "-h"), mqcore(noun, name, "-h")
    assert short.returncode == long.returncode == 0
    assert short.stdout.partition("\n")[2] == long.stdout.partition("\n")[2]
    assert f"\n  {name} " not in mqcore("-h").stdout


@pytest.mark.parametrize(("words", "said"), [
    (("topc", "ls"), "Did you mean 'topic'?"), (("store", "verfy"), "Did you mean 'verify'?"),
    (("xyzzy",), "No such command 'xyzzy'"),
])
def test_an_unknown_command_is_status_2_with_the_nearest_one(
        words: tuple[str, ...], said: str) -> None:
    done = mqcore(*words)

    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.parametrize("words", [["-h"], ["message", "-h"], ["store", "-h"], ["broker", "-h"]])
def test_help_loads_neither_the_client_nor_the_broker(words: list[str]) -> None:
    program = (
        "import sys; from mqcore.admin.cli import main\n"
        f"try: main({words!r})\n"
        "except SystemExit: pass\n"
        "print([n for n in sys.modules if n.startswith(('mqcore.client', 'mqcore.broker', "
        "'mqcore.spark', 'asyncio'))], file=sys.stderr)")

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          check=True)
    assert done.stderr.strip() == "[]"
    assert "Commands:" in done.stdout
