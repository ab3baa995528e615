"""Audit lines: as text, as JSON, not at all; how many; that nothing of a peer's breaks them."""
from __future__ import annotations

import json
import logging

import pytest

from mqcore.acl.audit import TEXT_MAX, Audit
from mqcore.wire.codes import RequestCode


class Clock:
    """Seconds, moved by hand."""

    def __init__(self) -> None:
        self.s = 100.0

    def __call__(self) -> float:
        return self.s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True)
def heard(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "mqcore.audit")
    return caplog


def tell(audit: Audit, account: str = "the-user", what: str = "orders", refused: str = "") -> None:
    audit.line(account=account, remote="10.0.0.1:7", code=RequestCode.DELETE_TOPIC_IN_BROKER,
               what=what, refused=refused)


def test_text_says_who_what_and_why(heard: pytest.LogCaptureFixture):
    audit = Audit("text", 10)
    tell(audit)
    tell(audit, account="", what="", refused="no access key")
    audit.line(account="a", remote="[::1]:7", code=9999, what="", refused="")
    assert heard.messages == [
        "audit: allowed DELETE_TOPIC_IN_BROKER of the-user from 10.0.0.1:7 on orders",
        "audit: refused DELETE_TOPIC_IN_BROKER of nobody from 10.0.0.1:7: no access key",
        "audit: allowed code 9999 of a from [::1]:7"]


def test_json_is_one_object_a_line(heard: pytest.LogCaptureFixture):
    audit = Audit("json", 10)
    tell(audit, refused="no administrator")
    tell(audit, account="", what='a"b\\é')
    assert [json.loads(line) for line in heard.messages] == [
        {"audit": {"account": "the-user", "from": "10.0.0.1:7",
                   "request": "DELETE_TOPIC_IN_BROKER", "what": "orders", "result": "refused",
                   "why": "no administrator"}},
        {"audit": {"account": "", "from": "10.0.0.1:7", "request": "DELETE_TOPIC_IN_BROKER",
                   "what": 'a"b\\é', "result": "allowed", "why": ""}}]


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_peers_text_makes_no_second_line(heard: pytest.LogCaptureFixture, form: str):
    audit = Audit(form, 10)
    tell(audit, account="a\nb\x1b[31m", what="x" * (2 * TEXT_MAX), refused="\u2028\x00")
    (line,) = heard.messages
    assert line.isprintable()
    assert "x" * TEXT_MAX in line
    assert "x" * (TEXT_MAX + 1) not in line
    if form == "json":
        assert json.loads(line)["audit"]["account"] == "a\\nb\\x1b[31m"


def test_none_is_told_when_it_is_off(heard: pytest.LogCaptureFixture):
    audit = Audit("off", 10)
    tell(audit)
    assert heard.messages == []


@pytest.mark.parametrize("form", ["text", "json"])
def test_more_than_so_many_a_second_are_counted_and_told_of_later(
        heard: pytest.LogCaptureFixture, clock: Clock, form: str):
    audit = Audit(form, 3, clock)
    for _ in range(10):
        tell(audit)
    assert len(heard.messages) == 3
    clock.s += 0.9                     # still the same second
    tell(audit)
    audit.missed(5)                    # by who keeps refusals for it
    assert len(heard.messages) == 3
    clock.s += 0.1
    tell(audit)
    assert heard.messages[3] == "audit: 13 lines more are not shown"
    assert len(heard.messages) == 5
    clock.s += 1
    tell(audit)
    assert len(heard.messages) == 6    # nothing more to tell of


def changed(audit: Audit, before: dict[str, object], after: dict[str, object]) -> None:
    audit.changed(account="a", remote="10.0.0.1:7", code=RequestCode.UPDATE_AND_CREATE_TOPIC,
                  what="orders", before=before, after=after)


def test_a_change_is_told_with_the_values_before_and_after(heard: pytest.LogCaptureFixture):
    changed(Audit("text", 10), {"perm": 6, "order": False, "gone": 0},
            {"perm": 4, "order": False, "new": "x\ny"})
    assert heard.messages == [
        "audit: UPDATE_AND_CREATE_TOPIC of a from 10.0.0.1:7 on orders changed perm from 6 to 4,"
        " gone from 0 to nothing, new from nothing to x\\ny"]


def test_many_changes_are_a_line_of_some_and_a_number(heard: pytest.LogCaptureFixture):
    many: dict[str, object] = {f"key{number}": number for number in range(1000)}
    changed(Audit("text", 10), {}, many)
    assert heard.messages[0].endswith("key15 from nothing to 15, and 984 more")
    changed(Audit("json", 10), {**many, "key0": "x" * 10_000}, {})
    line = json.loads(heard.messages[1])["audit"]
    assert (line["result"], line["more"], len(line["changes"])) == ("changed", 984, 16)
    assert line["changes"][0] == {"name": "key0", "before": "x" * 200, "after": "nothing"}


def test_no_line_tells_of_what_is_as_before(heard: pytest.LogCaptureFixture):
    changed(Audit("text", 10), {"perm": 6}, {"perm": 6})
    changed(Audit("off", 10), {"perm": 6}, {"perm": 4})
    limited = Audit("text", 1, Clock())
    changed(limited, {}, {"perm": 4})
    changed(limited, {}, {"perm": 4})
    assert len(heard.messages) == 1
