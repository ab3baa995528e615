"""A running broker with access control, asked over sockets."""
from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcore.acl.rules import EXCEPTION, HOLDING_TOPICS, signature
from mqcore.wire import fastjson
from mqcore.wire.codes import FLAG_ONEWAY, FLAG_RESPONSE
from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.command import Codec, Command, encode, next_opaque, request
from mqcore.wire.properties import encode_properties
from mqcore.wire.records import decode_record, decode_records
from tests.acl import requests
from tests.support.mqcore_process import MqcoreError, MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer, pull_fields, send_fields, topic_fields

ADMIN, USER = ("the-admin", "admin-secret"), ("the-user", "user-secret")
READER = ("the-reader", "reader-secret")
RULES = """globalWhiteRemoteAddresses: [127.9.*.*]
accounts:
- {accessKey: the-admin, secretKey: admin-secret, admin: true}
- accessKey: the-user
  secretKey: user-secret
  whiteRemoteAddress: 127.8.0.1
  topicPerms: [open=PUB|SUB, write-only=PUB, RMQ_SYS_TRANS_HALF_TOPIC=PUB]
  groupPerms: [readers=SUB]
- {accessKey: the-reader, secretKey: reader-secret, defaultTopicPerm: SUB, defaultGroupPerm: SUB,
   topicPerms: [closed=DENY]}
"""
NO_TOPIC, NO_GROUP = "No default permission for topic:", "No default permission for group:"
MESSAGE_MAX = 4 << 20             # bytes of a body, as shipped
LONG = 400 << 10                  # bytes: travels to the coordinator in parts


class Signer(Peer):
    """A connection whose requests an account signs; host: where it comes from; tls: as Peer's."""

    def __init__(self, address: str, account: tuple[str, str] | None = None,
                 host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> None:
        self.account = account
        super().__init__(address, source=host, tls=tls)

    def made(self, code: int, ext: dict[str, str | None] | None = None, body: bytes = b"",
             codec: Codec = Codec.JSON) -> Command:
        fields = {name: value for name, value in (ext or {}).items() if value is not None}
        if self.account is None:
            return request(code, dict(fields), body, codec=codec)
        command = requests.signed(code, fields, *self.account, body, codec=codec)
        command.opaque = next_opaque()
        return command

    def does(self, code: int, ext: dict[str, str | None] | None = None, body: bytes = b"",
             codec: Codec = Codec.JSON) -> Command:
        command = self.made(code, ext, body, codec)
        self.send(encode(command))
        return self.answer_to(command.opaque)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreProcess]:
    folder = tmp_path_factory.mktemp("acl")
    (folder / "plain_acl.yml").write_text(RULES)
    with mqcore_up(folder, {"acl.enable": True, "processes.serving_count": 2}) as running:
        with Signer(running.broker_addr, ADMIN) as admin:
            for topic in ("open", "write-only", "closed"):
                assert admin.does(Code.UPDATE_AND_CREATE_TOPIC, topic_fields(topic, 1)).code == 0
        yield running


@pytest.fixture
def user(broker: MqcoreProcess) -> Iterator[Signer]:
    with Signer(broker.broker_addr, USER) as made:
        yield made


@pytest.fixture
def admin(broker: MqcoreProcess) -> Iterator[Signer]:
    with Signer(broker.broker_addr, ADMIN) as made:
        yield made


def refused(answer: Command, why: str = "") -> bool:
    return answer.code == 1 and (answer.remark or "").startswith(EXCEPTION + why)


def test_sends_and_pulls_of_both_forms_and_codecs(user: Signer):
    for codec in Codec:
        for code in (Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE):
            # an empty value is null in the binary form, which no signature of it survives
            body, text = b"hello", encode_properties({"TAGS": "a"})
            good = user.does(code, send_fields("open", properties=text), body, codec)
            assert not refused(good), good
            assert refused(user.does(code, send_fields("closed", properties=text), body, codec),
                           NO_TOPIC + "closed")
        assert user.does(Code.PULL_MESSAGE, pull_fields("open", group="readers"),
                         codec=codec).code in (0, 19)
        assert refused(user.does(Code.PULL_MESSAGE, pull_fields("write-only", group="readers"),
                                 codec=codec), NO_TOPIC)
        assert refused(user.does(Code.PULL_MESSAGE, pull_fields("open", group="others"),
                                 codec=codec), NO_GROUP)


def test_who_is_nobody_or_somebody_else_is_refused(broker: MqcoreProcess):
    with Signer(broker.broker_addr) as nobody:
        assert refused(nobody.does(Code.SEND_MESSAGE_V2, send_fields("open")), "No accessKey is")
        assert refused(nobody.does(Code.GET_BROKER_RUNTIME_INFO), "No accessKey is")
    for account in (("stranger", "user-secret"), (USER[0], "wrong-secret")):
        with Signer(broker.broker_addr, account) as other:
            for code, fields in ((Code.SEND_MESSAGE_V2, send_fields("open")),
                                 (Code.GET_BROKER_RUNTIME_INFO, {})):
                answer = other.does(code, fields)
                assert refused(answer)
                assert account[0] in (answer.remark or "")
                assert account[1] not in (answer.remark or "")


def test_white_listed_addresses_are_asked_for_nothing(broker: MqcoreProcess):
    with Signer(broker.broker_addr, None, "127.9.1.1") as anybody:
        assert anybody.does(Code.SEND_MESSAGE_V2, send_fields("closed"), b"x").code == 0
        assert anybody.does(Code.GET_BROKER_RUNTIME_INFO).code == 0
    with Signer(broker.broker_addr, (USER[0], "wrong-secret"), "127.8.0.1") as trusted:
        assert trusted.does(Code.SEND_MESSAGE_V2, send_fields("closed"), b"x").code == 0
        assert trusted.does(Code.GET_BROKER_RUNTIME_INFO).code == 0
    with Signer(broker.broker_addr, None, "127.8.0.1") as nobody:
        assert refused(nobody.does(Code.SEND_MESSAGE_V2, send_fields("closed"), b"x"))


@pytest.mark.parametrize("topic", ["open", "no-message-yet"])
def test_a_held_pull_gets_nothing_once_its_right_is_withdrawn(
    topic: str, broker: MqcoreProcess, admin: Signer,
) -> None:
    account = ("the-guest", "guest-secret")
    assert admin.does(Code.UPDATE_AND_CREATE_TOPIC, topic_fields(topic, 1)).code == 0
    assert admin.does(Code.UPDATE_AND_CREATE_ACL_CONFIG, {
        "accessKey": account[0], "secretKey": account[1], "topicPerms": f"{topic}=SUB",
        "groupPerms": "guests=SUB"}).code == 0
    end = int((admin.does(Code.GET_MAX_OFFSET, {
        "topic": topic, "queueId": "0"}).ext or {})["offset"] or 0)
    with Signer(broker.broker_addr, account) as guest:
        first = guest.does(Code.PULL_MESSAGE, pull_fields(topic, group="guests", offset=end))
        assert first.code == 19, first
        held = guest.made(Code.PULL_MESSAGE, pull_fields(
            topic, group="guests", offset=end, sys_flag=6, suspend_ms=60_000))
        guest.send(encode(held))
        assert guest.does(Code.GET_BROKER_RUNTIME_INFO).code == 0     # it was read, and is held
        assert admin.does(Code.DELETE_ACL_CONFIG, {"accessKey": account[0]}).code == 0
        assert admin.does(Code.SEND_MESSAGE_V2, send_fields(topic), b"later").code == 0
        answer = guest.answer_to(held.opaque)
    assert (answer.code, answer.body) == (19, b"")


def with_hash_of(text: str, prefix: str) -> str:
    """A text that begins so and has Java's hash of another."""
    def java(start: int, more: str) -> int:
        for one in more:
            start = (31 * start + ord(one)) & 0xFFFFFFFF
        return start

    missing = (java(0, text) - java(java(0, prefix), "0" * 8)) & 0xFFFFFFFF
    steps = []
    for place in range(7, -1, -1):                 # digits to base 31, each 0 to 30 above "0"
        steps.append(missing // 31**place if place < 7 else 0)
        missing -= steps[-1] * 31**place
    found = prefix + "".join(chr(ord("0") + step) for step in steps)
    assert java(0, found) == java(0, text)
    return found


def test_a_key_with_the_hash_of_anothers_shows_nothing_of_it(user: Signer, admin: Signer):
    properties = encode_properties({"KEYS": "order-17"})
    assert admin.does(Code.SEND_MESSAGE_V2, send_fields("closed", properties=properties),
                      b"of others").code == 0
    asked = {"key": with_hash_of("closed#order-17", "open#").removeprefix("open#"), "topic": "open",
             "maxNum": "32", "beginTimestamp": "0", "endTimestamp": str(1 << 62)}
    own = encode_properties({"KEYS": asked["key"]})
    assert user.does(Code.SEND_MESSAGE_V2, send_fields("open", properties=own), b"mine").code == 0

    def bodies(signer: Signer) -> list[bytes]:
        return [one.body for one in decode_records(signer.does(Code.QUERY_MESSAGE, asked).body)]

    wait_until(lambda: sorted(bodies(admin)) == [b"mine", b"of others"], "both are in the index")
    assert bodies(user) == [b"mine"]


def test_one_way_requests_are_refused_in_silence(user: Signer, admin: Signer):
    def stored() -> int:
        answer = admin.does(Code.GET_MAX_OFFSET, {"topic": "closed", "queueId": "0"})
        return int((answer.ext or {})["offset"] or 0)

    before = stored()
    for code in (Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE):
        command = user.made(code, send_fields("closed"), b"x")
        command.flag = FLAG_ONEWAY
        user.send(encode(command))
    command = user.made(Code.DELETE_TOPIC_IN_BROKER, {"topic": "closed"})
    command.flag = FLAG_ONEWAY
    user.send(encode(command))
    assert user.does(Code.SEND_MESSAGE_V2, send_fields("open"), b"x").code == 0
    assert stored() == before
    assert admin.does(Code.SEND_MESSAGE_V2, send_fields("closed"), b"x").code == 0


def unusual(fields: dict[str, str], account: tuple[str, str], body: bytes = b"",
            code: int = 310) -> bytes:
    """A signed frame with a header that only the coordinator's reader knows."""
    ext: dict[str, str | None] = {**fields, "AccessKey": account[0]}
    ext["Signature"] = signature(account[1], ext, body).decode()
    header = b'{"extFields":' + fastjson.dumps(ext) + (
        f',"code":{code},"flag":0,"opaque":77,"language":"JAVA","version":409}}').encode()
    frame = len(header).to_bytes(4, "big") + header + body
    return len(frame).to_bytes(4, "big") + frame


def plain(fields: dict[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in fields.items() if value is not None}


def test_what_the_fast_reader_does_not_know_is_judged_as_well(user: Signer):
    user.send(unusual(plain(send_fields("open")), USER, b"x"))
    assert user.answer_to(77).code == 0
    user.send(unusual(plain(send_fields("closed")), USER, b"x"))
    assert refused(user.answer_to(77), NO_TOPIC)
    user.send(unusual(plain(send_fields("open")), (USER[0], "wrong-secret"), b"x"))
    assert refused(user.answer_to(77), "Check signature")
    good = unusual(plain(send_fields("open")), USER, b"x")
    user.send(good[:-1] + b"y")
    assert refused(user.answer_to(77), "Check signature")
    user.send(unusual(plain(send_fields("open")), USER, bytes(LONG)))
    assert refused(user.answer_to(77), "a request of more than")


def test_long_requests_are_judged_whole(user: Signer, admin: Signer):
    assert user.does(Code.SEND_MESSAGE_V2, send_fields("open"), bytes(LONG)).code == 0
    assert refused(user.does(Code.SEND_MESSAGE_V2, send_fields("closed"), bytes(LONG)), NO_TOPIC)
    body = b'{"clientID":"c","consumerDataSet":[]' + b" " * LONG + b"}"
    assert user.does(Code.HEART_BEAT, {}, body).code == 0
    command = user.made(Code.HEART_BEAT, {}, body)
    command.body = body[:-2] + b"\n}"
    user.send(encode(command))
    assert refused(user.answer_to(command.opaque), "Check signature")


def test_a_body_longer_than_any_message_is_refused_before_its_signature_is_looked_at(
        broker: MqcoreProcess, user: Signer):
    with Signer(broker.broker_addr, (USER[0], "wrong-secret")) as other:
        for peer in (user, other):
            answer = peer.does(Code.SEND_MESSAGE_V2, send_fields("open"), bytes(MESSAGE_MAX + 1))
            assert (answer.code, "is longer than" in (answer.remark or "")) == (13, True)
        assert refused(other.does(Code.SEND_MESSAGE_V2, send_fields("open"), bytes(MESSAGE_MAX)),
                       "Check signature")
    assert user.does(Code.SEND_MESSAGE_V2, send_fields("open"), bytes(MESSAGE_MAX)).code == 0


def test_a_request_that_says_it_is_a_response_does_nothing(user: Signer, admin: Signer):
    command = request(Code.DELETE_TOPIC_IN_BROKER, {"topic": "open"})
    command.flag = FLAG_RESPONSE
    user.send(encode(command))
    assert user.does(Code.SEND_MESSAGE_V2, send_fields("open"), b"x").code == 0


def heartbeat(group: str, topic: str) -> bytes:
    return fastjson.dumps({"clientID": "c", "consumerDataSet": [{
        "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": [{
            "topic": topic, "subString": "*", "subVersion": 1}]}]})


def test_members_of_groups(user: Signer):
    assert user.does(Code.HEART_BEAT, {}, heartbeat("readers", "open")).code == 0
    assert refused(user.does(Code.HEART_BEAT, {}, heartbeat("readers", "closed")), NO_TOPIC)
    assert refused(user.does(Code.HEART_BEAT, {}, heartbeat("others", "open")), NO_GROUP)
    locks = fastjson.dumps({"clientId": "c", "consumerGroup": "others", "mqSet": []})
    assert refused(user.does(Code.LOCK_BATCH_MQ, {}, locks), NO_GROUP)
    progress: dict[str, str | None] = {"topic": "open", "queueId": "0", "commitOffset": "0",
                                       "consumerGroup": "others"}
    assert refused(user.does(Code.UPDATE_CONSUMER_OFFSET, progress), NO_GROUP)
    assert refused(user.does(Code.QUERY_CONSUMER_OFFSET, progress), NO_GROUP)


@pytest.mark.parametrize("code", [
    Code.UPDATE_AND_CREATE_TOPIC, Code.DELETE_TOPIC_IN_BROKER, Code.UPDATE_BROKER_CONFIG,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, Code.DELETE_SUBSCRIPTIONGROUP,
    Code.UPDATE_AND_CREATE_ACL_CONFIG, Code.DELETE_ACL_CONFIG,
    Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, Code.INVOKE_BROKER_TO_RESET_OFFSET,
    Code.CLEAN_UNUSED_TOPIC, Code.CLONE_GROUP_OFFSET])
def test_what_changes_the_broker_needs_an_administrator(user: Signer, code: Code):
    assert refused(user.does(code, {"topic": "open", "accessKey": "the-user"}), "Need admin")


def message_at(admin: Signer, topic: str, *, sys_flag: int = 0, **properties: str) -> str:
    """The log position of a message of a topic, as text."""
    answer = admin.does(Code.SEND_MESSAGE_V2, send_fields(
        topic, sys_flag=sys_flag, properties=encode_properties({"KEYS": "k", **properties})),
        b"secret matter")
    return str(int((answer.ext or {})["msgId"][16:], 16))  # type: ignore[index]


HALF = {"TRAN_MSG": "true", "PGROUP": "PG", "UNIQ_KEY": "0A0B" * 8}


@pytest.mark.parametrize(("sys_flag", "properties"), [
    (0, {}), (0, {"DELAY": "18"}), (4, HALF)], ids=["plain", "delayed", "half"])
def test_no_way_round_leads_to_messages_of_other_topics(
        broker: MqcoreProcess, user: Signer, admin: Signer, sys_flag: int,
        properties: dict[str, str]):
    there = message_at(admin, "closed", sys_flag=sys_flag, **properties)
    wait_until(lambda: admin.does(Code.VIEW_MESSAGE_BY_ID, {"offset": there}).code == 0,
               "the message is there")
    assert refused(user.does(Code.VIEW_MESSAGE_BY_ID, {"offset": there}), NO_TOPIC + "closed")
    assert refused(user.does(Code.CONSUMER_SEND_MSG_BACK, {
        "offset": there, "group": "readers", "delayLevel": "1", "unitMode": "false"}),
        NO_TOPIC + "closed")
    assert refused(user.does(Code.QUERY_MESSAGE, {
        "topic": "closed", "key": "k", "maxNum": "3", "beginTimestamp": "0",
        "endTimestamp": "9" * 13}), NO_TOPIC + "closed")
    with Signer(broker.broker_addr, READER) as reader:
        assert refused(reader.does(Code.VIEW_MESSAGE_BY_ID, {"offset": there}), NO_TOPIC + "closed")
        for topic in HOLDING_TOPICS:
            for code in (Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE):
                assert refused(reader.does(code, pull_fields(topic, group="readers", queue_id=17)),
                               NO_TOPIC + topic)


@pytest.mark.parametrize(("sys_flag", "properties"), [
    (0, {"DELAY": "18"}), (4, HALF)], ids=["delayed", "half"])
def test_who_may_read_a_topic_sees_its_messages_that_wait(
        user: Signer, admin: Signer, sys_flag: int, properties: dict[str, str]):
    there = message_at(admin, "open", sys_flag=sys_flag, **properties)
    wait_until(lambda: user.does(Code.VIEW_MESSAGE_BY_ID, {"offset": there}).code == 0,
               "the message is there")


def test_ends_of_transactions_need_what_they_publish_to(user: Signer, admin: Signer):
    properties = encode_properties({"TRAN_MSG": "true", "PGROUP": "PG", "UNIQ_KEY": "0A0B" * 8})
    for topic, good in (("closed", False), ("write-only", True)):
        answer = admin.does(Code.SEND_MESSAGE_V2, send_fields(
            topic, properties=properties, sys_flag=4), b"debit")
        position = int((answer.ext or {})["msgId"][16:], 16)  # type: ignore[index]
        data = admin.does(Code.VIEW_MESSAGE_BY_ID, {"offset": str(position)}).body
        record = decode_record(data)
        fields: dict[str, str | None] = {
            "producerGroup": "PG", "tranStateTableOffset": str(record.queue_offset),
            "commitLogOffset": str(position), "commitOrRollback": "8"}
        answers = [user.does(Code.END_TRANSACTION, fields)]
        if not good:
            user.send(unusual(plain(fields), USER, code=Code.END_TRANSACTION))
            answers.append(user.answer_to(77))
            # read here, but for its position: the coordinator is asked, and gives it back
            escaped = f"\\u{ord(str(position)[0]):04x}{str(position)[1:]}"
            proof = user.made(Code.END_TRANSACTION, fields).ext or {}
            header = fastjson.dumps(proof).decode().replace(
                f'"commitLogOffset":"{position}"', f'"commitLogOffset":"{escaped}"')
            assert escaped in header
            frame = requests.json_frame(
                f'{{"code":37,"extFields":{header},"flag":0,"opaque":78}}')
            user.send(len(frame).to_bytes(4, "big") + frame)
            answers.append(user.answer_to(78))
        for ended in answers:
            assert refused(ended, NO_TOPIC + topic) == (not good), ended


# -- changes ---------------------------------------------------------------------------------------


def test_accounts_are_changed_by_request_and_count_at_once(
        broker: MqcoreProcess, admin: Signer, user: Signer):
    account = {"accessKey": "the-guest", "secretKey": "guest-secret", "admin": "false",
               "topicPerms": "open=PUB", "defaultGroupPerm": "SUB"}
    with Signer(broker.broker_addr, ("the-guest", "guest-secret")) as guest:
        assert refused(guest.does(Code.SEND_MESSAGE_V2, send_fields("open"), b"x"))
        assert admin.does(Code.UPDATE_AND_CREATE_ACL_CONFIG, {**account}).code == 0
        assert guest.does(Code.SEND_MESSAGE_V2, send_fields("open"), b"x").code == 0
        said = admin.does(Code.GET_BROKER_CLUSTER_ACL_INFO).ext or {}
        counter = fastjson.loads((said["version"] or "").encode())["counter"]
        assert set(fastjson.loads((said["allAclFileVersion"] or "").encode())) == {
            str(broker.folder / "plain_acl.yml")}
        assert admin.does(Code.UPDATE_AND_CREATE_ACL_CONFIG,
                          {**account, "topicPerms": "open=SUB"}).code == 0
        assert refused(guest.does(Code.SEND_MESSAGE_V2, send_fields("open"), b"x"), NO_TOPIC)
        assert admin.does(Code.DELETE_ACL_CONFIG, {"accessKey": "the-guest"}).code == 0
        assert refused(guest.does(Code.SEND_MESSAGE_V2, send_fields("open"), b"x"), "No acl config")
        after = admin.does(Code.GET_BROKER_CLUSTER_ACL_INFO).ext or {}
        assert fastjson.loads((after["version"] or "").encode())["counter"] == counter + 2
    with Signer(broker.broker_addr, None, "127.7.0.1") as anybody:
        assert refused(anybody.does(Code.GET_BROKER_RUNTIME_INFO))
        assert admin.does(Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, {
            "globalWhiteAddrs": "127.9.*.*,127.7.0.1", "aclFileFullPath": ""}).code == 0
        assert anybody.does(Code.GET_BROKER_RUNTIME_INFO).code == 0
    assert "guest-secret" not in broker.tail()


@pytest.mark.parametrize(("code", "ext", "expected"), [
    (50, {"accessKey": "short", "secretKey": "long-enough"}, (209, "at least 7")),
    (50, {"accessKey": "long-enough", "secretKey": "short"}, (209, "at least 7")),
    (50, {"accessKey": "long-enough", "secretKey": "long-enough", "topicPerms": "a=b=c"},
     (209, "name=PERM")),
    (50, {"accessKey": "long-enough", "secretKey": "long-enough", "topicPerms": "a=ALL"},
     (209, "expected DENY")),
    (50, {"accessKey": "long-enough", "secretKey": "long-enough", "whiteRemoteAddress": "1.2"},
     (209, "no address pattern")),
    (51, {"accessKey": "nobody-at-all"}, (210, "no account")),
    (53, {"globalWhiteAddrs": "1.2.3", "aclFileFullPath": ""}, (211, "no address pattern")),
    (53, {"globalWhiteAddrs": "1.2.3.4", "aclFileFullPath": "/etc/passwd"}, (211, "the path of")),
])
def test_a_bad_change_never_reaches_a_file(
        broker: MqcoreProcess, admin: Signer, code: int, ext: dict[str, str | None],
        expected: tuple[int, str]):
    before = (broker.folder / "plain_acl.yml").read_bytes()
    answer = admin.does(code, ext)
    assert answer.code == expected[0]
    assert expected[1] in (answer.remark or "")
    assert (broker.folder / "plain_acl.yml").read_bytes() == before


def test_a_change_is_not_written_over_what_somebody_else_is_writing(
        broker: MqcoreProcess, admin: Signer):
    file = broker.folder / "plain_acl.yml"
    whole = file.read_bytes()

    def added() -> Command:
        return admin.does(Code.UPDATE_AND_CREATE_ACL_CONFIG,
                          {"accessKey": "the-new-one", "secretKey": "new-secret"})

    try:
        for half, why in ((b"", "nothing in it"), (
                b"accounts:\n- {accessKey: the-admin, secretKey: admin-secret, admin: true}\n",
                "in force yet")):
            file.write_bytes(half)
            answer = added()
            assert answer.code == 209
            assert why in (answer.remark or "")
            assert file.read_bytes() == half
    finally:
        file.write_bytes(whole)
    wait_until(lambda: added().code == 0, "what it says is in force")
    assert b"the-user" in file.read_bytes()


def test_files_are_read_again_and_a_bad_one_changes_nothing(broker: MqcoreProcess):
    file = broker.folder / "acl" / "more.yml"
    file.parent.mkdir()
    with Signer(broker.broker_addr, ("the-other", "other-secret")) as other:
        def may() -> bool:
            return other.does(Code.SEND_MESSAGE_V2, send_fields("open"), b"x").code == 0

        assert not may()
        file.write_text("accounts:\n- {accessKey: the-other, secretKey: other-secret, "
                        "defaultTopicPerm: PUB}\n")
        wait_until(may, "the new account counts")
        file.write_text("accounts:\n- accessKey: the-other\n  secretKey: other-secret\n"
                        "  topicPerms: [wrong]\n")
        said = f"{file}:4: topicPerms: expected name=PERM"
        wait_until(lambda: broker.tail().count(said) == 2, "broker and name server say it")
        assert may()
        file.unlink()
        wait_until(lambda: not may(), "the account is gone")
    assert broker.tail().count(f"{file}:4:") == 2


def test_changes_of_accounts_are_told_without_secrets(broker: MqcoreProcess, admin: Signer):
    account: dict[str, str | None] = {
        "accessKey": "told-of", "secretKey": "told-secret-1", "topicPerms": "open=PUB"}
    for more in ({}, {"secretKey": "told-secret-2", "admin": "true"}):
        assert admin.does(Code.UPDATE_AND_CREATE_ACL_CONFIG, {**account, **more}).code == 0
    assert admin.does(Code.DELETE_ACL_CONFIG, {"accessKey": "told-of"}).code == 0
    changed = "audit: UPDATE_AND_CREATE_ACL_CONFIG of the-admin from 127.0.0.1:"
    for said in (changed, "on told-of changed accessKey from nothing to told-of, ",
                 "on told-of changed admin from False to True, secretKey from hidden to another",
                 "topicPerms from ['open=PUB'] to nothing"):
        wait_until(lambda said=said: said in broker.output.read_text(), said)  # type: ignore[misc]
    assert "told-secret" not in broker.output.read_text()


def test_refusals_are_told_without_secrets(broker: MqcoreProcess, user: Signer):
    assert refused(user.does(Code.DELETE_TOPIC_IN_BROKER, {"topic": "told-of"}))
    told = "refused DELETE_TOPIC_IN_BROKER of the-user from 127.0.0.1:"
    wait_until(lambda: told in broker.tail(), "an audit line")
    assert "on told-of: no administrator" in broker.tail()
    assert "user-secret" not in broker.tail()
    assert "admin-secret" not in broker.tail()


@pytest.mark.parametrize("embedded", [False, True])
def test_a_file_that_cannot_be_used_stops_the_start_with_one_line(tmp_path: Path, embedded: bool):
    (tmp_path / "plain_acl.yml").write_text("accounts:\n- accessKey: short\n")
    settings = {"acl.enable": True, "namesrv.embedded": embedded}
    with pytest.raises(MqcoreError) as error, mqcore_up(tmp_path, settings):
        pytest.fail("it has started")
    said = f"mqcore: {tmp_path / 'plain_acl.yml'}:2: accessKey: 5 characters: expected at least 7"
    assert said in str(error.value)
    assert "mqcore.supervisor" not in str(error.value)
