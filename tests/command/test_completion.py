"""Completion of commands, options and names in a shell."""
from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from mqcore.admin.cli import main
from mqcore.admin.nouns.completion import VARIABLE
from mqcore.admin.shell import names
from tests.command.conftest import Cluster
from tests.support.ci import unavailable
from tests.support.command import mqcore
from tests.support.stock import free_port


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def complete(*words: str) -> list[str]:
    """The values that a shell gets for the last word."""
    *args, incomplete = words
    return [item.value for item in BashComplete(main, {}, "mqcore", VARIABLE).get_completions(
        args, incomplete)]


def test_commands_are_completed_without_loading_them() -> None:
    assert complete("to") == ["topic", "top"]
    assert complete("completion", "") == ["bash", "fish", "zsh"]
    assert "--namesrv" in complete("topic", "ls", "--na")
    modules = subprocess.run(
        [sys.executable, "-c", "import sys\nfrom tests.command.test_completion import complete\n"
         "before = set(sys.modules)\ncomplete('c')\nprint(*(set(sys.modules) - before))"],
        check=True, capture_output=True, text=True).stdout.split()
    assert [name for name in modules if name.startswith("mqcore.")] == []


def test_topics_and_groups_are_completed_for_the_name_server_that_is_given(
        cluster: Cluster) -> None:
    cluster.run("topic", "create", "V-first", "--queues", 1)
    cluster.run("topic", "create", "V-second", "--queues", 1)
    cluster.run("group", "create", "V-group")
    where = ("-n", cluster.namesrv)
    assert complete("topic", "show", *where, "V-") == ["V-first", "V-second"]
    assert complete("message", "find", *where, "-t", "V-s") == ["V-second"]
    assert complete("group", "show", *where, "V-") == ["V-group"]
    assert complete("topic", "show", *where, "none-of-these") == []


def test_names_are_kept_for_a_minute_in_a_file_of_their_owner(
        cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = ("-n", cluster.namesrv)
    assert complete("topic", "show", *where, "no-such-topic") == []
    (file,) = (tmp_path / "cache" / "mqcore").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    kept = {"topics": ["W-kept", "W-$(reboot)", "W b", "W\x1b[2J"], "groups": []}
    file.write_text(json.dumps(kept))
    assert complete("topic", "show", *where, "W") == ["W-kept"]
    old = file.stat().st_mtime - 61
    os.utime(file, (old, old))
    assert complete("topic", "show", *where, "W") == []
    file.write_text('{"topics": 7}')
    assert complete("topic", "show", *where, "W") == []


def test_a_cluster_that_is_away_completes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "WAIT_S", 0.2)
    assert complete("topic", "show", "-n", f"127.0.0.1:{free_port()}", "") == []
    assert complete("topic", "show", "-x", "no-such-context", "") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_script(shell: str) -> None:
    script = mqcore("completion", shell).stdout
    assert f"_MQCORE_COMPLETE={shell}_complete" in script


def test_bash_takes_its_script() -> None:
    if shutil.which("bash") is None:
        unavailable("needs bash")
    script = mqcore("completion", "bash").stdout
    said = subprocess.run(["bash", "-c", f"{script}\ncomplete -p mqcore"], check=True,
                          capture_output=True, text=True).stdout
    assert "_mqcore_completion mqcore" in said
