"""`mqcore acl ls|test|allow`: accounts in files, as a broker would read them."""
from __future__ import annotations

import json
from pathlib import Path

import pytest

from mqcore.acl.folder import AclFolder
from tests.support.command import Done, mqcore

SECRET = "a-secret-of-many-letters"
TEXT = f"""globalWhiteRemoteAddresses: [10.0.0.*]
accounts:
- {{accessKey: the-admin, secretKey: {SECRET}, admin: true}}
- accessKey: the-shop
  secretKey: {SECRET}
  default-topic-perm: DENY
  defaultGroupPerm: SUB
  topic_perms: [orders=PUB, "odd = SUB"]
  groupPerms: [closed=DENY]
  remark: kept
- {{accessKey: the-shop, secretKey: {SECRET}, admin: true}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "plain_acl.yml").write_text(TEXT)
    return tmp_path


def may(folder: Path, *words: str) -> tuple[int, list[bool]]:
    done = mqcore("acl", "test", folder, "the-shop", *words, "--json")
    assert SECRET not in done.stdout
    return done.returncode, [row["may"] for row in json.loads(done.stdout)["answers"]]


def test_accounts_are_listed_without_secrets(folder: Path) -> None:
    done = mqcore("acl", "ls", folder, "--json")
    rows = json.loads(done.stdout)["accounts"]

    assert SECRET not in done.stdout + mqcore("acl", "ls", folder, "-o", "wide").stdout
    assert [row["accessKey"] for row in rows] == ["the-admin", "the-shop"]
    assert rows[1] == {
        "accessKey": "the-shop", "admin": False, "defaultTopicPerm": "DENY",
        "defaultGroupPerm": "SUB", "topicPerms": {"orders": "PUB", "odd": "SUB"},
        "groupPerms": {"closed": "DENY"}, "addresses": None,
        "permissions": ["topic orders=PUB", "topic odd=SUB", "group closed=DENY"],
        "file": str(folder / "plain_acl.yml")}
    assert mqcore("acl", "ls", folder / "plain_acl.yml", "-q").stdout == "the-admin\nthe-shop\n"


def test_a_permission_is_asked_for_as_a_broker_decides(folder: Path) -> None:
    assert may(folder, "--send", "orders", "--group", "any") == (0, [True, True])
    assert may(folder, "--send", "odd", "--consume", "odd") == (10, [False, True])
    assert may(folder, "--consume", "orders") == (10, [False])
    assert may(folder, "--group", "closed") == (10, [False])
    assert may(folder, "--send", "rmq_sys_x", "--admin") == (10, [False, False])
    done = mqcore("acl", "test", folder, "the-admin", "--admin", "--send", "anything")
    assert done.returncode == 0
    assert mqcore("acl", "test", folder, "the-shop").returncode == 2


def test_a_permission_is_added_or_replaced_and_all_else_stays(folder: Path) -> None:
    file = folder / "plain_acl.yml"
    words = ("acl", "allow", folder, "the-shop", "--topic", "orders=PUB|SUB", "--topic",
             "new=SUB", "--group", "closed=SUB")

    tried = mqcore(*words, "--dry-run", "--json")
    assert json.loads(tried.stdout)["dryRun"] is True
    assert mqcore(*words).returncode == 2                   # no terminal to ask
    assert file.read_text() == TEXT

    done = mqcore(*words, "--yes")
    assert done.returncode == 0, done.stderr
    assert f"{file}: account the-shop: topic orders: PUB -> PUB|SUB" in done.stdout
    assert f"{file}: account the-shop: topic new: DENY by default -> SUB" in done.stdout
    (read,) = AclFolder(folder).read(stock_permissions=False).files
    accounts = read.document["accounts"]
    assert accounts[1]["topicPerms"] == ["odd = SUB", "orders=PUB|SUB", "new=SUB"]
    assert accounts[1]["groupPerms"] == ["closed=SUB"]
    assert (accounts[1]["remark"], accounts[2]["admin"]) == ("kept", True)
    assert "topicPerms" not in accounts[2]
    assert read.document["globalWhiteRemoteAddresses"] == ["10.0.0.*"]
    assert read.version.counter == 1
    assert may(folder, "--consume", "orders", "--consume", "new", "--group", "closed") == (
        0, [True, True, True])


@pytest.mark.parametrize(("words", "status", "said"), [
    (("the-shp", "--topic", "a=PUB"), 3, "did you mean 'the-shop'"),
    (("the-shop", "--topic", "a=ALL"), 2, "expected NAME=PERM"),
    (("the-shop", "--topic", "a b=PUB"), 2, "expected 1 to 127"),
    (("the-shop", "--group", "a\n=PUB"), 2, "expected"),
    (("the-shop",), 2, "give --topic or --group"),
    (("the-admin", "--topic", "a=PUB"), 1, "may do everything"),
])
def test_a_change_that_makes_no_sense_is_one_sentence(
        folder: Path, words: tuple[str, ...], status: int, said: str) -> None:
    done = mqcore("acl", "allow", folder, *words, "--yes")

    assert (done.returncode, said in done.stderr) == (status, True), done.stderr
    assert (folder / "plain_acl.yml").read_text() == TEXT


@pytest.mark.parametrize("verb", [("ls",), ("test", "--admin"), ("allow", "--topic", "a=PUB")])
def test_a_file_that_cannot_be_read_is_one_sentence(folder: Path, verb: tuple[str, ...]) -> None:
    (folder / "plain_acl.yml").write_text("accounts: [{accessKey: x}]")

    def run() -> Done:
        account = ("the-shop",) if verb[0] != "ls" else ()
        yes = ("--yes",) if verb[0] == "allow" else ()
        return mqcore("acl", verb[0], folder, *account, *verb[1:], *yes)

    done = run()
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "plain_acl.yml" in done.stderr
    (folder / "plain_acl.yml").unlink()
    assert run().returncode == (0 if verb == ("ls",) else 3)
