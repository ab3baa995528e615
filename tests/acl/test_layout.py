"""A signed text is not cut into another request: layouts, and fields before the access key."""
from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from mqcore.acl import addresses
from mqcore.acl.rules import AccessRefusal, Account, Rules, signature
from mqcore.broker.following import version_of
from mqcore.client.core.signature import Credentials, sign, signed_text
from mqcore.net.remoting.access import AccessProbe, AccessReason
from mqcore.turns import finished
from mqcore.wire.command import Codec, Command
from tests.acl import requests
from tests.support.dice import times

HOST, KEY, SECRET = "192.0.2.1", "the-admin", "admin-secret"
PEER = addresses.packed(HOST)
EVIL = {"accessKey": "evilkey1", "admin": "true", "secretKey": "evil-secret-1"}


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Rules:
    return requests.read(tmp_path_factory.mktemp("rules"), (
        f"accounts: [{{accessKey: {KEY}, secretKey: {SECRET}, admin: true}}]"))


@pytest.fixture(scope="module")
def probe(rules: Rules) -> Iterator[AccessProbe]:
    with requests.shown(rules, "/mqcore-test-acl-layout") as segment:
        yield AccessProbe(segment)


def ours(code: int, ext: dict[str, str], body: bytes = b"") -> Command:
    """A request as our clients and brokers sign it."""
    command = Command(code, ext=dict(ext), body=body)
    sign(command, Credentials(KEY, SECRET))
    return command


def believed(rules: Rules, probe: AccessProbe, command: Command) -> bool:
    """By the coordinator and by the serving process, both forms of headers."""
    found = finished(rules.identify(command, HOST))
    for codec in Codec:
        command.codec = codec
        if codec == Codec.JSON or "" not in (command.ext or {}).values():
            verdict, _ = probe.judge(requests.frame(command), PEER)
            if isinstance(found, Account):
                assert verdict == "asked"
            elif verdict != "refused":             # the layout is the coordinator's to judge
                assert verdict == "asked"
                assert "#Layout" in (command.ext or {})
    return isinstance(found, Account)


def test_a_request_of_ours_is_believed_by_its_layout(rules: Rules, probe: AccessProbe):
    command = ours(307, {"clientId": "c", "consumerGroup": "g", "jstackEnable": "false"})
    assert (command.ext or {})["#Layout"] == "334afd87ee01062f6738476d3736a557"
    assert believed(rules, probe, command)
    assert believed(rules, probe, ours(21, {}))
    assert believed(rules, probe, ours(34, {}, b'{"clientID":"c"}'))
    assert believed(rules, probe, ours(17, {"topic": "thémé", "perm": "6"}))


def test_a_text_that_spells_another_request_is_that_request_only_without_a_layout(
        rules: Rules, probe: AccessProbe):
    """The client id of a member that the administrator asks about, as the member chose it."""
    asked = {"clientId": "".join(EVIL.values()), "consumerGroup": "gm", "jstackEnable": "false"}
    stock = requests.signed(307, asked, KEY, SECRET)
    mine = ours(307, asked)
    forged = {**EVIL, "zz": "gmfalse", "AccessKey": KEY}
    assert believed(rules, probe, Command(50, ext={
        **forged, "Signature": (stock.ext or {})["Signature"]}))
    proof, layout = (mine.ext or {})["Signature"], (mine.ext or {})["#Layout"]
    for ext in ({**forged, "#Layout": layout}, forged, {**forged, "!": layout},
                {**forged, "0": layout}, {**forged, "AccessKey": (layout or "") + KEY}):
        assert not believed(rules, probe, Command(50, ext={**ext, "Signature": proof}))


def recut(chance: random.Random, command: Command) -> Command:
    """Another request for the same signed bytes."""
    ext = {name: value or "" for name, value in (command.ext or {}).items()}
    proof = ext.pop("Signature")
    text = signed_text(ext).decode() + command.body.decode()
    layout = ext["#Layout"]
    rest = text.removeprefix(layout + KEY)
    cuts = sorted(chance.randrange(len(rest) + 1) for _ in range(chance.randrange(5)))
    pieces = [rest[a:b] for a, b in zip([0, *cuts], [*cuts, len(rest)], strict=True)]
    names = sorted(chance.sample(["accessKey", "admin", "clientId", "consumerGroup", "msgId",
                                  "secretKey", "topic", "zz"], len(pieces) - 1))
    first = chance.choice([{"#Layout": layout}, {"#Layout": layout}, {"!": layout}, {}])
    return Command(chance.choice((command.code, 50, 17, 309)), body=pieces[-1].encode(), ext={
        **first, "AccessKey": KEY, **dict(zip(names, pieces, strict=False)), "Signature": proof})


def test_a_request_of_ours_is_no_other_however_it_is_cut(rules: Rules, probe: AccessProbe):
    chance = random.Random(8)
    same = 0
    for _ in range(times(2_000)):
        command = ours(chance.choice((307, 309, 17)), {
            "consumerGroup": chance.choice(("g", "gm", "group")),
            "topic": chance.choice(("t", "true", "")), "clientId": "".join(EVIL.values())[
                :chance.randrange(30)]}, b"body"[:chance.randrange(5)])
        other = recut(chance, command)
        if (other.code, other.ext, other.body) == (command.code, command.ext, command.body):
            same += 1
            continue
        assert not believed(rules, probe, other), (command, other)
    assert same < times(200)


@pytest.mark.parametrize("code", [310, 307])
def test_no_signed_field_stands_before_the_access_key(
        rules: Rules, probe: AccessProbe, code: int):
    for name in ("0", "!", "AccessKez", "AccessKe", "A", "#Layou", "#Layout1"):
        command = requests.signed(code, {name: "x", "b": "topic"}, KEY, SECRET)
        found = finished(rules.identify(command, HOST))
        verdict = probe.judge(requests.frame(command), PEER)
        if name == "AccessKez":                    # behind it
            assert isinstance(found, Account)
            assert verdict[0] in ("passed", "asked")
        else:
            assert isinstance(found, AccessRefusal)
            assert verdict == ("refused", AccessReason.ACCESS_FIELDS)


def test_sends_have_no_layout_and_none_is_taken_for_one(rules: Rules, probe: AccessProbe):
    assert "#Layout" not in (ours(310, {"b": "topic"}).ext or {})
    ext: dict[str, str | None] = {"b": "topic", "AccessKey": KEY, "#Layout": "0" * 32}
    command = Command(310, ext={**ext, "Signature": signature(SECRET, ext, b"").decode()})
    assert isinstance(finished(rules.identify(command, HOST)), AccessRefusal)
    assert probe.judge(requests.frame(command), PEER) == ("refused", AccessReason.ACCESS_FIELDS)


def test_a_slave_signs_no_text_of_its_masters_choice():
    assert version_of("0a1b2c3d-17") == "0a1b2c3d-17"
    for text in (None, "", "".join(EVIL.values()), "0a1b2c3d-", "0a1b2c3d-17x", "0a1b2c3d-1\n",
                 "0a1b2c3d-" + "1" * 20, "0A1b2c3d-17", "0a1b2c3d-١"):
        assert version_of(text) == "", text


