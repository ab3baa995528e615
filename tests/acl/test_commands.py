"""`mqcore acl init` and `mqcore acl check`."""
from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result

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


def init(path: Path) -> Result:
    return CliRunner().invoke(main, ["acl", "init", str(path)])


def test_a_folder_that_is_not_there_is_made(tmp_path: Path):
    """As docs/security.md has it; a file of the folder's name would be read by no broker."""
    folder = tmp_path / "to" / "come"
    done = init(folder)
    assert done.exit_code == 0, done.output
    assert folder.stat().st_mode & 0o777 == 0o700
    assert len(AclFolder(folder).read(stock_permissions=False).accounts) == 2
    assert f'acl.folder = "{folder}"' in done.output


def test_a_file_is_named_by_its_end_and_told_where_it_counts(tmp_path: Path):
    for name, said in (("here/plain_acl.yml", f'acl.folder = "{tmp_path / "here"}"'),
                       ("there/acl/more.yaml", f'acl.folder = "{tmp_path / "there"}"'),
                       ("odd.yml", f"no broker reads a file of this name here: expected "
                                   f"{tmp_path / 'plain_acl.yml'}")):
        done = init(tmp_path / name)
        assert done.exit_code == 0, done.output
        assert said in done.output
        assert (tmp_path / name).is_file()
    for folder in ("here", "there"):
        assert len(AclFolder(tmp_path / folder).read(stock_permissions=False).accounts) == 2


def test_what_is_no_folder_gets_no_file(tmp_path: Path):
    taken = tmp_path / "taken"
    taken.write_text("something else")
    for path in (taken, taken / "plain_acl.yml"):
        done = init(path)
        assert done.exit_code == 1
        assert f"{taken}: expected a folder, or a file whose name ends with .yml" in done.output
    assert taken.read_text() == "something else"


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
