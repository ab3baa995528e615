"""Name servers: key and value tables, settings, write permission."""
from __future__ import annotations

import pytest

from mqcore.client import BrokerError
from tests.client.admin.conftest import BROKER_NAME, unique


@pytest.mark.slow
def test_values_of_a_name_server(admin, mqadmin):
    space = unique("space")
    assert admin.kv(space, "key") is None
    assert admin.kv_of(space) == {}

    admin.put_kv(space, "key", "wärt")
    mqadmin.run("updateKvConfig", "-s", space, "-k", "other", "-v", "theirs")
    assert admin.kv(space, "key") == "wärt"
    assert admin.kv_of(space) == {"key": "wärt", "other": "theirs"}

    admin.delete_kv(space, "key")
    mqadmin.run("deleteKvConfig", "-s", space, "-k", "other")
    assert admin.kv_of(space) == {}


def test_settings_of_a_name_server(admin, place):
    assert admin.name_server_config()["orderMessageEnable"] == "false"
    try:
        admin.update_name_server_config({"orderMessageEnable": True})
        assert admin.name_server_config(place.namesrv_addr)["orderMessageEnable"] == "true"
    finally:
        admin.update_name_server_config({"orderMessageEnable": False})


def test_a_setting_of_a_name_server_that_may_not_change(admin, place):
    if place.kind == "stock":
        pytest.skip("the stock name server here is 4.9.7, which takes it")
    with pytest.raises(BrokerError) as raised:
        admin.update_name_server_config({"kvConfigPath": "/tmp/x"})
    assert raised.value.code == 16


def test_write_permission_goes_and_comes_back(admin, place, topic):
    def perm():
        return admin.topic_route(topic).queues[0].perm

    try:
        (count,) = admin.wipe_write_perm(BROKER_NAME).values()
        assert count >= 1
        assert perm() == 4
    finally:
        assert set(admin.add_write_perm(BROKER_NAME)) == {place.namesrv_addr}
    assert perm() == 6
