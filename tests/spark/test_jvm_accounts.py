"""The source `rocketmq-jvm` at brokers that speak TLS only, and know accounts."""
from __future__ import annotations

import shutil
import subprocess

import pytest

pytest.importorskip("pyspark")

from mqcore.client import Message, Producer
from mqcore.spark.jvm import JAR
from tests.support.ci import unavailable
from tests.support.mqcore_process import mqcore_up
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
    if not JAR.exists() or shutil.which("keytool") is None:
        unavailable("needs keytool, and the jar: python -m mqcore.spark.jvm")
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
            frame = trusting.read.format("rocketmq-jvm").options(**{
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
