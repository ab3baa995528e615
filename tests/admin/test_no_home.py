"""A user id without HOME and without an entry in the user database, as containers run with any."""
from __future__ import annotations

import os
from pathlib import Path

import click
import pytest

from mqcore.admin.shell.connection import connection
from mqcore.broker.settings.load import load
from mqcore.broker.settings.model import SettingsError
from mqcore.client.consume.stores import LocalOffsets
from mqcore.client.errors import ConfigError
from mqcore.namesrv.kv import KeyValues
from mqcore.namesrv.runtime import RuntimeConfig
from mqcore.namesrv.settings import NamesrvSettings


@pytest.fixture(params=["none", "empty"])
def no_home(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Path:
    """The working directory, in which no folder "~" may be made."""
    if request.param == "empty":
        monkeypatch.setenv("HOME", "")
    else:
        monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_broker_needs_no_home_but_for_paths_in_it(no_home: Path) -> None:
    store = no_home / "store"
    assert load(None, {}, [f"store.path={store}"]).store.path == str(store)
    for given, key in ((["acl.enable=true", f"store.path={store}"], "acl.folder"),
                       ([], "store.path"), ([f"store.path={store}", "log.file=~/x"], "log.file"),
                       ([f"store.path={store}", "tls.certificate=~/x"], "tls")):
        with pytest.raises(SettingsError, match=f"{key}.*this user has no home folder: set HOME"):
            load(None, {}, given)
    assert os.listdir(no_home) == []


def test_a_name_server_serves_and_refuses_what_it_cannot_keep(no_home: Path) -> None:
    settings = NamesrvSettings()
    table = KeyValues(settings.kv_file)
    with pytest.raises(OSError, match="no home folder"):
        table.put("ORDER_TOPIC_CONFIG", "T", "broker-a:4")
    assert table.get("ORDER_TOPIC_CONFIG", "T") is None
    runtime = RuntimeConfig(settings)
    with pytest.raises(OSError, match="no home folder"):
        runtime.update(b"orderMessageEnable=true")
    assert not runtime.settings.order_message_enable
    assert os.listdir(no_home) == []


def test_commands_have_no_context_unless_one_is_named(
        no_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    assert connection(None, None, None).credentials is None
    with pytest.raises(click.ClickException, match="no home folder"):
        connection(None, "default", None)


def test_a_broadcasting_member_says_which_option_it_needs(no_home: Path) -> None:
    with pytest.raises(ConfigError, match=r"offsets_folder: .*no home folder"):
        LocalOffsets(None, "G", None)                        # type: ignore[arg-type]
    LocalOffsets(None, "G", no_home / "offsets")             # type: ignore[arg-type]
