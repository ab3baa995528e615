"""
Accounts at our broker and at a stock one, both started with one plain_acl.yml: what is asked of
both, and what has to come of it.
"""
from __future__ import annotations

import contextlib
import json
import ssl
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mqcore.wire.codes import RequestCode
from mqcore.wire.records import decode_records
from tests.acl.test_broker import Signer
from tests.interop.mqadmin import Mqadmin
from tests.interop.runner import Line
from tests.support.ci import unavailable
from tests.support.mqcore_process import mqcore_up
from tests.support.stock import WITHOUT_TLS, StockError, have_stock, stock_cluster
from tests.support.waiting import wait_until
from tests.wire_live.peer import pull_fields, topic_fields

ADMIN = ("the-admin", "admin-secret")
TOPICS = ("Java", "Go", "Cpp", "Matrix")
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
  - Matrix=PUB|SUB
  groupPerms:
  - readers=SUB
- accessKey: the-reader
  secretKey: reader-secret
  topicPerms:
  - Java=SUB
  - Go=SUB
  - Cpp=SUB
  - Matrix=SUB
  groupPerms:
  - others=SUB
- accessKey: the-idler
  secretKey: idler-secret
- accessKey: by-default
  secretKey: default-secret
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: SUB
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
IDLER, BY_DEFAULT = ("the-idler", "idler-secret"), ("by-default", "default-secret")
CONSUMERS = (WRITER, TRUSTED)          # the others' push consumers wait for what never comes
SENDS = ("sync", "async", "batch", "delayed", "transaction", "oneway")
REFUSALS = {
    "No accessKey is configured": "no key", "No acl config for": "unknown key",
    "Check signature failed": "signature", "No default permission for topic": "topic",
    "No default permission for group": "group", "Need admin permission": "admin",
}
# What the answers are on both sides: of a send, of a pull for the group `readers`.
SAID = {WRITER: ("ok", "ok"), WRONG: ("signature",) * 2, STRANGER: ("unknown key",) * 2,
        READER: ("topic", "group"), TRUSTED: ("ok", "ok"), NOBODY: ("no key",) * 2}
# Stock asks for no permission to send a batch (docs/security.md, "Access control").
MORE_THAN_STOCK = {(READER, "batch")}
STOCK_PROPERTIES: dict[str, object] = {
    "aclEnable": True, "mappedFileSizeCommitLog": 64 << 20, "mappedFileSizeConsumeQueue": 400_000,
    "maxHashSlotNum": 50_000, "maxIndexNum": 200_000}
OURS, STOCK = "mqcore-a", "stock-a"


@dataclass
class Side:
    """A broker with the accounts; tls: what it is asked with when it speaks TLS alone."""

    kind: str
    namesrv_addr: str
    broker_addr: str
    broker_name: str
    access_file: Path
    tls: ssl.SSLContext | None = None

    def signer(self, account: tuple[str, str] | None) -> Signer:
        return Signer(self.broker_addr, account, tls=self.tls)

    def make_topics(self) -> None:
        """All of them with one queue; returns when the name server knows them."""
        with self.signer(ADMIN) as broker, Signer(self.namesrv_addr, ADMIN, tls=self.tls) as names:
            for topic in TOPICS:
                answer = broker.does(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields(topic, 1))
                assert answer.code == 0, answer
                wait_until(lambda topic=topic: names.does(                     # type: ignore[misc]
                    RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).code == 0, topic)

    def stored(self, topic: str) -> set[str]:
        """The keys of what its one queue has."""
        with self.signer(ADMIN) as peer:
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

    def java(self, told: object) -> list[Any]:
        """
        What comes of each deed of an account (clients/java, Accounts): one line, below lines of
        logs. A thread's log line may follow in the same line.
        """
        text = self.mqadmin.ask("account", json.dumps(told))
        said = [line for line in text.splitlines() if line.startswith("[")]
        assert said, text
        return list(json.JSONDecoder().raw_decode(said[-1])[0])


@contextlib.contextmanager
def both(
    folder: Path, settings: Mapping[str, object] | None = None,
    system: Mapping[str, object] = WITHOUT_TLS, tls: ssl.SSLContext | None = None,
) -> Iterator[World]:
    """
    Both brokers with their topics; the calling test ends where there is no stock one.

    settings   more of ours
    system     Java's system properties of the stock programs
    tls        what both are asked with, when they speak TLS alone
    """
    if not have_stock():
        unavailable("needs java, and mvn or an earlier download of the stock broker")
    (folder / "plain_acl.yml").write_text(RULES)
    with contextlib.ExitStack() as stack:
        try:
            stock = stack.enter_context(stock_cluster(
                folder / "stock", STOCK_PROPERTIES, conf_files={"plain_acl.yml": RULES},
                system=system, names_tls=tls))
        except StockError as error:
            unavailable(str(error))
        for process in stock.processes:              # their clean end takes seconds
            stack.callback(process.process.kill)
        ours = stack.enter_context(mqcore_up(folder / "ours", {
            "acl.enable": True, "acl.folder": folder, "broker.name": OURS, **(settings or {})}))
        mqadmin = Mqadmin(folder / "mqadmin", ours.namesrv_addr)
        stack.callback(mqadmin.stop)
        made = World(
            Side("ours", ours.namesrv_addr, ours.broker_addr, OURS, folder / "plain_acl.yml", tls),
            Side("stock", stock.namesrv_addr, stock.broker_addr, STOCK,
                 stock.broker.home / "conf" / "plain_acl.yml", tls), mqadmin)
        for side in made.sides:
            side.make_topics()
        yield made


# -- what clients are told, and what comes of it ---------------------------------------------------


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


def asked(side: Side, topic: str, name: str, account: tuple[str, str] | None,
          kinds: Iterable[str]) -> dict[str, Any]:
    """What a client is told to do; see clients/java, Accounts."""
    keys = {} if account is None else {"key": account[0], "secret": account[1]}
    return {"name": name, "namesrv": side.namesrv_addr, "broker": side.broker_name, **keys,
            "deeds": [{"do": kind, "topic": topic, "group": "readers", "body": f"{name}/{kind}"}
                      for kind in kinds]}


def done_by(account: str, kinds: tuple[str, ...]) -> tuple[str, ...]:
    """What an account does: these, and a push consumer where one gets something."""
    return (*kinds, "push") if account in CONSUMERS else kinds


def java_outcomes(world: World, kinds: tuple[str, ...]) -> dict[tuple[str, str, str], str]:
    """By side, account and kind, in the JVM of mqadmin."""
    found = {}
    for side in world.sides:
        for name, account in ACCOUNTS.items():
            more = done_by(name, kinds)
            outcomes = world.java(asked(side, "Java", name, account, more))
            found |= {(side.kind, name, kind): sort_of(outcome)
                      for kind, outcome in zip(more, outcomes, strict=True)}
    return found


def go_told(world: World, kinds: tuple[str, ...]) -> list[dict[str, Any]]:
    """What the Go program is told: all accounts at both sides."""
    return [asked(side, "Go", name, account, done_by(name, kinds))
            for side in world.sides for name, account in ACCOUNTS.items()]


def go_outcomes(lines: Iterable[Line]) -> dict[tuple[str, str, str], str]:
    """By side, account and kind, of what the Go program wrote."""
    kinds = {OURS: "ours", STOCK: "stock"}
    return {(kinds[line["broker"]], line["account"], line["do"]): sort_of(line["outcome"])
            for line in lines}


def expected(side: Side, account: str, kind: str) -> str:
    if kind == "oneway" or (side.kind == "stock" and (account, kind) in MORE_THAN_STOCK):
        return "ok"
    return SAID[account][kind in ("pull", "push")]


def check(world: World, topic: str, found: dict[tuple[str, str, str], str],
          kinds: tuple[str, ...], *, silent: bool = False) -> None:
    """
    Outcomes, and what both brokers have in the end.

    found: by side, account and kind; kinds: without the push consumers. silent: of a refusal the
    client says no more than that.
    """
    wanted = {(side.kind, account, kind): expected(side, account, kind)
              for side in world.sides for account in ACCOUNTS for kind in done_by(account, kinds)}
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
