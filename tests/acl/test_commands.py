"""`mqcore acl init` and `mqcore acl check`."""
from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from mqcore.acl.folder import AclFolder
from mqcore.admin.cli import main


def test_a_first_file_has_random_keys_and_is_for_its_owner_alone(tmp_path: Path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        done = CliRunner().invoke(main, ["acl", "init", str(tmp_path / name)])
        assert done.exit_code == 0, done.output
    rules = [AclFolder(tmp_path / name).read(stock_permissions=False) for name in ("a", "b")]
    assert not set(rules[0].accounts) & set(rules[1].accounts)
    assert [one.admin for one in rules[0].accounts.values()] == [True, False]
    assert all(len(one.secret_key) == 32 for one in rules[0].accounts.values())
    assert all(one.secret_key not in done.output for one in rules[1].accounts.values())
    file = tmp_path / "a" / "plain_acl.yml"
    assert file.stat().st_mode & 0o777 == 0o600
    before = file.read_bytes()
    again = CliRunner().invoke(main, ["acl", "init", str(file)])
    assert (again.exit_code, file.read_bytes()) == (1, before)
    assert "is there already" in again.output


def test_a_check_says_what_is_wrong(tmp_path: Path):
    file = tmp_path / "plain_acl.yml"
    file.write_text("accounts:\n- accessKey: RocketMQ\n  secretKey: 12345678\n")
    file.chmod(0o644)
    done = CliRunner().invoke(main, ["acl", "check", str(tmp_path)])
    assert done.exit_code == 0
    assert f"{file}: 1 accounts, 0 administrators" in done.output
    assert "chmod 600" in done.output
    file.write_text("accounts:\n- accessKey: RocketMQ\n  secretKey: short\n")
    for path in (tmp_path, file):
        done = CliRunner().invoke(main, ["acl", "check", str(path)])
        assert done.exit_code == 1
        assert f"{file}:3: secretKey: 5 characters" in done.output
    (tmp_path / "empty").mkdir()
    done = CliRunner().invoke(main, ["acl", "check", str(tmp_path / "empty")])
    assert (done.exit_code, "no plain_acl.yml" in done.output) == (1, True)
