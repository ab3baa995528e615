"""The same requests, judged by the stock classes and by ours: in Python and on the serving path."""
from __future__ import annotations

import random
from pathlib import Path

import pytest

from mqcore.acl import addresses, needs
from mqcore.acl.addresses import PatternError
from mqcore.acl.nodes import AclFileError
from mqcore.acl.rules import EXCEPTION, AccessRefusal, Rules
from mqcore.net.remoting.access import AccessProbe
from mqcore.turns import finished
from mqcore.wire import command as wire
from mqcore.wire.command import Command
from tests.acl import oracle, requests
from tests.acl.access_files import FACES, FILES, KEY, REFUSED, SECRET, WHITE

PLAIN_WORLDS, SPREAD_WORLDS, REQUESTS = 16, 24, 100

PATTERNS = (
    "", " ", "*", "*.*.*.*", "*:*:*:*:*:*:*:*", "10.0.0.1", "10.0.0.01", "10.0.0.256", "10.0.0",
    "a.b.c.d", "10.0.0.{1,2,3}", "10.0.0.{1, 2}", "10.0.0.{1}", "10.0.{1,2}.3", "10.0.0.1,10.0.0.2",
    "10.0.0.1, 10.0.0.2", "10.0.0.1,", "10.0.*.*", "10.0.*.5", "10.*.*.*", "10.*.0.1", "10.0.0.*",
    "10.0.1-5.*", "10.0.1-5.7", "10.0.0.1-50", "10.0.0.50-1", "10.0.0.1-300", "10.0.0.-5",
    "10.0.1-5.1-9", "10.1-2.3.4", "10.0.0.1-2-3", "10.0.0.1/24", "1.2.3.4.5", "10.0.0.0-255",
    "fe80::1", "FE80::1", "fe80:0:0:0:0:0:0:1", "fe80::{1,2}", "fe80:0:0:0:0:0:0:*",
    "fe80:0:0:0:0:0:1-5:*", "fe80::1,fe80::2", "::1", "[fe80::1]", "fe80:0:0:0:0:*:*:*",
    "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8-9", "1:2:3:4:5:6:7-8:*", "10.0.0.1,*", "*,10.0.0.1",
    "{1,2}", "10.0.0.{1-3}", "10.0.0.1;10.0.0.2", "localhost", "10.0.0.1 ", "10.0.0.{256}")
HOSTS = (
    "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.1.5", "10.0.3.7", "10.0.3.8", "10.1.3.4", "10.5.0.1",
    "10.0.0.50", "9.0.0.1", "fe80::1", "fe80::2", "fe80:0:0:0:0:0:0:1", "fe80::a",
    "fe80:0:0:0:0:0:1:7", "fe80::3:7", "::1", "1:2:3:4:5:6:7:8")


def test_address_patterns_mean_what_they_mean_to_stock():
    pairs = [(pattern, host) for pattern in PATTERNS for host in HOSTS]
    answers = oracle.ask([oracle.pattern(pattern, host) for pattern, host in pairs])
    said = [answer.partition(" ")[0] for answer in answers]
    assert {"match", "other", "bad"} == set(said)
    assert list(zip(pairs, map(pattern_says, *zip(*pairs, strict=True)), strict=True)) == list(
        zip(pairs, said, strict=True))


def pattern_says(pattern: str, host: str) -> str:
    try:
        rows = addresses.parse(pattern)
    except PatternError:
        return "bad"
    return "match" if addresses.contains(rows, addresses.packed(host)) else "other"


Judged = list[tuple[Rules, str, bytes, str]]


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """
    (rules, address, frame, what stock says) of random requests in random worlds: rules in one file,
    then rules spread over several.
    """
    chance = random.Random(14)
    lines, cases = [], []
    for number in range(PLAIN_WORLDS + SPREAD_WORLDS):
        folder = tmp_path_factory.mktemp(f"world{number}")
        if number < PLAIN_WORLDS:
            rules = requests.read(folder / "conf", requests.world(chance), stock=True)
            (folder / "conf" / "acl").mkdir()
        else:
            rules = requests.spread(chance, folder / "conf")
        lines.append(oracle.home(folder))
        for _ in range(REQUESTS):
            host = chance.choice(requests.V4 + requests.V6)
            frame = requests.frame(requests.request(chance))
            lines.append(oracle.judge(host, frame))
            cases.append((rules, host, frame))
    answers = [answer for line, answer in zip(lines, oracle.ask(lines), strict=True)
               if line.startswith("judge")]
    return [(*case, answer) for case, answer in zip(cases, answers, strict=True)]


def ours(rules: Rules, host: str, frame: bytes) -> str:
    """"ok" or the remark."""
    command = wire.decode(frame)
    found = finished(rules.identify(command, host))
    if isinstance(found, AccessRefusal):
        return found.remark
    if found is None or needs.is_trace(command):
        return "ok"
    try:
        wanted = finished(needs.wanted(command, stock=True))
    except needs.Unreadable as error:
        return f"{EXCEPTION}{error}"
    refusal = rules.refusal(found, command.code, wanted.permissions, admin=wanted.admin)
    return "ok" if refusal is None else refusal.remark


@pytest.mark.slow
def test_random_requests_are_judged_as_stock_judges_them(judged: Judged):
    assert len(judged) >= 2_000
    said = [answer.partition(", org.apache")[0] for _, _, _, answer in judged]
    assert 0.2 < said.count("ok") / len(said) < 0.8
    assert len({answer.split(":")[1][:12] for answer in said if answer != "ok"}) >= 4
    wrong = [(wire.decode(frame), host, answer, ours(rules, host, frame))
             for (rules, host, frame, _), answer in zip(judged, said, strict=True)
             if (ours(rules, host, frame) != answer and "permission for" not in answer)
             or (ours(rules, host, frame) == "ok") != (answer == "ok")]
    assert wrong == []


def test_the_random_requests_tell_rules_apart(judged: Judged):
    """Each of what they are about decides some of them."""
    listed = [addresses.contains(rules.white, addresses.packed(host))
              for rules, host, _, _ in judged if host in requests.V6]
    assert 50 <= sum(listed) <= len(listed) - 1_000
    pulls = [answer for _, _, frame, answer in judged if wire.decode(frame).code == 11]
    for said in ("ok", "permission for topic", "permission for group"):
        assert sum(said in answer for answer in pulls) >= 10, said
    doubles = [(rules, host, frame, answer) for rules, host, frame, answer in judged
               if len(rules.files) > 1]
    last_first = {id(rules): Rules(reversed(rules.files), stock_permissions=True)
                  for rules, _, _, _ in doubles}
    assert sum((ours(last_first[id(rules)], host, frame) == "ok") != (answer == "ok")
               for rules, host, frame, answer in doubles) >= 50


def test_the_serving_path_judges_as_stock_does(judged: Judged):
    decided = 0
    for rules in {id(case[0]): case[0] for case in judged}.values():
        with requests.shown(rules, "/mqcore-test-acl-beside") as segment:
            probe = AccessProbe(segment)
            for _, host, frame, answer in (case for case in judged if case[0] is rules):
                found, _ = probe.judge(frame, addresses.packed(host))
                if found != "asked":
                    decided += 1
                    told = wire.decode(frame), host, answer
                    assert (found == "passed") == (answer == "ok"), told
    assert decided > len(judged) // 4


def taken(folder: Path, text: str) -> Rules | None:
    """Its rules; None: it is refused."""
    try:
        return requests.read(folder, text, stock=True)
    except AclFileError:
        return None


def test_files_full_of_edges_are_read_as_stock_reads_them(tmp_path: Path):
    """Taken or refused; if both take one, the same requests pass, of all secrets it may mean."""
    secrets = (SECRET, "12345678", "2739128", "0123456789", "19088743", "-12345678",
               "12345678901234567890123", "0123456", "-.inf000", f"{FACES}a")
    frames = [requests.frame(requests.signed(code, ext, key, secret, b"x"))
              for key, secret in [(KEY, secret) for secret in secrets] + [(f"{FACES}a", SECRET)]
              for code, ext in ((310, {"a": "PG", "b": "orders"}), (17, {"topic": "x"}),
                                (11, {"topic": "orders", "consumerGroup": "workers"}))]
    lines, found = [], {}
    for number, (name, text) in enumerate({**FILES, **REFUSED}.items()):
        folder = tmp_path / str(number)
        found[name] = taken(folder / "conf", text)
        (folder / "conf" / "acl").mkdir()
        lines += [oracle.home(folder), *(oracle.judge(WHITE, frame) for frame in frames)]
    answers = iter(oracle.ask(lines))
    passed: set[bytes] = set()
    for name, rules in found.items():
        loaded, *judged = (next(answers) for _ in range(1 + len(frames)))
        assert (loaded == "ok") == (rules is not None or name in REFUSED), (name, loaded)
        if rules is None:
            continue
        for frame, answer in zip(frames, judged, strict=True):
            assert (ours(rules, WHITE, frame) == "ok") == (answer == "ok"), (
                name, wire.decode(frame), answer)
            passed |= {frame} if answer == "ok" else set()
    assert len(passed) >= len(secrets)
    assert [name for name in REFUSED if found[name] is not None] == []


def test_the_signature_of_the_specification():
    """remoting.md 7, made by a stock client."""
    command = requests.signed(310, {"a": "p", "b": "topicC", "c": "TBW102", "d": "4", "e": "0",
                                    "f": "0", "g": "1", "h": "0", "k": "false", "m": "false"},
                              "RocketMQ", "12345678", b"hello")
    assert isinstance(command, Command)
    assert (command.ext or {})["Signature"] == "Zjk5zqWWPDsc6WZqU4MLHGDeXiU="
