"""Commands ask in the name of an account, and say what is missing without showing a secret."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from mqcore.admin.signing import credentials, read_profiles
from tests.support.mqcore_process import mqcore_up

SECRET = "a-secret-of-many-letters"
RULES = f"""accounts:
- {{accessKey: the-admin, secretKey: {SECRET}, admin: true}}
- {{accessKey: the-reader, secretKey: {SECRET}, defaultTopicPerm: SUB, defaultGroupPerm: SUB}}
"""
PROFILES = f"""[default]
access_key = "the-reader"
secret_key = "{SECRET}"
[ops]
access_key = "the-admin"
secret_key = "{SECRET}"
"""


@pytest.fixture
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "profiles.toml"
    file.touch(0o600)
    file.write_text(PROFILES)
    monkeypatch.setenv("MQCORE_PROFILES", str(file))
    return file


def test_the_account_comes_from_the_option_the_profile_or_the_file_s_default(
        profiles: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MQCORE_SECRET_KEY", "another")

    found = [credentials("given", None), credentials(None, "ops"), credentials(None, None)]
    assert [(one.access_key, one.secret_key) for one in found if one is not None] == [
        ("given", "another"), ("the-admin", SECRET), ("the-reader", SECRET)]


def test_without_any_of_them_a_command_does_not_sign(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MQCORE_PROFILES", str(tmp_path / "none.toml"))

    assert credentials(None, None) is None
    with pytest.raises(click.ClickException, match=r"none\.toml: cannot be read"):
        credentials(None, "ops")


@pytest.mark.parametrize(("text", "said"), [
    ("[ops\n", "not a TOML file"),
    ("ops = 1\n", "[ops]: expected a section"),
    (f'[ops]\nsecret_key = "{SECRET}"\n', "[ops]: access_key: expected text"),
    (f'[ops]\naccess_key = "a"\nsecret_key = "{SECRET}"\ntls = 1\n', "tls is no key of it"),
    (f'[ops]\naccess_key = 7\nsecret_key = "{SECRET}"\n', "access_key: expected text"),
    (f'[other]\naccess_key = "a"\nsecret_key = "{SECRET}"\n', "no section [ops]; it has other"),
    (f'[ops]\naccess_key = "a"\nsecret_key = "{SECRET}"\nsecurity_token = ""\n', "security_token"),
])
def test_a_bad_file_is_one_line_that_shows_no_secret(
        profiles: Path, text: str, said: str) -> None:
    profiles.write_text(text)

    with pytest.raises(click.ClickException) as raised:
        credentials(None, "ops")
    assert said in raised.value.message
    assert SECRET not in raised.value.message
    assert "\n" not in raised.value.message


def test_a_file_that_others_may_read_is_refused(profiles: Path) -> None:
    profiles.chmod(0o640)

    with pytest.raises(click.ClickException, match="chmod 600"):
        read_profiles(profiles)


def test_two_ways_at_once_and_a_secret_that_nobody_gives_are_usage_errors(
        profiles: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MQCORE_SECRET_KEY", raising=False)
    with pytest.raises(click.UsageError, match="not both"):
        credentials("a", "ops")
    with pytest.raises(click.UsageError, match="no terminal"):
        credentials("a", None)


@pytest.mark.slow
def test_commands_are_let_in_by_their_account(tmp_path: Path, profiles: Path) -> None:
    folder = tmp_path / "broker"
    folder.mkdir()
    (folder / "plain_acl.yml").write_text(RULES)

    def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-m", "mqcore.admin.cli", *words],
                              capture_output=True, text=True, stdin=subprocess.DEVNULL,
                              env={**os.environ, **environment})

    with mqcore_up(folder, {"acl.enable": True, "acl.namesrv_routes": "checked"}) as broker:
        send = ("send", "-n", broker.namesrv_addr, "-t", "Signed", "-p", "hello")
        refused = run(*send)
        sent = run(*send, "--profile", "ops")
        wrong = run(*send, "--access-key", "the-admin", MQCORE_SECRET_KEY="no-such-secret")
        read = run("consume", "-n", broker.namesrv_addr, "-t", "Signed", "-g", "readers",
                   "--count", "1", "--timeout", "30")
        listed = run("transaction", "list", "-b", broker.broker_addr, "--json",
                     MQCORE_ACCESS_KEY="the-admin", MQCORE_SECRET_KEY=SECRET)

    assert sent.returncode == 0, sent.stderr
    assert json.loads(read.stdout)["body"] == "hello", read.stderr
    assert json.loads(listed.stdout)["pending"] == []
    assert refused.returncode == wrong.returncode == 1
    assert "permission for topic" in refused.stderr
    assert "Check signature failed" in wrong.stderr
    assert SECRET not in refused.stderr + wrong.stderr
