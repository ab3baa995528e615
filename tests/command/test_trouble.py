"""Every command: changes are shown first; trouble is one sentence and an exit status, in time."""
from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from mqcore.admin.shell import runner
from mqcore.client import AsyncAdmin, Message, Producer
from tests.command.breaking import Gate, breaking
from tests.command.conftest import Cluster
from tests.command.tree import Verb, asking, verbs
from tests.support.command import Done, mqcore
from tests.support.stock import free_port

WAIT_S = 0.2                     # that a command waits for an answer here, in place of seconds
LIMIT_S = 60                     # of a command beside much other work

# They look, or they make something new, and neither delete nor overwrite.
READS = {
    "status", "store verify", "store stat", "store dump", "acl check", "replication status",
    "context ls", "context show", "completion", "mqadmin", "cheat", "acl ls", "acl test",
    "message tail", "dlq export", "debug slow", "dashboard user",
}
MAKES = {
    "up": "runs", "broker run": "runs", "namesrv run": "runs", "testing up": "runs",
    "message send": "is asked for message by message", "message consume": "is a member's work",
    "message spans": "likewise",
    "bench produce": "load that is asked for", "bench consume": "likewise", "bench e2e": "likewise",
    "store backup": "a new folder", "store restore": "a new folder", "acl init": "a new file",
    "context add": "refuses one that exists", "context use": "a choice",
}

# The ID names a broker; the bundle has what there is
NAMELESS = {"transaction show", "transaction check", "transaction rollback", "debug bundle"}
# They may have ended when the broker breaks, at their client's farewell
DONE_BEFORE = {"message send": {0, 4, 5}, "message tail": {0, 4, 5}, "dlq export": {0, 4, 5},
               "debug bundle": {0}}


def test_each_command_shows_its_change_first_or_changes_nothing() -> None:
    undecided = [verb.name for verb in verbs()
                 if not verb.changes and verb.name not in READS | MAKES.keys()
                 and not {"--json", "--watch"} <= verb.options]
    assert undecided == []
    assert [verb.name for verb in verbs() if verb.changes and verb.name in READS | MAKES.keys()
            ] == []


def test_verbs_that_change_have_a_dry_run_and_a_question() -> None:
    changing = {"create", "edit", "rm", "clean", "pause", "resume", "reset", "copy", "import",
                "set", "resend", "recall", "redrive", "purge", "rollback", "check", "apply",
                "drain", "undrain", "gc", "user", "white", "repair", "allow", "promote", "demote",
                "rejoin"}
    found = {verb.name for verb in verbs() if verb.words[-1] in changing}
    looks = {"acl check", "context check", "dashboard user"}       # `user` prints a line there
    assert {verb.name for verb in verbs() if verb.changes} == found - looks


@pytest.fixture(scope="module")
def gates(ours: Cluster) -> Iterator[tuple[Gate, Gate]]:
    with breaking(ours.namesrv, ours.broker) as both:
        yield both


@pytest.fixture
def values(ours: Cluster, tmp_path: Path) -> dict[str, str]:
    """A topic with a message and a group, for the arguments of all commands."""
    ours.run("topic", "create", "B-topic", "--queues", 1)
    for group in ("B-group", "B-other"):
        ours.commit(group, "B-topic", 0)
    with Producer("command-tests", namesrv=ours.namesrv) as producer:
        message_id = producer.send(Message("B-topic", "body")).offset_message_id
    definitions = tmp_path / "definitions.toml"
    definitions.write_text("[topics.B-new]\nread_queues = 1\n")
    offsets = tmp_path / "offsets.json"
    offsets.write_text(ours.text("offset", "export", "B-group", "--json"))
    return {"TOPIC": "B-topic", "GROUP": "B-group", "OTHER": "B-other", "ID": message_id,
            "BROKER": ours.broker_name, "FILE": str(definitions), "OFFSETS": str(offsets),
            "BUNDLE": str(tmp_path / "bundle.tar.gz")}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "AsyncAdmin", partial(AsyncAdmin, timeout=WAIT_S, time_limit=3.0))
    monkeypatch.setenv("MQCORE_NEW_SECRET_KEY", "secret-of-twelve")


def run(verb: Verb, namesrv: str, values: dict[str, str]) -> tuple[Done, float]:
    began = time.monotonic()
    yes = ["--yes"] if verb.changes else []
    done = mqcore(*verb.arguments(**values), *yes, "-n", namesrv)
    return done, time.monotonic() - began


def trouble(verb: Verb, done: Done, took_s: float, expected: set[int]) -> str | None:
    """The fault in how a command failed; None when there is none."""
    if done.returncode not in expected:
        return f"{verb.name}: status {done.returncode}: {done.stdout[-200:]}{done.stderr}"
    if "Traceback" in done.stderr or done.stderr.count("\n") > 3 or took_s > LIMIT_S:
        return f"{verb.name}: {took_s:.0f} s: {done.stderr}"
    return None


@pytest.mark.slow
@pytest.mark.parametrize(("left", "hangs"), [(0, False), (1, False), (0, True)],
                         ids=["dies at once", "dies after a request", "hangs"])
def test_a_broker_that_breaks_is_a_sentence_and_a_status(
    gates: tuple[Gate, Gate], values: dict[str, str], impatient: None, left: int, hangs: bool,
) -> None:
    names, broker = gates
    wrong, cut = [], 0
    for verb in asking():
        broker.reset(left, hangs=hangs)
        done, took_s = run(verb, names.address, values)
        broke, _ = broker.broke, broker.reset(None)
        if broke:
            cut += 1
            expected = DONE_BEFORE.get(verb.name, {4, 5, 10})
            wrong.append(trouble(verb, done, took_s, expected))
    assert not any(wrong), "\n".join(filter(None, wrong))
    assert cut > 20


def test_a_name_server_that_is_away_is_status_4(values: dict[str, str], impatient: None) -> None:
    away = f"127.0.0.1:{free_port()}"
    wrong = [trouble(verb, *run(verb, away, values), {4}) for verb in asking()
             if verb.name not in NAMELESS]
    assert not any(wrong), "\n".join(filter(None, wrong))


def test_a_tail_ends_soon_when_its_broker_dies_before_the_first_message(
    gates: tuple[Gate, Gate], values: dict[str, str],
) -> None:
    names, broker = gates
    for left in (0, 1, 2):
        broker.reset(left)
        began = time.monotonic()
        done = mqcore("message", "tail", "-t", "B-topic", "--patience", "0.5s", "-n", names.address)
        took_s = time.monotonic() - began
        broker.reset(None)
        assert (done.returncode, done.stderr.count("\n")) in {(4, 1), (5, 1)}, done
        assert took_s < 20
