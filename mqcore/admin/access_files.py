"""
`mqcore acl ls|test|allow`: access files of this machine. A running broker reads them when they
change; RocketMQ has no request that shows accounts to others.
"""
from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from mqcore.acl.changes import account_values, with_permissions
from mqcore.acl.folder import AclFolder
from mqcore.acl.needs import group as group_name
from mqcore.acl.nodes import AclFileError
from mqcore.acl.rules import DENY, PUB, SUB, Account, AclFile, Rules, may
from mqcore.admin.nouns.acl import permission_pairs
from mqcore.admin.shell.exits import Exit, Failure, NotFound
from mqcore.admin.shell.runner import LocalPlan, changes_here, looks_here
from mqcore.admin.shell.view import Column, Table, Text, View
from mqcore.client.core.options import check_consumer_group, check_group, check_topic
from mqcore.client.errors import ConfigError
from mqcore.wire.codes import RETRY_PREFIX

path_argument = click.argument("path", type=click.Path(exists=True, path_type=Path))
account_argument = click.argument("account", metavar="ACCESS_KEY")


class Asked(Struct, frozen=True):
    """A permission that a test asks for: words for people, the name as rules have it, bits."""

    text: str
    name: str
    bits: int


def read_rules(path: Path) -> Rules:
    """The rules of a file, or of a folder as a broker reads it. Raises Failure."""
    try:
        if path.is_dir():
            return AclFolder(path).read(stock_permissions=False)
        return Rules([AclFolder(path.parent).read_one(path)])
    except AclFileError as error:
        raise Failure(str(error)) from None
    except OSError as error:
        raise Failure(f"{error.filename or path}: {error.strerror}") from None


def word_of(bits: int) -> str:
    """A permission as files have it."""
    if bits & DENY:
        return "DENY"
    return {PUB: "PUB", SUB: "SUB", PUB | SUB: "PUB|SUB"}.get(bits, "DENY")


ACCOUNTS = (Column("ACCOUNT", "accessKey"), Column("ADMIN", "admin"),
            Column("TOPICS", "defaultTopicPerm"), Column("GROUPS", "defaultGroupPerm"),
            Column("OWN PERMISSIONS", "permissions"), Column("ADDRESSES", "addresses", wide=True),
            Column("FILE", "file", wide=True))


@click.command("ls")
@path_argument
@looks_here
def list_command(path: Path) -> View:
    """Accounts of a file, or of a broker's folder, with what each may; no secret is shown."""
    rules = read_rules(path)
    rows = [_row(rules, one) for one in rules.accounts.values()]
    return View({"accounts": rows}, [Table(ACCOUNTS, rows, "no accounts")], items="accounts",
                name="accessKey")


def _row(rules: Rules, one: Account) -> dict[str, Any]:
    topics = {name: word_of(bits) for name, bits in one.permissions.items()
              if not name.startswith(RETRY_PREFIX)}
    groups = {name.removeprefix(RETRY_PREFIX): word_of(bits)
              for name, bits in one.permissions.items() if name.startswith(RETRY_PREFIX)}
    return {
        "accessKey": one.access_key, "admin": one.admin,
        "defaultTopicPerm": word_of(one.topic_default),
        "defaultGroupPerm": word_of(one.group_default), "topicPerms": topics, "groupPerms": groups,
        "permissions": [*(f"topic {name}={word}" for name, word in topics.items()),
                        *(f"group {name}={word}" for name, word in groups.items())],
        "addresses": account_values(rules, one.access_key).get("whiteRemoteAddress") or None,
        "file": rules.file_of[one.access_key],
    }


# -- test -----------------------------------------------------------------------------------------

ANSWERS = (Column("MAY", "may"), Column("", "text"))


@click.command("test")
@path_argument
@account_argument
@click.option("--send", "sends", multiple=True, metavar="TOPIC", help="May it send to this topic?")
@click.option("--consume", "reads", multiple=True, metavar="TOPIC",
              help="May it read this topic?")
@click.option("--group", "groups", multiple=True, metavar="GROUP",
              help="May it consume in this group?")
@click.option("--admin", "administrates", is_flag=True, help="May it administrate?")
@looks_here
def test_command(
    path: Path, account: str, sends: Sequence[str], reads: Sequence[str], groups: Sequence[str],
    administrates: bool,
) -> View:
    """
    Ask whether an account may do something, by the rules that a broker would read.

    The status is 0 when it may do all of that, else 10.
    """
    rules = read_rules(path)
    found = _account(rules, account)
    asked = list(_asked(sends, reads, groups))
    if not asked and not administrates:
        raise click.UsageError("give --send, --consume, --group or --admin")
    rows = [{"text": one.text, "may": may(found, one.name, one.bits)} for one in asked]
    if administrates:
        rows.append({"text": "administrate", "may": found.admin})
    allowed = all(row["may"] for row in rows)
    return View({"accessKey": account, "allowed": allowed, "answers": rows}, [Table(ANSWERS, rows)],
                items="answers", name="text", status=Exit.DONE if allowed else Exit.UNHEALTHY)


def _asked(
    sends: Sequence[str], reads: Sequence[str], groups: Sequence[str],
) -> Iterator[Asked]:
    try:
        for topic in sends:
            yield Asked(f"send to topic {topic}", check_topic(topic, "--send"), PUB)
        for topic in reads:
            yield Asked(f"read topic {topic}", check_topic(topic, "--consume"), SUB)
        for group in groups:
            yield Asked(f"consume in group {group}", group_name(_group(group)), SUB)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error


def _group(name: str) -> str:
    return check_consumer_group(check_group(name))


def _account(rules: Rules, key: str) -> Account:
    if key not in rules.accounts:
        raise NotFound("account", key, tuple(rules.accounts), "mqcore acl ls PATH")
    return rules.accounts[key]


# -- allow ----------------------------------------------------------------------------------------

@click.command("allow")
@path_argument
@account_argument
@click.option("--topic", "topics", multiple=True, metavar="NAME=PERM", help="For this topic.")
@click.option("--group", "groups", multiple=True, metavar="NAME=PERM", help="For this group.")
@changes_here
def allow_command(
    path: Path, account: str, topics: Sequence[str], groups: Sequence[str],
) -> LocalPlan:
    """
    Give an account permissions for topics and groups; its others stay.

    PERM is PUB, SUB, PUB|SUB or DENY. A broker that uses the file takes the change within seconds.
    """
    given = {"topicPerms": permission_pairs(topics, "--topic") or {},
             "groupPerms": permission_pairs(groups, "--group") or {}}
    if not any(given.values()):
        raise click.UsageError("give --topic or --group")
    _check_names(given)
    rules = read_rules(path)
    found = _account(rules, account)
    if found.admin and not found.permissions:
        raise Failure(f"{account} is an administrator without permissions of its own, and may do "
                      "everything: permissions of its own would take the others from it")
    file = rules.file_of[account]
    lines = [f"{file}: account {account}: {kind.removesuffix('Perms')} {name}: "
             f"{_now(rules, account, kind, name)} -> {perm}"
             for kind, pairs in given.items() for name, perm in pairs.items()]
    view = View({"accessKey": account, "file": file, **given}, [Text(lines)])

    def work() -> View:
        place = Path(file)
        folder = AclFolder(place.parent)
        try:
            now = folder.read_one(place)                # it may have changed while a person read
            folder.write(place, _changed(now, account, given))
        except AclFileError as error:
            raise Failure(str(error)) from None
        except OSError as error:
            raise Failure(f"{error.filename or place}: {error.strerror}") from None
        return view

    return LocalPlan(view, work, f"change {len(lines)} permissions of account {account}", account)


def _check_names(given: dict[str, dict[str, str]]) -> None:
    try:
        for name in given["topicPerms"]:
            check_topic(name, "--topic")
        for name in given["groupPerms"]:
            _group(name)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error


def _changed(file: AclFile, account: str, given: dict[str, dict[str, str]]) -> dict[str, Any]:
    if account not in {one.access_key for one in file.accounts}:
        raise Failure(f"{file.path}: account {account} is not there any more")
    return with_permissions(file, account, given["topicPerms"], given["groupPerms"],
                            time.time_ns() // 1_000_000)


def _now(rules: Rules, account: str, kind: str, name: str) -> str:
    found = rules.accounts[account]
    key = name if kind == "topicPerms" else group_name(name)
    bits = found.permissions.get(key)
    if bits is not None:
        return word_of(bits)
    default = found.topic_default if kind == "topicPerms" else found.group_default
    return f"{word_of(default)} by default"
