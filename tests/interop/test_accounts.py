"""
Other people's clients and commands with accounts: our broker and a stock one, started with one
plain_acl.yml, give each request the same outcome, and store the same messages.
"""
from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from mqcore.client.core.signature import Credentials, sign
from mqcore.wire.codes import RequestCode
from mqcore.wire.command import encode, request
from tests.acl.test_broker import Signer
from tests.interop.accounts import (
    ACCOUNTS,
    ADMIN,
    IDLER,
    NOBODY,
    OURS,
    READER,
    REFUSALS,
    RULES,
    SAID,
    SENDS,
    STRANGER,
    TRUSTED,
    WRITER,
    WRONG,
    Side,
    World,
    asked,
    both,
    check,
    done_by,
    go_outcomes,
    go_told,
    java_outcomes,
    sort_of,
)
from tests.interop.mqadmin_world import normal
from tests.interop.permissions import matrix, rows
from tests.interop.runner import Programs
from tests.support.mqcore_process import mqcore_up
from tests.support.waiting import wait_until
from tests.wire_live.peer import send_fields


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with both(tmp_path_factory.mktemp("accounts")) as made:
        yield made


@pytest.mark.slow
def test_java_clients_with_accounts_have_the_same_outcome_as_with_stock(world: World) -> None:
    kinds = (*SENDS, "pull")
    check(world, "Java", java_outcomes(world, kinds), kinds)


def test_go_clients_with_accounts_have_the_same_outcome_as_with_stock(
    world: World, programs: Programs,
) -> None:
    lines = programs.accounts("go", go_told(world, SENDS))
    check(world, "Go", go_outcomes(lines), SENDS)


@pytest.mark.slow
def test_cpp_clients_with_accounts_have_the_same_outcome_as_with_stock(
    world: World, programs: Programs,
) -> None:
    """A process for each account, since its clients share what is set for one; without batches."""
    kinds = ("sync", "async", "delayed", "oneway")
    found = {}
    for side in world.sides:
        for name, account in ACCOUNTS.items():
            told = asked(side, "Cpp", name, account, done_by(name, kinds))
            for line in programs.accounts("cpp", told, namesrv=side.namesrv_addr):
                found[side.kind, name, line["do"]] = sort_of(line["outcome"])
    check(world, "Cpp", found, kinds, silent=True)


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
    free = r"\b\d+\.\d\d(\d\d)?\b|\S+/plain_acl\.yml|@[0-9a-f]+"
    lines = normal(text.replace(side.broker_name, "BROKER"), free)
    assert lines, text
    return lines


def changes(world: World, side: Side) -> tuple[int, list[str]]:
    """How often accounts were changed, as `mqadmin` says it (... COUNT TIME), and what else."""
    first, *others = said(
        world, side, ADMIN, "clusterAclConfigVersion", "-b", side.broker_addr)
    *words, count, at = first.split()
    return int(count), [" ".join((*words, at)), *others]


def may_publish(side: Side, account: tuple[str, str]) -> bool:
    with side.signer(account) as peer:
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
    ]
    told: dict[str, dict[object, list[str]]] = {}
    for side in world.sides:
        at = ("-b", side.broker_addr)
        found = told[side.kind] = {}
        before, _ = changes(world, side)
        for name in (WRONG, STRANGER, NOBODY):
            for command in (*commands, ("clusterAclConfigVersion",),
                            ("deleteAclConfig", "-a", "the-writer")):
                found[name, *command] = said(world, side, ACCOUNTS[name], *command, *at)
                assert found[name, *command] == [SAID[name][0]], (side.kind, name, command)
        for command in commands:
            found["admin", *command] = said(world, side, ADMIN, *command, *at)
        wait_until(lambda side=side, before=before:                      # type: ignore[misc]
                   changes(world, side)[0] == before + 2,   # stock counts when it reads its file
                   f"two changes at {side.kind}")
        found["version"] = changes(world, side)[1]
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


# -- what requests need, and routes ----------------------------------------------------------------


@pytest.fixture(scope="module")
def as_stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    """A broker of ours that lets pass what stock does; its name server asks for routes as well."""
    folder = tmp_path_factory.mktemp("as-stock")
    (folder / "plain_acl.yml").write_text(RULES)
    with mqcore_up(folder / "broker", {
            "acl.enable": True, "acl.folder": folder, "acl.stock_permissions": True,
            "acl.namesrv_routes": "checked", "broker.name": OURS}) as running:
        side = Side("as stock", running.namesrv_addr, running.broker_addr, OURS,
                    folder / "plain_acl.yml")
        side.make_topics()
        yield side


def test_what_stock_lets_pass_is_let_pass_when_that_is_asked_for(
    world: World, as_stock: Side,
) -> None:
    wanted = {row.name: row.stock for row in rows({}, "")}
    stock = matrix(world.stock)
    assert stock == wanted
    assert matrix(as_stock) == stock


def test_else_a_request_is_judged_by_what_it_touches(world: World) -> None:
    assert matrix(world.ours) == {row.name: row.touched or row.stock for row in rows({}, "")}


NO_ROUTE = "No route info of this topic"


def test_both_take_what_our_clients_sign_with_a_layout_and_ours_alone_looks_at_it(
    world: World,
) -> None:
    for side in world.sides:
        with Signer(side.broker_addr) as peer:
            for kept in (True, False):
                command = request(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "Java"})
                sign(command, Credentials(*ADMIN))
                if not kept:              # the same signed text, as another question
                    command.code = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
                peer.send(encode(command))
                answer = peer.answer_to(command.opaque)
                assert (answer.code == 0) == (kept or side.kind == "stock"), answer


def test_java_clients_get_routes_by_account(world: World, as_stock: Side) -> None:
    """
    Who is not believed hears that there is none: the client says no more. Who has an account gets
    the template's route, and is refused by the broker.
    """
    found = {}
    for name, account in {**ACCOUNTS, "idler": IDLER}.items():
        kinds = ["sync", "push"] if name in (WRITER, TRUSTED) else ["sync"]
        outcomes = world.java(asked(as_stock, "Java", name, account, kinds))
        for kind, outcome in zip(kinds, outcomes, strict=True):
            is_client_side = outcome != "ok" and "code" not in outcome
            found[name, kind] = NO_ROUTE if is_client_side and NO_ROUTE in outcome["remark"] else (
                sort_of(outcome))
    assert found == {
        (WRITER, "sync"): "ok", (WRITER, "push"): "ok", (TRUSTED, "sync"): "ok",
        (TRUSTED, "push"): "ok", (READER, "sync"): "topic", (WRONG, "sync"): NO_ROUTE,
        (STRANGER, "sync"): NO_ROUTE, (NOBODY, "sync"): NO_ROUTE, ("idler", "sync"): "topic"}


@pytest.mark.parametrize("client", ["go", "cpp"])
def test_other_clients_sign_what_they_ask_a_name_server(
    as_stock: Side, programs: Programs, client: str,
) -> None:
    told = asked(as_stock, "Cpp", WRITER, ACCOUNTS[WRITER], ["sync", "push"])
    if client == "go":
        lines = programs.accounts("go", [told])
    else:
        lines = programs.accounts("cpp", told, namesrv=as_stock.namesrv_addr)
    assert [line["outcome"] for line in lines] == ["ok", "ok"]


def test_mqadmin_asks_a_name_server_in_the_name_of_an_account(
    world: World, as_stock: Side,
) -> None:
    route, clusters, topics = ("topicRoute", "-t", "Java"), ("clusterList",), ("topicList",)
    create = ("updateTopic", "-c", "DefaultCluster", "-t", "ByCluster", "-r", 1, "-w", 1)
    for command, words in ((route, '"brokerDatas"'), (clusters, OURS), (topics, "Java"),
                           (create, "success")):
        assert words in world.run(as_stock, ADMIN, *command), command
    for account, words in ((ACCOUNTS[WRONG], "Check signature failed"),
                           (ACCOUNTS[STRANGER], "No acl config for"),
                           (None, "No accessKey is configured")):
        for command in (route, clusters, topics, create):
            assert words in world.run(as_stock, account, *command), (account, command)
    assert "No default permission for topic" in world.run(as_stock, IDLER, *route)
    assert OURS in world.run(as_stock, IDLER, *clusters)
    assert "Need admin permission" in world.run(
        as_stock, IDLER, "updateKvConfig", "-s", "n", "-k", "k", "-v", "v")
