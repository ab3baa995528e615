"""The source in the JVM at brokers that speak TLS only, and know accounts."""
from __future__ import annotations

import shutil
import subprocess

import pytest

pytest.importorskip("pyspark")

from mqcore.client import Message, Producer
from tests.spark.world import PYTHON
from tests.support.ci import unavailable
from tests.support.mqcore_process import mqcore_up
from tests.tls.certificates import openssl
from tests.tls.conftest import authority, served

__all__ = ["authority", "served"]

RULES = """accounts:
- accessKey: the-writer
  secretKey: writer-secret
  topicPerms:
  - signed=PUB|SUB
  groupPerms:
  - TOOLS_CONSUMER=SUB
"""


@pytest.fixture
def trusting(world, authority, tmp_path):
    """The session's JVM trusts the authority of the tests."""
    if shutil.which("keytool") is None:
        unavailable("needs keytool")
    store = tmp_path / "trusted.jks"
    subprocess.run(["keytool", "-importcert", "-noprompt", "-alias", "a", "-storepass", "changeit",
                    "-file", authority.certificate, "-keystore", store], check=True,
                   capture_output=True, timeout=120)
    system = world.spark._jvm.java.lang.System
    system.setProperty("javax.net.ssl.trustStore", str(store))
    system.setProperty("javax.net.ssl.trustStorePassword", "changeit")
    return world.spark


def test_reads_are_signed_and_go_by_tls(trusting, authority, served, tmp_path):
    (tmp_path / "plain_acl.yml").write_text(RULES)
    settings = {**served, "tls.mode": "enforcing", "acl.enable": True, "acl.folder": tmp_path}
    with mqcore_up(tmp_path / "broker", settings) as up:
        with Producer("tests", namesrv=up.namesrv_addr, tls=authority.client(),
                      credentials=("the-writer", "writer-secret")) as producer:
            producer.send_many([Message("signed", b"%d" % number) for number in range(20)])

        def rows(secret, tls="true"):
            frame = trusting.read.format("rocketmq").options(**{
                "nameServer": up.namesrv_addr, "topic": "signed", "rocketmq.tls": tls,
                "rocketmq.accessKey": "the-writer", "rocketmq.secretKey": secret,
                "rocketmq.callTimeout": "20s", "rocketmq.connectTimeout": "20s"}).load()
            return sorted(int(row["body"]) for row in frame.select("body").collect())

        assert rows("writer-secret") == list(range(20))
        with pytest.raises(Exception, match="signature") as failed:
            rows("another-secret")
        assert "another-secret" not in str(failed.value)
        with pytest.raises(Exception, match="reading signed"):
            rows("writer-secret", tls="false")


def test_a_url_says_servers_account_namespace_and_tls(world, authority, served, tmp_path):
    """Both sources, at a broker that wants a certificate of its clients."""
    (tmp_path / "plain_acl.yml").write_text(RULES.replace("signed=", "space%signed=")
                                            + "  - space%readers=SUB\n")
    own, key = authority.sign("own")
    locked, first = authority.sign("locked", password="geheim")
    locked_key = tmp_path / "locked.key"
    openssl("pkcs8", "-topk8", "-v2", "aes-256-cbc", "-in", first, "-passin", "pass:geheim",
            "-passout", "pass:geheim", "-out", locked_key)
    password = tmp_path / "password"
    password.write_text("geheim\n")
    both = tmp_path / "both.pem"
    both.write_text(own.read_text() + key.read_text())
    gone = authority.sign("gone")
    crl = authority.revoke(gone[0])
    settings = {**served, "tls.mode": "enforcing", "tls.client_auth": "require",
                "tls.trust": authority.certificate, "acl.enable": True, "acl.folder": tmp_path}
    with mqcore_up(tmp_path / "broker", settings) as up:
        account = "rocketmq://the-writer:writer-secret@"
        shows = f"&cert={both}"
        url = f"{account}{up.namesrv_addr}/space?ca={authority.certificate}"
        with Producer("tests", namesrv=url + shows) as producer:
            producer.send_many([Message("signed", b"%d" % number) for number in range(20)])

        def rows(name_server, source="rocketmq", **group):
            frame = world.spark.read.format(source).options(**group, **{
                "nameServer": name_server, "topic": "signed", "columns": "topic,body",
                "rocketmq.callTimeout": "20s", "rocketmq.connectTimeout": "20s"}).load()
            return sorted((row["topic"], int(row["body"])) for row in frame.collect())

        expected = [("signed", number) for number in range(20)]
        for source in (PYTHON, "rocketmq"):
            assert rows(url + shows, source) == expected
            assert rows(url + shows, source, group="readers") == expected
            with pytest.raises(Exception, match="permission for group:space%others"):
                rows(url + shows, source, group="others")
        for rest in (shows, f"&cert={own}&key={key}", f"{shows}&crl={crl}",
                     f"&cert={locked}&key={locked_key}&key_password_file={password}",
                     f"{shows}&tls=verify&instance_name=x"):
            assert rows(url + rest) == expected
        for wrong, said in (
                (f"{account}{up.namesrv_addr}/space?tls=insecure{shows}", None),
                (f"{account}{up.namesrv_addr}/space?tls=verify{shows}", "PKIX path"),
                (f"{url}&cert={locked}&key={locked_key}", "cert=.*expected a certificate"),
                (url, "reading signed"), (f"{url}{shows}&tls=off", "reading signed"),
                (url.replace("writer-s", "another-s") + shows, "signature")):
            if said is None:
                assert rows(wrong) == expected
                continue
            with pytest.raises(Exception, match=said) as failed:
                rows(wrong)
            assert "secret" not in str(failed.value)


@pytest.mark.parametrize(("name_server", "said"), [
    ("rocketmq://", "expected host:port of a name server"),
    ("rocketmq://h:1?tlss=x", "did you mean tls"),
    ("rocketmq://h:1?tls=maybe", "expected one of verify"),
    ("rocketmq://h:1?key=x", "expected cert=FILE beside it"),
    ("rocketmq://AK:s3cret@h", "nameServer: expected host:port"),
    ("rocketmq://AK:s3cret/x@h:1", "expected / and"),
    ("rocketmq://AK:x?s3cret@h:1", "expected / and"),
    ("rocketmq://AK:s3cret%zz@h:1", "in hexadecimal digits"),
    ("rocketmq://AK@h:1", "expected key:secret"),
    ("rocketmq://h:1/a%20b", "rocketmq.namespace: expected letters"),
    ("h:1;rocketmq://AK:s3cret@h:1", "nameServer: expected host:port"),
])
def test_a_url_that_cannot_be_is_told_without_what_may_be_secret(world, name_server, said):
    with pytest.raises(Exception, match=said) as failed:
        world.spark.read.format("rocketmq").options(nameServer=name_server, topic="t").load(
            ).count()
    assert "s3cret" not in str(failed.value)
