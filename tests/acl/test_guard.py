"""The check on the serving path: what it lets pass, refuses, and leaves to the coordinator."""
from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcore.acl import addresses, needs
from mqcore.acl.rules import HOLDING_TOPICS, AccessRefusal, Rules, signature
from mqcore.net.remoting.access import AccessProbe, AccessReason
from mqcore.shm.access import AccessBoard, AccessCopy, AccessTableFull
from mqcore.shm.segment import Segment
from mqcore.turns import finished
from mqcore.wire import command as wire
from mqcore.workers.coordinator.shared_tables import table_of
from tests.acl import requests
from tests.support.dice import times

KEY, SECRET = "RocketMQ", "12345678"
TEXT = f"""globalWhiteRemoteAddresses: [10.9.*.*]
accounts:
- accessKey: {KEY}
  secretKey: '{SECRET}'
  topicPerms: [open=PUB|SUB, closed=DENY]
"""
PEER = addresses.packed("192.0.2.1")
PASSED = ("passed", 0)
TOPIC = ("refused", AccessReason.ACCESS_TOPIC)
WRONG = ("refused", AccessReason.ACCESS_SIGNATURE)


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Rules:
    return requests.read(tmp_path_factory.mktemp("rules"), TEXT)


@pytest.fixture(scope="module")
def probe(rules: Rules) -> Iterator[AccessProbe]:
    with requests.shown(rules, "/mqcore-test-acl-guard") as segment:
        yield AccessProbe(segment)


def written(fields: str, ext: dict[str, str | None], body: bytes = b"", code: int = 310) -> bytes:
    """A frame whose extFields stand as they are given, signed for what `ext` says they are."""
    ext = {**ext, "AccessKey": KEY}
    proof = signature(SECRET, ext, body).decode()
    return requests.json_frame(
        f'{{"code":{code},"extFields":{{{fields},"AccessKey":"{KEY}","Signature":"{proof}"}},'
        '"flag":0,"opaque":7}', body)


def test_of_a_name_that_comes_twice_the_last_value_is_signed_and_served(probe: AccessProbe):
    assert probe.judge(written('"b":"closed","b":"open"', {"b": "open"}), PEER) == PASSED
    assert probe.judge(written('"b":"open","b":"closed"', {"b": "open"}), PEER) == WRONG
    assert probe.judge(written('"b":"open","b":"closed"', {"b": "closed"}), PEER) == TOPIC
    frame = written('"b":"open","b":"closed"', {"b": "closed"})
    assert (wire.decode(frame).ext or {})["b"] == "closed"


@pytest.mark.parametrize(("fields", "ext"), [
    ('"b":"open","e":0,"k":false', {"b": "open", "e": "0", "k": "false"}),
    ('"b":"open","i":null', {"b": "open", "i": None}),
    ('"b":"open","i":""', {"b": "open", "i": ""}),
    ('"b":"open","i":"a\\u0001\\"\\\\\\/\\n\\u00e9\\ud83d\\ude00"',
     {"b": "open", "i": 'a\x01"\\/\né\U0001F600'}),
    ('"b":"open","i":"' + "\\ud83d\\ude00" * 400 + '"', {"b": "open", "i": "\U0001F600" * 400}),
    ('"b":"open","i":"' + "x\\u00e9" * 700 + '"', {"b": "open", "i": "xé" * 700}),
    ('"b" : "open" , "_UNIQUE_KEY_QUERY" : "true"', {"b": "open", "_UNIQUE_KEY_QUERY": "true"}),
    ('"b":"op\\u0065n"', {"b": "open"}),
])
def test_values_are_signed_as_they_are_meant(
        probe: AccessProbe, fields: str, ext: dict[str, str | None]):
    frame = written(fields, ext, b"body")
    assert probe.judge(frame, PEER) == PASSED
    assert probe.judge(frame[:-1], PEER) == WRONG
    assert probe.judge(frame + b"x", PEER) == WRONG


def test_fields_and_bodies_of_any_length_are_signed_in_the_order_of_their_names(
        probe: AccessProbe):
    """Names that begin alike, in any order; texts on both sides of what is signed in one piece."""
    chance = random.Random(4)
    for _ in range(times(400)):
        names = {"b" * chance.randrange(2, 12) + "Zaz0"[:chance.randrange(5)] for _ in range(12)}
        ext = {name: chance.choice(["", "é", '"']) + "v" * chance.choice(
                   [0, 1, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 300, 2040, 2048, 2049])
               for name in names}
        command = requests.signed(310, {"b": "open", **ext}, KEY, SECRET,
                                  chance.randbytes(chance.choice([0, 1, 55, 64, 128, 1900, 4096])))
        fields = list((command.ext or {}).items())
        chance.shuffle(fields)
        command.ext = dict(fields)
        for codec in wire.Codec:
            command.codec = codec
            if codec == wire.Codec.JSON or "" not in command.ext.values():
                frame = requests.frame(command)
                assert probe.judge(frame, PEER) == PASSED
                assert probe.judge(frame + b"x", PEER) == WRONG


@pytest.mark.parametrize("escaped", [1, 27, 28])
def test_a_signature_with_escapes_is_the_one_that_is_meant(probe: AccessProbe, escaped: int):
    ext: dict[str, str | None] = {"b": "open", "AccessKey": KEY}
    proof = signature(SECRET, ext, b"body").decode()
    wrong = ("A" if proof[0] != "A" else "B") + proof[1:]
    for text, expected in ((proof, PASSED), (wrong, WRONG), (proof + "A", WRONG)):
        given = "".join(f"\\u{ord(one):04x}" for one in text[:escaped]) + text[escaped:]
        frame = requests.json_frame(
            f'{{"code":310,"extFields":{{"b":"open","AccessKey":"{KEY}","Signature":"{given}"}},'
            '"flag":0,"opaque":7}', b"body")
        assert probe.judge(frame, PEER) == expected


def test_a_body_that_is_longer_than_any_message_is_not_read(rules: Rules):      # AR5
    most = 1 << 20
    with requests.shown(rules, "/mqcore-test-acl-long") as segment:
        probe = AccessProbe(segment, most)
        for code in (310, 34):
            for size, expected in ((most, WRONG), (most + 1, ("refused", 0))):
                frame = requests.frame(requests.signed(code, {"b": "open"}, KEY, SECRET))
                assert probe.judge(frame + bytes(size), PEER) == expected
        frame = requests.frame(requests.signed(34, {}, KEY, SECRET, bytes(2_000)))
        assert AccessProbe(segment, 1_000).judge(frame, PEER) == ("asked", 0)     # no message


@pytest.mark.parametrize("topic", sorted(HOLDING_TOPICS))
def test_messages_of_others_that_wait_need_a_permission_of_their_own(tmp_path: Path, topic: str):
    text = (f"accounts:\n- {{accessKey: {KEY}, secretKey: '{SECRET}', defaultTopicPerm: PUB|SUB, "
            "defaultGroupPerm: SUB, topicPerms: [other=SUB]}\n"
            f"- {{accessKey: explicit, secretKey: '{SECRET}', defaultGroupPerm: SUB, "
            f"topicPerms: [{topic}=SUB]}}\n"
            f"- {{accessKey: the-admin, secretKey: '{SECRET}', admin: true}}\n")
    pull = {"consumerGroup": "g", "topic": topic}
    for stock, expected in ((False, (TOPIC, PASSED, PASSED)), (True, (PASSED, PASSED, PASSED))):
        rules = requests.read(tmp_path, text, stock=stock)
        with requests.shown(rules, "/mqcore-test-acl-holding") as segment:
            probe = AccessProbe(segment)
            for key, found in zip((KEY, "explicit", "the-admin"), expected, strict=True):
                command = requests.signed(11, pull, key, SECRET)
                assert probe.judge(requests.frame(command), PEER) == found
                wanted = finished(needs.wanted(command, stock=stock))
                refusal = rules.refusal(rules.accounts[key], 11, wanted.permissions,
                                        admin=wanted.admin)
                assert (refusal is None) == (found == PASSED)


def test_what_the_fast_reader_does_not_read_is_left_to_the_coordinator(probe: AccessProbe):
    many = ",".join(f'"f{n}":"v"' for n in range(70))
    for header in (
            '{"code":310,"extFields":{"\\u0062":"open"},"flag":0,"opaque":7}',
            '{"extFields":{"b":"open"},"code":310,"flag":0,"opaque":7}',
            '{"code":310,"extFields":{"b":"open"},"extFields":{"b":"closed"},"flag":0,"opaque":7}',
            '{"code":310,"extFields":{"b":"open"},"flag":0,"opaque":7,"extFields":9}',
            '{"code":310,"extFields":{"b":1.5},"flag":0,"opaque":7}',
            '{"CODE":310,"ext_fields":{"b":"open"},"flag":0,"opaque":7}',
            f'{{"code":310,"extFields":{{{many}}},"flag":0,"opaque":7}}',
            '{"code":17,"extFields":{},"flag":1,"opaque":7}'):
        assert probe.judge(requests.json_frame(header), PEER) == ("asked", 0)


def test_who_sends_what_the_coordinator_decides_is_looked_at_first(probe: AccessProbe):
    nobody = requests.json_frame('{"code":34,"extFields":{},"flag":0,"opaque":7}')
    assert probe.judge(nobody, PEER) == ("refused", AccessReason.ACCESS_NO_KEY)
    for codec in wire.Codec:
        for code in (14, 17, 34, 9999):
            command = requests.signed(code, {"topic": "closed"}, KEY, SECRET, b"{}", codec=codec)
            assert probe.judge(requests.frame(command), PEER) == ("asked", 0)
            assert probe.judge(requests.frame(command) + b"x", PEER) == WRONG
            command = requests.signed(code, {}, "stranger-1", SECRET, codec=codec)
            assert probe.judge(requests.frame(command), PEER) == (
                "refused", AccessReason.ACCESS_UNKNOWN_KEY)


@pytest.mark.parametrize("proof", ["", "x" * 27, "x" * 28, "x" * 29, "=" * 28])
def test_a_signature_of_any_length_is_compared(probe: AccessProbe, proof: str):
    command = requests.signed(310, {"b": "open"}, KEY, SECRET)
    (command.ext or {})["Signature"] = proof
    for codec in wire.Codec:
        command.codec = codec
        assert probe.judge(requests.frame(command), PEER) == WRONG


def test_white_addresses_need_no_account(probe: AccessProbe):
    frame = requests.json_frame('{"code":310,"extFields":{"b":"closed"},"flag":0,"opaque":7}')
    assert probe.judge(frame, addresses.packed("10.9.200.1")) == PASSED
    assert probe.judge(frame, PEER) == ("refused", AccessReason.ACCESS_NO_KEY)


def test_random_requests_are_judged_as_in_the_coordinator(tmp_path: Path):
    """With the stricter permissions, which stock does not know."""
    chance = random.Random(3)
    decided = 0
    for number in range(10):
        rules = requests.read(tmp_path / str(number), requests.world(chance))
        with requests.shown(rules, "/mqcore-test-acl-random") as segment:
            probe = AccessProbe(segment)
            for _ in range(60):
                command, host = requests.request(chance), chance.choice(requests.V4)
                found, _ = probe.judge(requests.frame(command), addresses.packed(host))
                account = finished(rules.identify(command, host))
                if found == "asked":
                    assert not isinstance(account, AccessRefusal)
                    continue
                decided += 1
                if isinstance(account, AccessRefusal):
                    assert found == "refused"
                elif account is None:
                    assert found == "passed"
                else:
                    wanted = finished(needs.wanted(command, stock=False))
                    refusal = rules.refusal(account, command.code, wanted.permissions,
                                            admin=wanted.admin)
                    assert (found == "passed") == (refusal is None), (command, refusal)
    assert decided > 100


def test_batches_need_a_permission_unless_stock_rules_are_asked_for(
        rules: Rules, probe: AccessProbe):
    frame = requests.frame(requests.signed(320, {"b": "closed"}, KEY, SECRET))
    assert probe.judge(frame, PEER) == TOPIC
    lenient = Rules(rules.files, stock_permissions=True)
    with requests.shown(lenient, "/mqcore-test-acl-stock") as shm:
        assert AccessProbe(shm).judge(frame, PEER) == PASSED


@pytest.mark.parametrize("stock", [False, True])
def test_a_group_without_a_name_needs_a_permission_to_send_to_a_retry_topic(
        tmp_path: Path, *, stock: bool):
    rules = requests.read(tmp_path, (
        f"accounts: [{{accessKey: {KEY}, secretKey: '{SECRET}', groupPerms: [workers=SUB]}}]"),
        stock=stock)
    with requests.shown(rules, "/mqcore-test-acl-nameless") as segment:
        probe = AccessProbe(segment)
        for group, found in (("workers", PASSED), ("", ("refused", AccessReason.ACCESS_GROUP))):
            command = requests.signed(310, {"a": group, "b": "%RETRY%workers"}, KEY, SECRET)
            assert probe.judge(requests.frame(command), PEER) == found, group


# -- the table -------------------------------------------------------------------------------------


def test_ten_thousand_accounts_are_found(tmp_path: Path):
    count = times(10_000)
    text = "accounts:\n" + "".join(
        f"- {{accessKey: account-{n}, secretKey: secret-{n}, topicPerms: [topic-{n}=PUB]}}\n"
        for n in range(count))
    rules = requests.read(tmp_path, text)
    with requests.shown(rules, "/mqcore-test-acl-many") as segment:
        copy, probe = AccessCopy(segment), AccessProbe(segment)
        assert copy.look()
        for n in (0, 1, count // 2, count - 1):
            assert copy.permission(f"account-{n}".encode(), b"", f"topic-{n}".encode()) == 4
            assert copy.permission(f"account-{n}".encode(), b"", f"topic-{n + 1}".encode()) == 0
            command = requests.signed(310, {"b": f"topic-{n}"}, f"account-{n}", f"secret-{n}")
            assert probe.judge(requests.frame(command), PEER) == PASSED
        assert not copy.has(f"account-{count}".encode())


def test_before_the_rules_are_there_everything_waits_and_a_change_counts_at_once(rules: Rules):
    segment = Segment.create(
        "/mqcore-test-acl-waits", run_id=1, serving_count=1, segment_size=65536,
        message_bytes_max=4096, topics=64, groups=64, subscriptions=64, queues=64,
        access_bytes=65536, kind="memfd")
    probe, board = AccessProbe(segment), AccessBoard(segment)
    frame = requests.frame(requests.signed(310, {"b": "open"}, KEY, SECRET))
    assert probe.judge(frame, PEER) == ("waits", 0)
    board.write(table_of(rules))
    assert probe.judge(frame, PEER) == PASSED
    board.write(table_of(Rules([])))
    assert probe.judge(frame, PEER) == ("refused", AccessReason.ACCESS_UNKNOWN_KEY)
    with pytest.raises(AccessTableFull, match=r"acl\.table_bytes_max"):
        board.write(bytes(65537))
    assert probe.judge(frame, PEER) == ("refused", AccessReason.ACCESS_UNKNOWN_KEY)


def test_no_secret_is_in_the_table(rules: Rules):
    assert SECRET.encode() not in table_of(rules)
    assert json.dumps(SECRET) not in repr(rules.accounts)


def test_a_table_that_a_dead_coordinator_left_open_is_not_taken(rules: Rules) -> None:     # AR1
    with requests.shown(rules, "/mqcore-test-acl-open") as segment:
        board, before, copy = AccessBoard(segment), AccessCopy(segment), AccessCopy(segment)
        assert before.look()
        board.break_off()
        assert (before.look(), copy.look()) == (False, False)
        board.write(table_of(rules))
        assert (before.look(), copy.look()) == (True, True)
