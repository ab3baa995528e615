"""Signed requests and TLS against the stock name server and broker, which have both."""
import asyncio
import shutil
import ssl
import subprocess

import pytest

from mqcore.client import AsyncProducer, BrokerError, ConnectError, Message, Producer, SendStatus
from tests.client.threads import READY_S
from tests.support.ci import unavailable
from tests.support.stock import require_stock, stock_cluster

pytestmark = pytest.mark.interop
ACCOUNT, SECRET = "producers", "12345678"
ACL = f"""
accounts:
- accessKey: {ACCOUNT}
  secretKey: {SECRET}
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms:
  - Allowed=PUB|SUB
  - space%Allowed=PUB|SUB
"""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    if shutil.which("openssl") is None:
        unavailable("needs openssl")
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
         "/CN=mqcore test", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout",
         folder / "key.pem", "-out", folder / "cert.pem"],
        check=True, capture_output=True, timeout=READY_S)
    return folder


@pytest.fixture(scope="module")
def cluster(certificate, tmp_path_factory):
    """A stock cluster that wants signatures, and speaks TLS to who begins with it."""
    require_stock()
    system = {
        "tls.test.mode.enable": "false", "tls.server.certPath": certificate / "cert.pem",
        "tls.server.keyPath": certificate / "key.pem", "tls.server.mode": "permissive"}
    with stock_cluster(tmp_path_factory.mktemp("secured"), {
        "aclEnable": True, "mappedFileSizeCommitLog": 64 << 20,
        "mappedFileSizeConsumeQueue": 20_000 * 20, "maxHashSlotNum": 50_000,
        "maxIndexNum": 200_000,
    }, conf_files={"plain_acl.yml": ACL}, system=system, is_kept=False) as running:
        yield running


@pytest.mark.slow
@pytest.mark.parametrize("ways", [{}, {"namespace": "space"}, {"stream": True}])
def test_signed_sends_are_taken(cluster, ways):
    with Producer("PG", namesrv=cluster.namesrv_addr, credentials=(ACCOUNT, SECRET),
                  **ways) as producer:
        results = [producer.send(Message("Allowed", "grün ☃ " * 1_000, tags="☃")),
                   *producer.send_many([Message("Allowed", f"{n}") for n in range(10)])]
    assert {result.status for result in results} == {SendStatus.SEND_OK}


@pytest.mark.parametrize(("credentials", "topic"), [
    (None, "Allowed"), (("nobody99", SECRET), "Allowed"), ((ACCOUNT, "87654321"), "Allowed"),
    ((ACCOUNT, SECRET), "Forbidden"),
])
def test_others_are_refused_and_nothing_is_stored(cluster, credentials, topic):
    with Producer("PG", namesrv=cluster.namesrv_addr, credentials=credentials,
                  retry_codes=()) as producer, pytest.raises(BrokerError) as error:
        producer.send(Message(topic, "x"))
    assert "AclException" in error.value.remark


def test_messages_travel_by_tls_and_the_certificate_is_looked_at(cluster, certificate):
    context = ssl.create_default_context(cafile=certificate / "cert.pem")
    account = {"credentials": (ACCOUNT, SECRET), "namesrv": cluster.namesrv_addr}

    async def scenario():
        async with AsyncProducer("PG", tls=context, **account) as producer:
            results = await asyncio.gather(*(
                producer.send_soon(Message("Allowed", bytes(20_000))) for _ in range(50)))
            assert {result.status for result in results} == {SendStatus.SEND_OK}
            (connection,) = [c for a, c in producer._instance.pool._connections.items()
                             if a == cluster.broker_addr]
            assert connection._transport.get_extra_info("cipher")
        async with AsyncProducer("PG", tls=True, **account) as producer:
            with pytest.raises(ConnectError) as error:
                await producer.send(Message("Allowed", "x"))
            assert "its certificate is not believed: self" in str(error.value)
            assert error.value.stored is False
        key, secret = account["credentials"]
        url = f"rocketmq://{key}:{secret}@{cluster.namesrv_addr}?tls=insecure"
        async with AsyncProducer("PG", namesrv=url) as producer:
            assert (await producer.send(Message("Allowed", "x"))).queue_offset >= 0
    asyncio.run(scenario())
