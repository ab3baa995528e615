"""
Other people's clients and commands with accounts: our broker and a stock one, started with one
plain_acl.yml, give each request the same outcome, and store the same messages.
"""
from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from mqcore.wire.codes import RequestCode
from mqcore.wire.records import decode_records
from tests.acl.test_broker import Signer
from tests.interop.mqadmin import Mqadmin
from tests.interop.mqadmin_world import normal
from tests.interop.runner import Programs
from tests.support.ci import unavailable
from tests.support.mqcore_process import mqcore_up
from tests.support.stock import StockError, have_stock, stock_cluster
from tests.support.waiting import wait_until
from tests.wire_live.peer import pull_fields, send_fields

ADMIN = ("the-admin", "admin-secret")
RULES = """globalWhiteRemoteAddresses:
accounts:
- accessKey: the-admin
  secretKey: admin-secret
  admin: true
- accessKey: the-writer
  secretKey: writer-secret
  topicPerms:
  - Java=PUB|SUB
  - Go=PUB|SUB
  - Cpp=PUB|SUB
  groupPerms:
  - readers=SUB
- accessKey: the-reader
  secretKey: reader-secret
  topicPerms:
  - Java=SUB
  - Go=SUB
  - Cpp=SUB
  groupPerms:
  - others=SUB
- accessKey: the-trusted
  secretKey: trusted-secret
  whiteRemoteAddress: 127.0.0.1
"""
WRITER, WRONG, STRANGER, READER, TRUSTED, NOBODY = (
    "right key", "wrong secret", "unknown key", "no permission", "white address", "unsigned")
ACCOUNTS: dict[str, tuple[str, str] | None] = {
    WRITER: ("the-writer", "writer-secret"), WRONG: ("the-writer", "another-secret"),
    STRANGER: ("the-stranger", "writer-secret"), READER: ("the-reader", "reader-secret"),
    TRUSTED: ("the-trusted", "another-secret"), NOBODY: None,
}
CONSUMERS = (WRITER, TRUSTED)          # the others' push consumers wait for what never comes
SENDS = ("sync", "async", "batch", "delayed", "transaction", "oneway")
REFUSALS = {
    "No accessKey is configured": "no key", "No acl config for": "unknown key",
    "Check signature failed": "signature", "No default permission for topic": "topic",
    "No default permission for group": "group",
}
# What the answers are on both sides: of a send, of a pull for the group `readers`.
SAID = {WRITER: ("ok", "ok"), WRONG: ("signature",) * 2, STRANGER: ("unknown key",) * 2,
        READER: ("topic", "group"), TRUSTED: ("ok", "ok"), NOBODY: ("no key",) * 2}
# Stock asks for no permission to send a batch (docs/security.md, "Access control").
MORE_THAN_STOCK = {(READER, "batch")}


@dataclass
class Side:
    """A broker with the accounts."""

    kind: str
    namesrv_addr: str
    broker_addr: str
    broker_name: str
    access_file: Path

    def stored(self, topic: str) -> set[str]:
        """The keys of what its one queue has."""
        with Signer(self.broker_addr, ADMIN) as peer:
            answer = peer.does(RequestCode.PULL_MESSAGE, pull_fields(topic, count=100))
        assert answer.code in (0, 19), answer
        return {record.properties["KEYS"] for record in decode_records(answer.body)}


@dataclass
class World:
    """Both brokers, and the JVM that clients and commands are in."""

    ours: Side
    stock: Side
    mqadmin: Mqadmin

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.ours, self.stock

    def run(self, side: Side, account: tuple[str, str] | None, command: str, *options: object,
            ) -> str:
        """What a command of mqadmin prints that asks as an account, by its tools.yml."""
        tools = self.mqadmin.folder / "conf" / "tools.yml"
        if account is None:
            tools.unlink(missing_ok=True)
        else:
            tools.write_text(f"accessKey: {account[0]}\nsecretKey: {account[1]}\n")
        self.mqadmin.namesrv_addr = side.namesrv_addr
        return self.mqadmin.run(command, *options)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    if not have_stock():
        unavailable("needs java, and mvn or an earlier download of the stock broker")
    folder = tmp_path_factory.mktemp("accounts")
    (folder / "plain_acl.yml").write_text(RULES)
    properties = {"aclEnable": True, "mappedFileSizeCommitLog": 64 << 20,
                  "mappedFileSizeConsumeQueue": 400_000, "maxHashSlotNum": 50_000,
                  "maxIndexNum": 200_000}
    with contextlib.ExitStack() as stack:
        try:
            stock = stack.enter_context(stock_cluster(
                folder / "stock", properties, conf_files={"plain_acl.yml": RULES}))
        except StockError as error:
            unavailable(str(error))
        for process in stock.processes:              # their clean end takes seconds
            stack.callback(process.process.kill)
        ours = stack.enter_context(mqcore_up(
            folder / "ours", {"acl.enable": True, "acl.folder": folder}))
        mqadmin = Mqadmin(folder / "mqadmin", ours.namesrv_addr)
        stack.callback(mqadmin.stop)
        made = World(
            Side("ours", ours.namesrv_addr, ours.broker_addr, "mqcore-a",
                 folder / "plain_acl.yml"),
            Side("stock", stock.namesrv_addr, stock.broker_addr, "stock-a",
                 stock.broker.home / "conf" / "plain_acl.yml"), mqadmin)
        for side in made.sides:
            for topic in ("Java", "Go", "Cpp"):
                text = made.run(side, ADMIN, "updateTopic", "-b", side.broker_addr, "-t", topic,
                                "-r", 1, "-w", 1)
                assert "success" in text, text
        yield made


def sort_of(outcome: Any) -> str:
    """Of a client's word for what became of a request: ok, a sort of refusal, or the word."""
    if outcome == "ok":
        return "ok"
    said = str(outcome["remark"] if isinstance(outcome, dict) else outcome)
    assert not isinstance(outcome, dict) or outcome["code"] == 1, outcome
    for words, sort in REFUSALS.items():
        if words in said:
            return sort
    return said


def deeds(topic: str, account: str, kinds: tuple[str, ...]) -> list[dict[str, str]]:
    return [{"do": kind, "topic": topic, "group": "readers", "body": f"{account}/{kind}"}
            for kind in kinds]


def asked(side: Side, topic: str, account: str, kinds: tuple[str, ...]) -> dict[str, Any]:
    """What a client is told to do; see clients/java, Accounts."""
    given = ACCOUNTS[account]
    keys = {} if given is None else {"key": given[0], "secret": given[1]}
    return {"name": account, "namesrv": side.namesrv_addr, "broker": side.broker_name, **keys,
            "deeds": deeds(topic, account, kinds)}


def expected(side: Side, account: str, kind: str) -> str:
    if kind == "oneway" or (side.kind == "stock" and (account, kind) in MORE_THAN_STOCK):
        return "ok"
    return SAID[account][kind in ("pull", "push")]


def check(world: World, topic: str, found: dict[tuple[str, str, str], str],
          kinds: tuple[str, ...], *, silent: bool = False) -> None:
    """
    Outcomes, and what both brokers have in the end.

    found: by side, account and kind. silent: of a refusal the client says no more than that.
    """
    wanted = {(side.kind, account, kind): expected(side, account, kind)
              for side in world.sides for account in ACCOUNTS for kind in kinds
              if kind != "push" or account in CONSUMERS}
    if silent:
        found, wanted = ({what: sort if sort == "ok" else "refused" for what, sort in each.items()}
                         for each in (found, wanted))
    assert found == wanted
    for side in world.sides:
        keys = {f"{account}/{kind}" for account in ACCOUNTS for kind in kinds
                if kind in SENDS and (SAID[account][0] == "ok" or (
                    side.kind == "stock" and (account, kind) in MORE_THAN_STOCK))}
        keys |= {f"{key}-2" for key in keys if key.endswith("/batch")}
        wait_until(lambda side=side, keys=keys: side.stored(topic) >= keys,     # type: ignore[misc]
                   f"{keys} at {side.kind}")
        assert side.stored(topic) == keys


def test_java_clients_with_accounts_have_the_same_outcome_as_with_stock(world: World) -> None:
    kinds = (*SENDS, "pull")
    found = {}
    for side in world.sides:
        for account in ACCOUNTS:
            more = (*kinds, "push") if account in CONSUMERS else kinds
            text = world.mqadmin.ask("account", json.dumps(asked(side, "Java", account, more)))
            outcomes = json.loads(text)
            found |= {(side.kind, account, kind): sort_of(outcome)
                      for kind, outcome in zip(more, outcomes, strict=True)}
    check(world, "Java", found, (*kinds, "push"))


def test_go_clients_with_accounts_have_the_same_outcome_as_with_stock(
    world: World, programs: Programs, tmp_path: Path,
) -> None:
    all_of_them = [asked(side, "Go", account, (*SENDS, "push") if account in CONSUMERS else SENDS)
                   for side in world.sides for account in ACCOUNTS]
    lines = programs.accounts("go", all_of_them)
    names = {side.broker_name: side.kind for side in world.sides}
    check(world, "Go", {(names[line["broker"]], line["account"], line["do"]):
                        sort_of(line["outcome"]) for line in lines}, (*SENDS, "push"))


def test_cpp_clients_with_accounts_have_the_same_outcome_as_with_stock(
    world: World, programs: Programs,
) -> None:
    """A process for each account, since its clients share what is set for one; without batches."""
    sends = ("sync", "async", "delayed", "oneway")
    found = {}
    for side in world.sides:
        for account in ACCOUNTS:
            told = asked(side, "Cpp", account, (*sends, "push") if account in CONSUMERS else sends)
            for line in programs.accounts("cpp", told, namesrv=side.namesrv_addr):
                found[side.kind, account, line["do"]] = sort_of(line["outcome"])
    check(world, "Cpp", found, (*sends, "push"), silent=True)


# -- mqadmin ---------------------------------------------------------------------------------------


def said(world: World, side: Side, account: tuple[str, str] | None, command: str,
         *options: object) -> list[str]:
    """What a command prints, without what differs; of a refusal its sort alone."""
    text = world.run(side, account, command, *options)
    found = [sort for words, sort in REFUSALS.items() if words in text]
    if "AclException" in text:
        assert re.search(r"CODE: 1\b", text), text
        return found or [re.sub(r"(?s).*AclException: ([^,\n]*).*", r"\1", text)]
    code = re.search(r"(CODE: \d+) +DESC", text)
    if code:                                         # ours says more about what is wrong
        return [code[1]]
    free = r"\b\d+\.\d\d\b|\S+/plain_acl\.yml|@[0-9a-f]+"
    lines = normal(text.replace(side.broker_name, "BROKER"), free)
    assert lines, text
    return lines


def may_publish(side: Side, account: tuple[str, str]) -> bool:
    with Signer(side.broker_addr, account) as peer:
        return peer.does(RequestCode.SEND_MESSAGE_V2, send_fields("Admin"), b"x").code == 0


def test_mqadmin_asks_in_the_name_of_an_account_with_the_same_outcome_as_with_stock(
    world: World,
) -> None:
    guest = ("the-guest", "guest-secret")
    commands: list[tuple[str, ...]] = [
        ("updateTopic", "-t", "Admin", "-r", "1", "-w", "1"),
        ("updateAclConfig", "-a", guest[0], "-s", guest[1], "-t", "Admin=PUB"),
        ("updateAclConfig", "-a", "the-next", "-s", "short"),
        ("updateGlobalWhiteAddr", "-g", "10.9.8.7,10.9.8.*"),
        ("clusterAclConfigVersion",),
    ]
    told: dict[str, dict[object, list[str]]] = {}
    for side in world.sides:
        at = ("-b", side.broker_addr)
        found = told[side.kind] = {}
        for name in (WRONG, STRANGER, NOBODY):
            for command in (*commands, ("deleteAclConfig", "-a", "the-writer")):
                found[name, *command] = said(world, side, ACCOUNTS[name], *command, *at)
                assert found[name, *command] == [SAID[name][0]], (side.kind, name, command)
        for command in commands:
            found["admin", *command] = said(world, side, ADMIN, *command, *at)
        wait_until(lambda side=side: may_publish(side, guest),           # type: ignore[misc]
                   f"the new account at {side.kind}")
        found["delete"] = said(world, side, ADMIN, "deleteAclConfig", "-a", guest[0], *at)
        wait_until(lambda side=side: not may_publish(side, guest),       # type: ignore[misc]
                   f"the end of the account at {side.kind}")
        found["list"] = said(world, side, ADMIN, "clusterList")
        found["not an administrator"] = said(
            world, side, ACCOUNTS[READER], *commands[0], *at)
    assert told["ours"] == told["stock"]
    # stock writes such a pattern into its file
    assert said(world, world.ours, ADMIN, "updateGlobalWhiteAddr", "-g", "10.9.8.7.6", "-b",
                world.ours.broker_addr) == ["CODE: 211"]


def document(side: Side) -> Any:
    """What the access file says, without the times of its changes."""
    said = yaml.safe_load(side.access_file.read_text(encoding="utf-8"))
    for version in said.get("dataVersion") or []:
        version.pop("timestamp", None)
    return said


CHANGES: list[tuple[str, ...]] = [
    ("updateAclConfig", "-a", "the-plain", "-s", "plain-secret"),
    ("updateAclConfig", "-a", "the-whole", "-s", "whole-secret", "-w", "10.1.2.*", "-i", "DENY",
     "-u", "SUB", "-t", "one=PUB,two=PUB|SUB,three=DENY", "-g", "four=SUB,five=DENY",
     "-m", "false"),
    ("updateAclConfig", "-a", "the-whole", "-s", "other-secret", "-t", "six=SUB"),
    ("updateAclConfig", "-a", "the-plain", "-s", "plain-secret", "-w", "10.1.2.3", "-m", "true"),
    ("updateAclConfig", "-a", "the-whole", "-s", "short"),
    ("updateAclConfig", "-a", "the-whole", "-s", "other-secret", "-t", "seven=WHAT"),
    ("updateGlobalWhiteAddr", "-g", "10.9.8.7,10.9.8.*"),
    ("deleteAclConfig", "-a", "the-plain"),
    ("deleteAclConfig", "-a", "the-absent"),
    ("deleteAclConfig", "-a", "the-whole"),
]


def test_what_mqadmin_changes_stands_in_the_file_as_stock_writes_it(world: World) -> None:
    """Value by value after each change; each begins with the same file."""
    found: dict[str, list[Any]] = {}
    for side in world.sides:
        documents = found[side.kind] = []
        begin = document(side).get("dataVersion", [{"counter": 0}])[0]["counter"]
        for command in CHANGES:
            world.run(side, ADMIN, *command, "-b", side.broker_addr)
            said = document(side)
            for version in said.get("dataVersion", []):
                version["counter"] -= begin
            documents.append(said)
    for command, ours, stock in zip(CHANGES, found["ours"], found["stock"], strict=True):
        assert ours == stock, command
