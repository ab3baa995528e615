"""`mqcore context`, and what commands take of contexts, variables and options."""
from __future__ import annotations

import contextlib
import json
import os
import pty
import sys
from pathlib import Path

import click
import pytest

from mqcore.admin.shell import contexts
from mqcore.admin.shell.connection import connection
from tests.command.conftest import Cluster
from tests.support.command import mqcore
from tests.support.mqcore_process import MQCORE

SECRET = "a-secret-of-many-letters"


def write(name: str, text: str, mode: int = 0o600) -> Path:
    """A file of a context."""
    file = contexts.folder() / "contexts" / f"{name}.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(mode)
    return file


def test_a_context_is_added_used_shown_and_removed(ours: Cluster) -> None:
    assert mqcore("context", "ls").stdout == "no contexts; `mqcore context add`\n"
    assert mqcore("context", "show").returncode == 3
    assert mqcore("context", "add", "here", ours.namesrv, "--use").returncode == 0
    file = contexts.folder() / "contexts" / "here.toml"
    assert file.stat().st_mode & 0o777 == 0o600
    assert json.loads(mqcore("context", "show", "--json").stdout) == {
        "name": "here", "namesrv": ours.namesrv, "accessKey": None, "secret": None,
        "confirm": False, "error": None}
    (row,) = json.loads(mqcore("context", "ls", "--json").stdout)["contexts"]
    assert (row["name"], row["inUse"]) == ("here", True)

    assert mqcore("topic", "ls").returncode == 0                 # the one in use
    assert mqcore("context", "check").returncode == 0
    assert ours.broker_name in mqcore("context", "check", "-x", "here").stdout
    assert mqcore("context", "add", "here", "h:1").returncode == 1
    assert mqcore("context", "rm", "here").returncode == 2
    assert "context here" in mqcore("context", "rm", "here", "--dry-run").stdout
    assert mqcore("context", "rm", "here", "--yes").returncode == 0
    assert contexts.current() is None
    assert mqcore("context", "rm", "here", "--yes").returncode == 3


def test_options_win_over_variables_which_win_over_the_context_in_use(
        monkeypatch: pytest.MonkeyPatch) -> None:
    write("one", 'namesrv = "one:1"\naccess_key = "ops"\nsecret_key = "s"\n')
    write("two", 'namesrv = "two:2"\n')
    assert connection(None, None, None).namesrv == "127.0.0.1:9876"
    contexts.use("one")
    found = connection(None, None, None)
    assert (found.namesrv, found.context) == ("one:1", "one")
    assert found.credentials is not None
    assert found.credentials.access_key == "ops"
    monkeypatch.setenv("NAMESRV_ADDR", "variable:3")
    assert connection(None, None, None).namesrv == "variable:3"
    monkeypatch.setenv("MQCORE_CONTEXT", "two")
    assert connection(None, None, None).namesrv == "two:2"
    assert connection(None, "one", None).namesrv == "one:1"
    assert connection("option:4", None, None).namesrv == "option:4"
    with pytest.raises(click.UsageError, match="not both"):
        connection("option:4", "one", None)


def test_a_context_s_account_goes_to_its_own_name_servers_only(
        monkeypatch: pytest.MonkeyPatch) -> None:
    write("one", f'namesrv = "one:1"\naccess_key = "ops"\nsecret_key = "{SECRET}"\n')
    contexts.use("one")

    assert connection("another:1", None, None).credentials is None
    monkeypatch.setenv("NAMESRV_ADDR", "another:1")
    assert connection(None, None, None).credentials is None


def test_a_secret_comes_from_a_command(tmp_path: Path) -> None:
    script = tmp_path / "secret"
    script.write_text(f"#!{sys.executable}\nprint('{SECRET}')\n")
    script.chmod(0o700)
    write("one", f'namesrv = "one:1"\naccess_key = "ops"\nsecret_command = "{script}"\n')

    found = connection(None, "one", None).credentials
    assert found is not None
    assert found.secret_key == SECRET
    script.write_text(f"#!{sys.executable}\nprint('{SECRET}')\nraise SystemExit(3)\n")
    with pytest.raises(click.ClickException, match="found status 3") as raised:
        connection(None, "one", None)
    assert SECRET not in raised.value.message


@pytest.mark.parametrize(("text", "said"), [
    ("namesrv = ", "not a TOML file"), ("", "namesrv: expected"), ("namesrv = 7", "namesrv: exp"),
    ('namesrv = ""', "namesrv: expected text"), ('namesrv = "h:1"\nx = 1', "unknown key x"),
    ('namesrv = "h:1"\nconfirm = "yes"', "confirm: expected true or false"),
    ('namesrv = "h:1"\naccess_key = "a"', "access_key: expected beside it one of secret_key"),
    (f'namesrv = "h:1"\nsecret_key = "{SECRET}"', "access_key: expected beside it"),
    (f'namesrv = "h:1"\naccess_key = "a"\nsecret_key = "{SECRET}"\nsecret_command = "x"',
     "access_key: expected beside it"),
    ('namesrv = "h:port"', "one.toml"),
])
def test_a_bad_file_is_one_line_that_shows_no_secret(text: str, said: str) -> None:
    write("one", text)

    with pytest.raises(click.ClickException) as raised:
        contexts.load("one")
    assert said in raised.value.message
    assert SECRET not in raised.value.message
    assert "\n" not in raised.value.message


def test_a_file_that_others_may_read_or_that_is_no_file_is_refused() -> None:
    file = write("one", 'namesrv = "h:1"\n', 0o640)
    with pytest.raises(click.ClickException, match="chmod 600"):
        contexts.load("one")
    file.unlink()
    os.mkfifo(file, 0o600)
    with pytest.raises(click.ClickException, match="expected a regular file"):
        contexts.load("one")


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".hidden", "a" * 65, "a\n"])
def test_a_name_that_is_a_path_is_refused(name: str) -> None:
    with pytest.raises(click.ClickException, match="expected letters"):
        contexts.load(name)
    assert mqcore("context", "add", name, "h:1").returncode == 2


def test_without_a_terminal_a_delete_wants_yes(ours: Cluster) -> None:
    ours.run("topic", "create", "C-kept")

    status, said = ours.refused("topic", "rm", "C-kept")
    assert status == 2
    assert said == "delete topic C-kept: there is no terminal to ask: give --yes"
    assert "C-kept" in ours.text("topic", "ls", "-q")


@pytest.mark.parametrize(("confirm", "typed", "gone"), [
    (False, "n", False), (False, "y", True), (True, "y", False), (True, "C-asked", True)])
def test_a_terminal_is_asked(ours: Cluster, confirm: bool, typed: str, gone: bool) -> None:
    ours.run("topic", "create", "C-asked")
    contexts.save(contexts.Context("prod", ours.namesrv, confirm=confirm), replace=True)

    status, said = at_a_terminal("topic", "rm", "C-asked", "-x", "prod", typed=typed)
    assert "delete topic C-asked with 0 messages" in said
    assert status == (0 if gone else 1)
    assert ("C-asked" in ours.text("topic", "ls", "-q").splitlines()) is not gone
    ours.run("topic", "create", "C-asked")


def at_a_terminal(*words: str, typed: str) -> tuple[int, str]:
    """The exit status of a command at a terminal where `typed` is typed, and the screen."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [*MQCORE, *words])
    said = b""
    answered = False
    with contextlib.suppress(OSError):             # the end of a terminal is an error
        while chunk := os.read(terminal, 4096):
            said += chunk
            if not answered and (b"?" in said or b"to confirm:" in said):
                os.write(terminal, typed.encode() + b"\n")
                answered = True
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    return os.waitstatus_to_exitcode(status), said.decode()


def test_secrets_of_any_characters_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    for secret in ('a"b\\c', "tab\there", "\u00fc\u4e2d", "'''", "\x7f"):
        contexts.save(contexts.Context("one", "h:1", "a", secret), replace=True)
        assert contexts.load("one").secret_key == secret
