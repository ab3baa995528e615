"""Access files: what they may say, and what is said of those that are wrong."""
from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mqcore.acl.documents import VALUES_MAX
from mqcore.acl.folder import AclFolder
from mqcore.acl.followed import LOOK_MS, FollowedRules
from mqcore.acl.kept import KeptFiles
from mqcore.acl.nodes import SIZE_MAX, AclFileError
from mqcore.acl.rules import DENY, PUB, SUB, Rules, read_file
from mqcore.broker.ports import AtOnce
from mqcore.broker.saving import Saving
from tests.broker.fakes import NOW_MS, make_bench, settings_in

GOOD = """globalWhiteRemoteAddresses:
- 10.10.103.*
accounts:
- accessKey: RocketMQ
  secretKey: 12345678
  topicPerms: [topicA=DENY, topicB=PUB|SUB, ' topicC = SUB ']
  groupPerms: [groupA=what]
  defaultGroupPerm: SUB
  unknown: {a: 1}
dataVersion: [{counter: 3, timestamp: 7}]
"""


def test_a_file_as_it_is():
    found = read_file("f", GOOD.encode())
    (account,) = found.accounts
    assert (account.access_key, account.secret_key) == ("RocketMQ", "12345678")
    assert dict(account.permissions) == {
        "topicA": DENY, "topicB": PUB | SUB, "topicC": SUB,
        "%RETRY%groupA": DENY}
    assert (account.topic_default, account.group_default) == (DENY, SUB)
    assert (found.version.counter, found.version.timestamp) == (3, 7)
    assert found.document["accounts"][0]["unknown"] == {"a": 1}
    assert "12345678" not in repr(account) + repr(found)


@pytest.mark.parametrize(("text", "line", "expected"), [
    ("accounts: 5\n", 1, "expected a list"),
    ("- a\n", 1, "expected globalWhiteRemoteAddresses and accounts"),
    ("accounts:\n- accessKey: short\n  secretKey: 12345678\n", 2, "at least 7"),
    ("accounts:\n- accessKey: RocketMQ\n  secretKey: short!\n", 3, "at least 7"),
    ("accounts:\n- accessKey: RocketMQ\n", 2, "secretKey"),
    ("accounts:\n- 5\n", 2, "an account"),
    ("accounts:\n- accessKey: RocketMQ\n  secretKey: 12345678\n  topicPerms:\n  - a\n", 5,
     "expected name=PERM"),
    ("accounts:\n- accessKey: RocketMQ\n  secretKey: 12345678\n  topicPerms:\n  - a=b=c\n", 5,
     "expected name=PERM"),
    ("accounts:\n- accessKey: RocketMQ\n  secretKey: 12345678\n  admin: perhaps\n", 4,
     "true or false"),
    ("accounts:\n- accessKey: RocketMQ\n  secretKey: 12345678\n  admin: 2\n", 4, "true or false"),
    ("accounts:\n- accessKey: RocketMQ\n  secretKey: 12345678\n  AccessKey: Another\n", 4,
     "accessKey: expected once"),
    ("a: {<<: {b: 1}, <<: {c: 1}}\n", 1, "<<: expected once"),
    ("a:\n  <<: b\n", 2, "<<: expected a map"),
    ("x: &x {a: b}\ny: &y {<<: *x}\nz:\n  <<: [*x, *y]\n", 4, "without << in them"),
    ("accounts:\n- accessKey: RocketMQ\n  secretKey: 12345678\n  whiteRemoteAddress: 1.2.3\n", 4,
     "no address pattern"),
    ("globalWhiteRemoteAddresses:\n- 1.1.1.1\n- 10.0.0.1-300\n", 3, "no address pattern"),
    ("accounts:\n- accessKey: 1234567.5\n  secretKey: 12345678\n", 2, "in quotes"),
    ("accounts:\n- accessKey: !!python/object:os.system x\n", 2, "the tag"),
    ("accounts:\n- accessKey: [\n", 3, "no YAML"),
    ("a: *nobody\n", 1, "ends above"),
    ("a: &a [*a]\n", 1, "ends above"),
    ("a: b\n---\nc: d\n", 2, "a second document"),
    ("a: " + "[" * 100 + "]" * 100, 1, "deeper than"),
    ("dataVersion:\n- [1]\n", 2, "counter and timestamp"),
])
def test_a_wrong_file_is_refused_with_its_line(text: str, line: int, expected: str):
    with pytest.raises(AclFileError) as told:
        read_file("the-file.yml", text.encode())
    assert str(told.value).startswith(f"the-file.yml:{line}: ")
    assert expected in str(told.value)
    assert "short!" not in str(told.value)


def test_fields_of_accounts_count_in_any_spelling_and_are_written_in_their_own():
    found = read_file("f", b"accounts:\n- AccessKey: RocketMQ\n  secret_key: 12345678\n"
                           b"  isAdmin: 1\n  topic-perms: [a=DENY]\n  DEFAULTTOPICPERM: PUB\n")
    (account,) = found.accounts
    assert (account.access_key, account.admin, account.topic_default) == ("RocketMQ", True, PUB)
    assert dict(account.permissions) == {"a": DENY}
    assert set(found.document["accounts"][0]) == {
        "accessKey", "secretKey", "admin", "topicPerms", "defaultTopicPerm"}


def test_a_map_takes_from_others_what_it_does_not_say_itself():
    found = read_file("f", b"x: &x {secretKey: secret-1, admin: true}\ny: &y {admin: false}\n"
                           b"accounts:\n- {<<: [*y, *x], accessKey: account-1}\n"
                           b"- {admin: false, <<: *x, accessKey: account-2}\n"
                           b"- {<<: *x, accessKey: account-3}\n")
    assert [one.admin for one in found.accounts] == [False, False, True]
    assert {one.secret_key for one in found.accounts} == {"secret-1"}


def test_aliases_are_counted_as_often_as_they_repeat():
    laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10))
    with pytest.raises(AclFileError, match=f"more than {VALUES_MAX} values"):
        read_file("f", laughs.encode())
    merged = "a0: &a0 {" + ", ".join(f"k{n}: x" for n in range(1000)) + "}\nb:\n" + (
        "- {<<: *a0}\n" * (VALUES_MAX // 1000))
    with pytest.raises(AclFileError, match=f"more than {VALUES_MAX} values"):
        read_file("f", merged.encode())
    shared = ("names: &names [topicA=PUB]\naccounts:\n- {accessKey: account1, secretKey: secret-1, "
              "topicPerms: *names}\n"
              "- {accessKey: account2, secretKey: secret-2, topicPerms: *names}\n")
    assert [dict(one.permissions) for one in read_file("f", shared.encode()).accounts] == [
        {"topicA": PUB}] * 2


def test_files_below_acl_count_before_plain_acl(tmp_path: Path):
    for path, secret in (("plain_acl.yml", "of-plain"), ("acl/b.yaml", "of-acl-b"),
                         ("acl/deep/a.yml", "of-deep-a"), ("acl/notes.txt", "no yaml: [")):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(
            f"accounts:\n- accessKey: RocketMQ\n  secretKey: {secret}\n")
    rules = AclFolder(tmp_path).read(stock_permissions=False)
    assert rules.accounts["RocketMQ"].secret_key == "of-acl-b"
    assert rules.file_of == {"RocketMQ": str(tmp_path / "acl/b.yaml")}


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path):
    folder = AclFolder(tmp_path)
    os.mkfifo(folder.default_file)
    with pytest.raises(AclFileError, match="no regular file: expected one"):
        folder.read(stock_permissions=False)
    folder.default_file.unlink()
    folder.default_file.symlink_to("/dev/zero")
    with pytest.raises(AclFileError, match="no regular file: expected one"):
        folder.read(stock_permissions=False)


def test_neither_does_it_pass_for_a_file_that_was_taken_away(tmp_path: Path):
    """Below acl/, where other files may go on without what this one said."""
    folder = AclFolder(tmp_path)
    (tmp_path / "acl").mkdir()
    folder.default_file.write_text(GOOD)
    (tmp_path / "acl/later.yml").symlink_to(tmp_path / "not-there.yml")     # as an editor's lock
    assert folder.paths() == [folder.default_file]
    os.mkfifo(tmp_path / "acl/pipe.yml")
    with pytest.raises(AclFileError, match="no regular file: expected one"):
        folder.read(stock_permissions=False)


def test_a_folder_that_cannot_be_read_is_not_one_without_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
):
    (tmp_path / "acl/deep").mkdir(parents=True)
    (tmp_path / "acl/deep/a.yml").write_text(GOOD)
    follower = Follower(tmp_path)
    scandir = os.scandir

    def refused(path: str) -> Any:
        if str(path).endswith("deep"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)
    assert [follower.look() for _ in range(3)] == [False, False, False]
    with pytest.raises(PermissionError):
        follower.files.folder.paths()
    monkeypatch.undo()
    assert [follower.look() for _ in range(3)] == [False, False, False]     # nothing had changed


def test_a_file_that_changes_again_before_it_is_read_is_read_then_and_once_more(tmp_path: Path):
    """Behind tables that are being saved a reading waits, and the next look comes meanwhile."""
    (tmp_path / "plain_acl.yml").write_text(GOOD)
    bench = make_bench(settings_in(
        tmp_path / "store", "acl.enable=true", f"acl.folder={tmp_path}"))
    access = bench.broker.core.access
    waiting: list[tuple[Iterator[None], Callable[[OSError | None], None]]] = []
    saving = Saving(SimpleNamespace(run=lambda *work: waiting.append(work)))
    saving.save("a table", lambda: iter(()), lambda _: None)
    now_ms = NOW_MS
    for key in ("Second-key", "Third-key"):
        (tmp_path / "plain_acl.yml").write_text(GOOD.replace("RocketMQ", key))
        for _ in range(3):
            now_ms += LOOK_MS
            access.look(now_ms, saving)
    read = 0
    while waiting:
        steps, done = waiting.pop(0)
        AtOnce().run(steps, done)
        read += 1
        for _ in range(3):
            now_ms += LOOK_MS
            access.look(now_ms, saving)
    assert list(access.rules.accounts) == ["Third-key"]
    assert read == 3                                   # the table is one of them


def test_no_more_of_a_file_is_read_than_it_may_have(tmp_path: Path):
    folder = AclFolder(tmp_path)
    with folder.default_file.open("wb") as file:
        file.truncate(1 << 40)                 # it has no bytes yet
    with pytest.raises(AclFileError, match=f"more than {SIZE_MAX} bytes"):
        folder.read(stock_permissions=False)


def test_what_is_written_can_be_read_and_is_for_its_owner_alone(tmp_path: Path):
    folder = AclFolder(tmp_path)
    document = read_file("f", GOOD.encode()).document
    folder.write(folder.default_file, document)
    assert folder.read_one(folder.default_file).document == document
    assert folder.default_file.stat().st_mode & 0o777 == 0o600
    folder.default_file.chmod(0o640)
    folder.write(folder.default_file, document)
    assert folder.default_file.stat().st_mode & 0o777 == 0o640
    with pytest.raises(AclFileError):
        folder.write(folder.default_file, {"accounts": [{"accessKey": "short"}]})
    assert folder.read_one(folder.default_file).document == document


# -- files that change -----------------------------------------------------------------------------


class Follower:
    """What a process sees of a folder, with a clock of its own."""

    def __init__(self, folder: Path, kept: KeptFiles | None = None) -> None:
        self.taken: list[Rules] = []
        self.files = FollowedRules(folder, self.taken.append, kept=kept)
        self.files.load()
        self._now_ms = 0

    def look(self) -> bool:
        """Whether the files are to be read."""
        self._now_ms += LOOK_MS
        return self.files.has_changed(self._now_ms)

    @property
    def accounts(self) -> set[str]:
        return set(self.taken[-1].accounts)


def accounts(*names: str) -> str:
    return "accounts:\n" + "".join(
        f"- {{accessKey: {name}, secretKey: secret-{name}}}\n" for name in names)


def test_a_folder_that_is_away_or_none_is_not_one_without_files(tmp_path: Path):
    """A slip of the pen in acl.folder stops a start; a folder that goes takes no rules with it."""
    folder = tmp_path / "folder"
    with pytest.raises(AclFileError, match=f"^{folder}: no folder: expected the one of plain_acl"):
        Follower(folder)
    folder.write_text(accounts("the-first"))
    with pytest.raises(AclFileError, match=f"^{folder}: no folder: expected the one of plain_acl"):
        Follower(folder)
    folder.unlink()
    folder.mkdir()
    (folder / "plain_acl.yml").write_text(accounts("the-first"))
    follower = Follower(folder)
    folder.rename(tmp_path / "away")
    assert [follower.look() for _ in range(3)] == [False, False, False]
    assert follower.accounts == {"the-first"}
    (tmp_path / "away").rename(folder)
    assert [follower.look() for _ in range(3)] == [False, False, False]     # nothing had changed


def test_a_file_that_is_being_written_is_not_read(tmp_path: Path):
    """A half of it may be right YAML and open more than the whole."""
    file = tmp_path / "plain_acl.yml"
    file.write_text(accounts("the-first"))
    follower = Follower(tmp_path)
    for length in (20, 40, 60):
        file.write_text(accounts("the-first", "the-second")[:length])
        assert not follower.look()
    file.write_text(accounts("the-first", "the-second"))
    assert not follower.look()
    assert follower.look()
    follower.files.found(follower.files.read())
    assert follower.accounts == {"the-first", "the-second"}
    assert not follower.look()


@pytest.mark.parametrize("nothing", ["", "# no account\n", "---\n"])
def test_a_file_that_became_empty_keeps_the_rules(
        tmp_path: Path, nothing: str, caplog: pytest.LogCaptureFixture):
    file, kept = tmp_path / "plain_acl.yml", KeptFiles()
    file.write_text(accounts("the-first", "the-second"))
    follower = Follower(tmp_path, kept)
    file.write_text(nothing)
    assert [follower.look(), follower.look()] == [False, True]
    follower.files.found(follower.files.read())
    told = (f"access rules stay unchanged: {file}: nothing in it, and there were 2 accounts: "
            "expected accounts, or accounts: []")
    assert [one.getMessage() for one in caplog.records] == [told]
    assert follower.accounts == Follower(tmp_path, kept).accounts == {"the-first", "the-second"}
    file.write_text("accounts: []\n")
    assert [follower.look(), follower.look()] == [False, True]
    follower.files.found(follower.files.read())
    assert follower.accounts == set()


def test_a_file_that_was_empty_before_stays_so(tmp_path: Path):
    (tmp_path / "plain_acl.yml").write_text("")
    follower = Follower(tmp_path)
    (tmp_path / "plain_acl.yml").write_text("# nobody yet\n")
    assert [follower.look(), follower.look()] == [False, True]
    follower.files.found(follower.files.read())
    assert len(follower.taken) == 2


def test_files_that_could_not_be_read_for_a_moment_are_read_later(tmp_path: Path):
    """There was no descriptor left; the file does not change again."""
    file = tmp_path / "plain_acl.yml"
    file.write_text(accounts("the-first"))
    follower = Follower(tmp_path)
    file.write_text(accounts("the-second"))
    assert [follower.look(), follower.look()] == [False, True]
    follower.files.found(OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
    assert follower.look()
    follower.files.found(follower.files.read())
    assert follower.accounts == {"the-second"}
    assert not follower.look()
