"""Every command of the tree with names that cannot be, without rights, and with broken contexts."""
from __future__ import annotations

import os
import time
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest

from mqcore.admin.shell import contexts, runner
from mqcore.client import Admin, AsyncAdmin, Credentials, Message, Producer
from tests.command.conftest import Cluster
from tests.command.test_trouble import NAMELESS
from tests.command.tree import Verb, asking, verbs
from tests.support.command import Done, mqcore
from tests.support.mqcore_process import mqcore_up

NAMES = (
    "", " ", "two words", "100%", "%s%n%99d", "../../etc/passwd", "/", "..", "'", '"', "a\nb",
    "a\r", "\x1b[2J", "\u202eevil", "\udcff\udc80", "é", "-x", "--yes", "a" * 256, "b" * 70_000,
    "$(id)", "a;b", "a=b", "*", "|", "\x7f", "\U0001f600", "true", "-1", "9" * 40,
)
# They run for long; or they read a password first
RUNS = {"up", "broker run", "namesrv run", "testing up", "bench produce", "bench consume",
        "bench e2e", "message consume", "message spans", "dashboard user"}
# A condition that no message meets is waited for
WAITS = {("message tail", "tags"), ("message tail", "sql"), ("message tail", "grep"),
         ("message tail", "since")}
STATUSES = {0, 1, 2, 3, 4, 5, 6, 10}
ANSWERED_S = 20                    # a command beside much other work
CONNECTION = {"namesrv", "context", "access_key"}         # they are the same for all commands
ARGUMENT_NAMES, OPTION_NAMES = 12, 3                      # of each parameter, others for each
SECRET = "a-secret-of-many-letters"
RULES = f"""accounts:
- {{accessKey: the-admin, secretKey: {SECRET}, admin: true}}
- {{accessKey: no-rights, secretKey: {SECRET}, defaultTopicPerm: DENY, defaultGroupPerm: DENY}}
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker for names that some commands take."""
    with mqcore_up(tmp_path_factory.mktemp("hostile")) as broker:
        with Admin(broker.namesrv_addr) as admin:
            (found,) = admin.clusters()
            name = found.brokers[0].broker_name
        yield Cluster("mqcore", broker.namesrv_addr, broker.broker_addr, name)


@pytest.fixture
def values(own: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Sound words for the other arguments, in an empty working folder."""
    monkeypatch.setattr(runner, "AsyncAdmin", partial(AsyncAdmin, timeout=2.0, time_limit=6.0))
    monkeypatch.setenv("MQCORE_NEW_SECRET_KEY", SECRET)
    monkeypatch.setenv("MQCORE_SECRET_KEY", SECRET)
    folder = tmp_path / "down" / "deeper" / "here"
    folder.mkdir(parents=True)
    for name in ("store", "access"):
        (tmp_path / name).mkdir()
    (tmp_path / "access" / "plain_acl.yml").write_text(RULES)
    monkeypatch.chdir(folder)
    own.run("broker", "undrain", own.broker_name, "--yes")
    for group in ("H-group", "H-other"):
        own.run("topic", "create", "H-topic", "--queues", 1)
        own.commit(group, "H-topic", 0)
    with Producer("command-tests", namesrv=own.namesrv) as producer:
        sent = producer.send(Message("H-topic", "body"))
    (tmp_path / "definitions.toml").write_text("[topics.H-topic]\n")
    (tmp_path / "offsets.json").write_text(own.text("offset", "export", "H-group", "--json"))
    return {"TOPIC": "H-topic", "GROUP": "H-group", "OTHER": "H-other",
            "ID": sent.offset_message_id, "BROKER": own.broker_name,
            "FILE": str(tmp_path / "definitions.toml"), "OFFSETS": str(tmp_path / "offsets.json"),
            "BUNDLE": str(tmp_path / "bundle.tar.gz"), "STORE": str(tmp_path / "store"),
            "NEW": str(tmp_path / "new"), "ACCESS": str(tmp_path / "access")}


def state(cluster: Cluster, **options: Any) -> list[object]:
    """Everything that commands change, but messages."""
    with Admin(cluster.namesrv, **options) as admin:
        settings = dict(admin.broker_config(cluster.broker))
        known = [sorted(str(one) for one in found) for found in (
            admin.topic_configs(cluster.broker), admin.group_configs(cluster.broker),
            admin.all_offsets(cluster.broker))]
        return [*known, sorted(settings.items()), sorted(admin.name_server_config().items()),
                sorted(admin.topics(user_only=False))]


def files_of(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*"))


def faults_of(verb: Verb, words: list[str], expected: set[int] = STATUSES) -> tuple[Done, str]:
    """How a command ended, and what is wrong with it; "" = nothing."""
    began = time.monotonic()
    shown = f"mqcore {' '.join(map(ascii, words))}"[:200]
    try:
        done = mqcore(*words)
    except Exception as error:
        return Done(-1, "", ""), f"{shown}: {type(error).__name__}: {error}"[:600]
    took_s = time.monotonic() - began
    said = done.stderr.rstrip("\n").split("\n")
    wrong = []
    if done.returncode not in expected:
        wrong.append(f"status {done.returncode}")
    partial_answer = all(line.startswith("no answer from ") for line in said)
    if done.returncode not in (0, 10) and not partial_answer and (
            sum(line.startswith("Error: ") for line in said) != 1
            or len(said) > (4 if said[0].startswith("Usage: ") else 1)):
        wrong.append("no single sentence")
    if any(not (c.isprintable() or c == "\n") for c in done.stdout + done.stderr):
        wrong.append("a control character")
    if len(done.stderr) > 2_000:
        wrong.append(f"{len(done.stderr)} characters")
    if took_s > ANSWERED_S:
        wrong.append(f"{took_s:.0f} s")
    return done, f"{shown}: {', '.join(wrong)}: {done.stderr[-300:]}" if wrong else ""


def names_for(verb: Verb, parameter: click.Parameter) -> list[str]:
    """Names to try as a parameter; a path does not lead out of the working folder's parent."""
    pool = [name for name in NAMES if name not in ("/", "..") or not isinstance(
        parameter.type, click.Path | click.File)]
    count = (ARGUMENT_NAMES if isinstance(parameter, click.Argument)
             else 1 if parameter.name in CONNECTION else OPTION_NAMES)
    first = zlib.crc32(f"{verb.name} {parameter.name}".encode())
    return [pool[(first + number * 7) % len(pool)] for number in range(count)]


def is_text(parameter: click.Parameter) -> bool:
    return not getattr(parameter, "is_flag", False) and isinstance(
        parameter.type, click.types.StringParamType | click.Path | click.File)


def tries(verb: Verb, values: dict[str, str], namesrv: str) -> Iterator[list[str]]:
    """Words of a command, one hostile each time."""
    for parameter in verb.command.params:
        if not is_text(parameter) or (verb.name, parameter.name) in WAITS:
            continue
        for name in names_for(verb, parameter):
            words = verb.with_name(parameter, name, values)
            at = len(verb.words)
            if "--namesrv" in verb.options and parameter.name not in ("namesrv", "context"):
                words[at:at] = ["-n", namesrv]
            if "--yes" in verb.options:
                words[at:at] = ["--yes"]
            yield words


@pytest.mark.parametrize("verb", [verb for verb in verbs() if verb.name not in RUNS],
                         ids=lambda verb: verb.name)
def test_a_hostile_name_is_one_sentence_and_changes_nothing(
        own: Cluster, values: dict[str, str], verb: Verb, tmp_path: Path) -> None:
    before = state(own)
    wrong = []
    for words in tries(verb, values, own.namesrv):
        held = files_of(tmp_path)
        done, fault = faults_of(verb, words)
        wrong.append(fault)
        if done.returncode not in (0, 10) and files_of(tmp_path) != held:
            wrong.append(f"{words!r}: it left {set(files_of(tmp_path)) - set(held)}")
        if done.returncode in (0, 10) and "--watch" not in verb.options:
            before = state(own)                         # a name that can be
        elif state(own) != before:
            wrong.append(f"{words!r}: status {done.returncode}, and something has changed")
            before = state(own)
    assert not any(wrong), "\n".join(filter(None, wrong))


# -- accounts, hosts and contexts -----------------------------------------------------------------


def test_an_account_without_rights_is_told_so_and_changes_nothing(
        tmp_path: Path, values: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "broker"
    folder.mkdir()
    (folder / "plain_acl.yml").write_text(RULES)
    with mqcore_up(folder, {"acl.enable": True, "acl.namesrv_routes": "checked",
                            "broker.name": values["BROKER"]}) as broker:
        credentials = Credentials("the-admin", SECRET)
        with Admin(broker.namesrv_addr, credentials=credentials) as admin:
            admin.create_topic("H-topic", queues=1)
            for group in ("H-group", "H-other"):
                admin.create_group(group)
        there = Cluster("mqcore", broker.namesrv_addr, broker.broker_addr, values["BROKER"])
        before = state(there, credentials=credentials)
        rules = (folder / "plain_acl.yml").read_text()
        wrong, denied = [], 0
        for verb in asking():
            words = [*verb.arguments(**values), "-n", broker.namesrv_addr,
                     "--access-key", "no-rights", *(["--yes"] if verb.changes else [])]
            done, fault = faults_of(verb, words)
            denied += done.returncode == 6
            if verb.changes and done.returncode == 0:
                fault = fault or f"{verb.name}: it was let in"
            wrong.append(fault)
        assert state(there, credentials=credentials) == before
        assert (folder / "plain_acl.yml").read_text() == rules
    assert not any(wrong), "\n".join(filter(None, wrong))
    assert denied > 30


@pytest.mark.parametrize("address", ["no-such-host.invalid:9876", "127.0.0.1:1", "[::1]:1"])
def test_a_host_that_cannot_be_reached_is_status_4(
        values: dict[str, str], monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setattr(runner, "AsyncAdmin", partial(AsyncAdmin, timeout=0.2, time_limit=3.0))
    chosen = [verb for verb in asking() if verb.name not in NAMELESS]
    wrong = [faults_of(verb, [*verb.arguments(**values), "-n", address,
                              *(["--yes"] if verb.changes else [])], {4})[1]
             for verb in chosen[:: 1 if address.startswith("127") else 7]]
    assert not any(wrong), "\n".join(filter(None, wrong))


BROKEN = {
    "text": b"no context", "unfinished": b'namesrv = "h:1', "bytes": b"\xff\xfe\x00",
    "empty": b"", "number": b"namesrv = 5", "address": b'namesrv = "a b"', "key": b"x = 1",
    "large": b"#" * (1 << 21), "account": b'namesrv = "h:1"\naccess_key = "a"',
    "deep": b"a = " + b"[" * 100_000,
}


@pytest.mark.parametrize("kind", [*BROKEN, "folder", "open", "pipe", "link"])
def test_a_damaged_context_is_one_sentence_that_names_its_file(
        values: dict[str, str], kind: str) -> None:
    file = contexts.folder() / "contexts" / "damaged.toml"
    file.parent.mkdir(parents=True)
    if kind == "folder":
        file.mkdir()
    elif kind == "pipe":
        os.mkfifo(file, 0o600)
    elif kind == "link":
        file.symlink_to(file)
    else:
        file.write_bytes(BROKEN.get(kind, b'namesrv = "h:1"'))
        file.chmod(0o644 if kind == "open" else 0o600)
    with_context = [verb for verb in verbs() if "--context" in verb.options]
    every = with_context if kind == "text" else with_context[::9]
    for verb in every:
        if verb.name in RUNS or verb.name == "message recall":      # which reads its HANDLE first
            continue
        done, fault = faults_of(verb, [*verb.arguments(**values), "-x", "damaged"], {1})
        assert not fault, fault
        assert str(file) in done.stderr or "too deep" in done.stderr, done.stderr
    (contexts.folder() / "context").write_text("damaged\n")
    for words in (["context", "ls"], ["context", "show"], ["context", "check"], ["topic", "ls"]):
        _, fault = faults_of(next(verbs()), words, {0, 1, 10})
        assert not fault, fault
