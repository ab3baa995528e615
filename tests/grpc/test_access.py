"""Access control of gRPC calls: signatures, permissions, rules that change (authorization.pxd)."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcore.client import Admin, Credentials, Message, Producer
from mqcore.wire.grpc import SHAPES
from tests.grpc.caller import CLIENT, NATIVE, Caller, authorization, calling, receive_request
from tests.grpc.test_official import check_java, check_python, run_java, run_python
from tests.grpc.world import GrpcBroker, grpc_broker
from tests.support.waiting import wait_until

RULES = """
globalWhiteRemoteAddresses: []
accounts:
- accessKey: the-admin
  secretKey: admin-secret
  admin: true
- accessKey: the-user
  secretKey: user-secret
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms: [orders=PUB|SUB, sent=PUB, read=SUB]
  groupPerms: [workers=SUB]
- accessKey: the-neighbour
  secretKey: neighbour-secret
  whiteRemoteAddress: 127.0.0.1
- accessKey: the-client
  secretKey: client-secret
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: SUB
"""
ADMIN, USER = ("the-admin", "admin-secret"), ("the-user", "user-secret")
OK, UNAUTHORIZED, NOTHING_NEW = 20000, 40100, 40401


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GrpcBroker]:
    folder = tmp_path_factory.mktemp("access")
    (folder / "plain_acl.yml").write_text(RULES)
    with grpc_broker(folder, {"acl.enable": True}) as broker:
        with Admin(broker.process.namesrv_addr, credentials=Credentials(*ADMIN)) as admin:
            for topic in ("orders", "sent", "read", "other"):
                admin.create_topic(topic)
        yield broker


@pytest.fixture(scope="module")
def user(guarded: GrpcBroker) -> Iterator[Caller]:
    with calling(guarded.address, *USER) as one:
        yield one


def heartbeat(caller: Caller, metadata: dict[str, str]) -> int:
    messages, status = caller.call("Heartbeat", SHAPES.encode(
        "HeartbeatRequest", {"client_type": 1}), {**CLIENT, **metadata})
    assert status == 0
    return int(NATIVE.decode("StatusOnly", messages[0])["status"]["code"])


RIGHT = authorization(*USER)["authorization"]
DIGEST = RIGHT.rpartition("=")[2]
DATE = {"x-mq-date-time": "20261128T200000Z"}


@pytest.mark.parametrize(("text", "code"), [
    (RIGHT, OK),
    (RIGHT.replace(DIGEST, DIGEST.upper()), OK),
    (f"any  Signature={DIGEST} ,Credential=the-user/region/Rocketmq", OK),
    (f"any Credential=the-neighbour,Credential=the-user,Signature=1,Signature={DIGEST}", OK),
    ("any Credential=the-neighbour", OK),                   # its address needs no signature
    (RIGHT.replace("the-user", "the-admin"), UNAUTHORIZED),
    (RIGHT.replace("the-user", "unknown"), UNAUTHORIZED),
    (RIGHT.replace("the-user", ""), UNAUTHORIZED),
    (RIGHT.replace(" ", "", 1), UNAUTHORIZED),              # no blank behind the algorithm
    (RIGHT[:-1], UNAUTHORIZED),
    (RIGHT + "0", UNAUTHORIZED),
    (RIGHT.replace(DIGEST, "zz" * 20), UNAUTHORIZED),
    (RIGHT.replace(DIGEST, DIGEST[:-1] + ("0" if DIGEST[-1] != "0" else "1")), UNAUTHORIZED),
    ("any Credential=the-user", UNAUTHORIZED),
    ("any", UNAUTHORIZED), ("any =", UNAUTHORIZED), ("any Credential", UNAUTHORIZED),
    (RIGHT + "," + "x" * 1024, UNAUTHORIZED),               # longer than any that is read
    ("any " + "," * 1000, UNAUTHORIZED)])
def test_authorizations(user: Caller, text: str, code: int) -> None:
    assert heartbeat(user, {**DATE, "authorization": text}) == code


def test_each_half_of_a_signature_is_looked_at(user: Caller) -> None:
    """A digit that is none counts as no value of the other one."""
    for i in range(40):
        for wrong in "gG/:@`":
            changed = DIGEST[:i] + wrong + DIGEST[i + 1:]
            assert heartbeat(user, {
                **DATE, "authorization": RIGHT.replace(DIGEST, changed)}) == UNAUTHORIZED


@pytest.mark.parametrize("date", ["", "20261128T200001Z", "x" * 65])
def test_another_date_than_the_signed_one(user: Caller, date: str) -> None:
    signed = {"authorization": RIGHT, "x-mq-date-time": date}
    assert heartbeat(user, signed) == UNAUTHORIZED
    del signed["x-mq-date-time"]
    assert heartbeat(user, signed) == UNAUTHORIZED


@pytest.mark.parametrize("length", [1, 63, 64])
def test_dates_of_any_form(user: Caller, length: int) -> None:
    assert heartbeat(user, authorization(*USER, "d" * length)) == OK


def group_and_queue(group: str, topic: str) -> dict[str, object]:
    return {"group": {"name": group}, "message_queue": {"topic": {"name": topic}, "id": 0}}


@pytest.mark.parametrize(("topic", "code"), [
    ("orders", OK), ("sent", OK), ("read", UNAUTHORIZED), ("other", UNAUTHORIZED),
    ("made-by-a-send", UNAUTHORIZED), ("%RETRY%workers", OK), ("%RETRY%others", UNAUTHORIZED)])
def test_sends(user: Caller, topic: str, code: int) -> None:
    said = user.send(topic, b"body")["status"]
    recalled = user.unary("RecallMessage", "RecallMessageRequest", {
        "topic": {"name": topic}, "recall_handle": "handle"})["status"]["code"]
    assert (recalled == UNAUTHORIZED) is (code == UNAUTHORIZED)
    assert said["code"] == code or (topic == "%RETRY%workers" and said["code"] != UNAUTHORIZED)


@pytest.mark.parametrize(("topic", "group", "code"), [
    ("orders", "workers", OK), ("read", "workers", OK), ("sent", "workers", UNAUTHORIZED),
    ("orders", "others", UNAUTHORIZED), ("other", "workers", UNAUTHORIZED)])
def test_calls_of_consumers(user: Caller, topic: str, group: str, code: int) -> None:
    got, _ = user.receive(topic, group, wait_s=0)
    assert got == UNAUTHORIZED if code == UNAUTHORIZED else got in (OK, NOTHING_NEW)
    names = {"group": {"name": group}, "topic": {"name": topic}}

    def is_refused(method: str, shape: str, asked: dict[str, object]) -> bool:
        return bool(user.unary(method, shape, asked)["status"]["code"] == UNAUTHORIZED)

    expected = code == UNAUTHORIZED
    assert is_refused("QueryAssignment", "QueryAssignmentRequest", names) is expected
    assert is_refused("AckMessage", "AckMessageRequest", {
        **names, "entries": [{"receipt_handle": "0 0 10000 0 0 b 0 0 0"}]}) is expected
    assert is_refused("ChangeInvisibleDuration", "ChangeInvisibleDurationRequest", {
        **names, "receipt_handle": "0 0 10000 0 0 b 0 0 0",
        "invisible_duration": {"seconds": 10}}) is expected
    assert is_refused("ForwardMessageToDeadLetterQueue", "ForwardMessageToDeadLetterQueueRequest", {
        **names, "receipt_handle": "0 0 10000 0 0 b 0 0 0"}) is expected
    pulled = user.call("PullMessage", NATIVE.encode(
        "PullMessageRequest", group_and_queue(group, topic)))[0][0]
    assert (NATIVE.decode("StatusOnly", pulled)["status"]["code"] == UNAUTHORIZED) is expected
    queue = group_and_queue(group, topic)
    assert is_refused("GetOffset", "GetOffsetRequest", queue) is expected
    assert is_refused("UpdateOffset", "UpdateOffsetRequest", {**queue, "offset": 0}) is expected


def test_the_coordinators_calls(user: Caller) -> None:
    def code(method: str, shape: str, asked: dict[str, object]) -> int:
        return int(user.unary(method, shape, asked)["status"]["code"])

    for topic, expected in (("orders", OK), ("sent", OK), ("read", OK), ("other", UNAUTHORIZED),
                            ("made-by-a-route", UNAUTHORIZED)):
        assert code("QueryRoute", "QueryRouteRequest", {"topic": {"name": topic}}) == expected
    for group, expected in (("workers", OK), ("others", UNAUTHORIZED)):
        assert code("Heartbeat", "HeartbeatRequest", {
            "client_type": 3, "group": {"name": group}}) == expected
    for topic, expected in (("read", OK), ("sent", UNAUTHORIZED)):
        assert code("QueryOffset", "QueryOffsetRequest", {
            "message_queue": {"topic": {"name": topic}}, "query_offset_policy": 1}) == expected


@pytest.mark.parametrize(("settings", "status"), [
    ({"client_type": 1, "publishing": {"topics": [{"name": "read"}]}}, 7),
    ({"client_type": 3, "subscription": {"group": {"name": "others"}}}, 7),
    ({"client_type": 3, "subscription": {"group": {"name": "workers"}, "subscriptions": [
        {"topic": {"name": "sent"}}]}}, 7),
    ({"client_type": 3, "subscription": {"group": {"name": "workers"}, "subscriptions": [
        {"topic": {"name": "read"}}]}}, 0)])
def test_telemetry(user: Caller, settings: dict[str, object], status: int) -> None:
    """The client says nothing further, and is answered nevertheless."""
    request = SHAPES.encode("TelemetryCommand", {"settings": settings})
    messages, ended = user.call("Telemetry", request)
    assert ended == status
    assert bool(messages) == (status == 0)
    assert user.call("Telemetry", request, CLIENT) == ([], 16)


def test_ends_of_transactions(user: Caller, guarded: GrpcBroker) -> None:
    with calling(guarded.address, *ADMIN) as admin:
        said = admin.send("other", b"half", message_type=4)
    ending = {"topic": {"name": "other"}, "message_id": "id-half",
              "transaction_id": said["entries"][0]["transaction_id"], "resolution": 1}
    assert user.unary("EndTransaction", "EndTransactionRequest",
                      ending)["status"]["code"] == UNAUTHORIZED
    own = user.send("orders", b"own half", message_type=4)
    ending.update(topic={"name": "orders"}, transaction_id=own["entries"][0]["transaction_id"])
    assert user.unary("EndTransaction", "EndTransactionRequest", ending)["status"]["code"] == OK


def test_refusals_are_logged_and_counted(user: Caller, guarded: GrpcBroker) -> None:
    user.send("other", b"refused")
    wait_until(lambda: "GRPC_CALL of the-user" in guarded.process.output.read_text(),
               "a line names code and account")


def test_rules_that_change_end_what_waits(guarded: GrpcBroker, user: Caller) -> None:
    """A receive that the old rules let in gets no message that comes behind the change."""
    namesrv, account = guarded.process.namesrv_addr, Credentials(*ADMIN)
    with (Admin(namesrv, credentials=account) as admin, calling(guarded.address, *USER) as waiting,
          Producer("senders", namesrv=namesrv, credentials=account) as producer):
        admin.create_topic("watched")
        admin.update_acl(*USER, topic_perms={"watched": "SUB"})
        assert waiting.receive("watched", "workers", wait_s=0)[0] == NOTHING_NEW
        waiting.begin("ReceiveMessage", receive_request("watched", "workers", wait_s=20))
        for _ in range(20):            # by then it waits
            assert user.receive("watched", "workers", wait_s=0)[0] == NOTHING_NEW
        admin.update_acl(*USER, topic_perms={"orders": "PUB|SUB", "sent": "PUB", "read": "SUB"})
        producer.send(Message("watched", b"not for it"))
        messages, status = waiting.end()
        assert status == 0
        codes = [NATIVE.decode("ReceiveMessageResponse", one).get("status", {}).get("code")
                 for one in messages]
        assert codes[0] in (NOTHING_NEW, UNAUTHORIZED)
        assert waiting.receive("watched", "workers", wait_s=0)[0] == UNAUTHORIZED


def test_the_official_clients(guarded: GrpcBroker, tmp_path: Path) -> None:
    check_java(run_java(tmp_path, guarded, "plain", "the-client", "client-secret"))
    check_python(run_python(tmp_path, guarded, "the-client", "client-secret"))


def test_refused_sends_count_for_their_address(tmp_path: Path) -> None:
    """They count like sends, so that a flood costs an address its own rate."""
    (tmp_path / "plain_acl.yml").write_text(RULES)
    with (grpc_broker(tmp_path, {"acl.enable": True, "limits.address_messages_per_s": 5}) as broker,
          calling(broker.address, *USER) as user):
        codes = {user.send("never-made", b"refused")["status"]["code"] for _ in range(50)}
        assert codes == {UNAUTHORIZED}
        assert user.send("orders", b"allowed")["status"]["code"] == 42900
        wait_until(lambda: user.send("orders", b"allowed")["status"]["code"] == OK, "one passes")
