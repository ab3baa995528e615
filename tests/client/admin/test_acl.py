"""Access settings of a stock broker that has them, and the refusal of brokers without."""
from __future__ import annotations

import pytest

from mqcore.client import BrokerError, ConfigError, RequestTimeout
from mqcore.client.admin import Admin
from tests.client.admin.conftest import unique
from tests.support.stock import require_stock, stock_cluster
from tests.support.waiting import wait_until

KEYS = ("rootroot", "secretsecret")
ACL_FILE = """
globalWhiteRemoteAddresses: []
accounts:
- accessKey: rootroot
  secretKey: secretsecret
  admin: true
"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """The name server of a stock broker with access control."""
    require_stock()
    with stock_cluster(tmp_path_factory.mktemp("acl"), {
        "aclEnable": True, "mappedFileSizeCommitLog": 64 << 20,
        "mappedFileSizeConsumeQueue": 400_000, "maxHashSlotNum": 50_000, "maxIndexNum": 200_000,
    }, conf_files={"plain_acl.yml": ACL_FILE}, is_kept=False) as stock:
        yield stock.namesrv_addr


@pytest.mark.slow
@pytest.mark.interop
def test_accounts_are_made_changed_and_deleted(guarded):
    key, secret = unique("Account"), "longsecret"
    topic = unique("Topic")
    with Admin(guarded, credentials=KEYS) as root, Admin(guarded) as nobody:
        (before,) = root.acl_versions()
        root.create_topic(topic, queues=1)
        with pytest.raises(BrokerError, match=r"(?i)accesskey|AclException"):
            nobody.send(topic, "unsigned")

        root.update_acl(key, secret, default_topic_perm="DENY",
                        default_group_perm="SUB", topic_perms={topic: "PUB|SUB"})
        with Admin(guarded, credentials=(key, secret)) as user:
            def may_send():
                try:
                    user.send(topic, "signed")
                except BrokerError:
                    return False
                return True

            wait_until(may_send, "the account's permission")
            root.update_acl(key, secret, topic_perms={topic: "DENY"})
            wait_until(lambda: not may_send(), "the account's permission gone")
            with pytest.raises(BrokerError, match=r"admin|Acl"):
                user.create_topic(unique("Topic"))

        (after,) = root.acl_versions()
        assert after.broker_name == before.broker_name
        assert after.files != before.files
        assert [path.endswith("plain_acl.yml") for path, _ in after.files] == [True]
        root.delete_acl(key)
        with pytest.raises(BrokerError) as raised:
            root.delete_acl(key)
        assert raised.value.code == 210

        root.update_white_addresses(["127.0.0.1", "127.0.0.2"])

        def is_white():
            try:
                return nobody.acl_versions()
            except BrokerError:
                return False

        wait_until(is_white, "addresses that need no account")
        assert nobody.send(topic, "unsigned").queue.topic == topic
        root.update_white_addresses(["10.9.9.9"])


def test_brokers_without_access_control_refuse(admin, place):
    for call, code in (
        (lambda: admin.update_acl("longlong", "longlong"), 209),
        (lambda: admin.delete_acl("longlong"), 210),
        (lambda: admin.update_white_addresses(["10.0.0.1"]), 211),
    ):
        with pytest.raises(BrokerError) as raised:
            call()
        assert raised.value.code == code
    # A stock broker does not answer at all.
    expected = RequestTimeout if place.kind == "stock" else BrokerError
    with (Admin(place.namesrv_addr, timeout=1.0) as hasty,
          pytest.raises(expected)):
        hasty.acl_versions()


@pytest.mark.parametrize(("given", "named"), [
    ({"access_key": "short"}, "access_key"), ({"secret_key": "short"}, "secret_key"),
    ({"default_topic_perm": "ALL"}, "default_topic_perm"),
    ({"topic_perms": {"bad.name": "PUB"}}, "topic_perms"),
    ({"group_perms": {"G": "WRITE"}}, "group_perms"), ({"admin": "yes"}, "admin"),
])
def test_accounts_that_cannot_be(given, named):
    with Admin("127.0.0.1:1") as admin, pytest.raises(ConfigError, match=named):
        admin.update_acl(**{"access_key": "longlong", "secret_key": "longlong", **given})
