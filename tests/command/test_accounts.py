"""Commands sign in the name of an account, and say what is missing without showing a secret."""
from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import click
import pytest

from mqcore.admin.shell import contexts
from mqcore.admin.shell.connection import connection
from tests.support.command import mqcore
from tests.support.mqcore_process import MQCORE, mqcore_up

SECRET = "a-secret-of-many-letters"
RULES = f"""accounts:
- {{accessKey: the-admin, secretKey: {SECRET}, admin: true}}
- {{accessKey: the-reader, secretKey: {SECRET}, defaultTopicPerm: SUB, defaultGroupPerm: SUB}}
"""


def test_commands_ask_in_the_name_of_an_account(tmp_path: Path) -> None:
    folder = tmp_path / "broker"
    folder.mkdir()
    (folder / "plain_acl.yml").write_text(RULES)

    def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*MQCORE, *words], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, env={**os.environ, **environment})

    with mqcore_up(folder, {"acl.enable": True, "acl.namesrv_routes": "checked"}) as broker:
        for name, key in (("ops", "the-admin"), ("reader", "the-reader")):
            contexts.save(contexts.Context(name, broker.namesrv_addr, key, SECRET))
        send = ("message", "send", "-t", "Signed", "-p", "hello")
        refused = run(*send, "-n", broker.namesrv_addr)
        sent = run(*send, "-x", "ops")
        wrong = run(*send, "-n", broker.namesrv_addr, "--access-key", "the-admin",
                    MQCORE_SECRET_KEY="no-such-secret")
        read = run("message", "consume", "-x", "reader", "-t", "Signed", "-g", "readers",
                   "--count", "1", "--timeout", "30")
        listed = run("transaction", "ls", "-n", broker.namesrv_addr, "--json",
                     MQCORE_ACCESS_KEY="the-admin", MQCORE_SECRET_KEY=SECRET)
        created = run("topic", "create", "New", "-x", "reader")

    assert sent.returncode == 0, sent.stderr
    assert json.loads(read.stdout)["body"] == "hello", read.stderr
    assert json.loads(listed.stdout)["transactions"] == []
    assert refused.returncode == wrong.returncode == created.returncode == 6
    assert "No accessKey is configured" in refused.stderr
    assert "Check signature failed" in wrong.stderr
    assert SECRET not in refused.stderr + wrong.stderr + created.stderr


def test_an_account_without_a_secret_or_a_terminal_is_one_sentence(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", open(os.devnull))          # noqa: SIM115

    with pytest.raises(click.UsageError, match="its secret key is not in MQCORE_SECRET_KEY"):
        connection("h:1", None, "someone")


def test_accounts_of_a_running_broker_are_made_listed_and_deleted(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "broker"
    folder.mkdir()
    (folder / "plain_acl.yml").write_text(RULES)
    monkeypatch.setenv("MQCORE_ACCESS_KEY", "the-admin")
    monkeypatch.setenv("MQCORE_SECRET_KEY", SECRET)
    monkeypatch.setenv("MQCORE_NEW_SECRET_KEY", "another-secret")
    with mqcore_up(folder, {"acl.enable": True}) as broker:
        where = ("-n", broker.namesrv_addr)
        made = mqcore("acl", "user", "the-shop", "--topic-default", "PUB", "--group", "G=SUB",
                      *where, "--yes", "--json")
        assert json.loads(made.stdout)["group_perms"] == {"G": "SUB"}, made.stderr
        assert "another-secret" not in made.stdout + made.stderr
        assert "the-shop" in (folder / "plain_acl.yml").read_text()
        listed = mqcore("acl", "versions", *where, "--json")
        assert [row["file"] for row in json.loads(listed.stdout)["files"]] == [
            str(folder / "plain_acl.yml")]
        assert mqcore("acl", "white", "10.0.0.*", *where, "--yes").returncode == 0
        assert "10.0.0.*" in (folder / "plain_acl.yml").read_text()
        assert mqcore("acl", "rm", "the-shop", *where).returncode == 2        # no terminal
        assert mqcore("acl", "rm", "the-shop", *where, "--yes").returncode == 0
        assert "the-shop" not in (folder / "plain_acl.yml").read_text()
        assert mqcore("acl", "user", "x", "--topic", "T=ALL", *where, "--yes").returncode == 2
