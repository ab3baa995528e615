"""The route tables keep the rules of broker.md 13."""
import json

import pytest

from mqcore.namesrv.handlers import Caller, Handlers
from mqcore.namesrv.kv import KeyValues
from mqcore.namesrv.routes import TOPICS_A_TURN, BrokerIdentity, RouteTables, TableFull
from mqcore.namesrv.runtime import RuntimeConfig
from mqcore.turns import finished
from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.command import request
from mqcore.wire.topics import DataVersion, TopicConfig, TopicTable
from tests.namesrv.harness import settings_in

A = BrokerIdentity("C", "broker-a", "10.0.0.1:10911", 0)
A_SLAVE = BrokerIdentity("C", "broker-a", "10.0.0.2:10911", 1)
B = BrokerIdentity("C", "broker-b", "10.0.0.3:10911", 0)


def table(*names, counter=1, **fields):
    return TopicTable(DataVersion(counter, 5), {n: TopicConfig(n, **fields) for n in names})


def registered(*brokers):
    routes = RouteTables()
    for connection, (who, topics) in enumerate(brokers, 1):
        finished(routes.register(who, who.address + "2", topics, connection, 0))
    return routes


def test_topics_missing_from_a_later_registration_stay():
    routes = registered((A, table("T", "U")), (A, table("U", counter=2)))

    assert finished(routes.route("T")) is not None


def test_a_registration_with_the_same_version_changes_no_topic():
    routes = registered((A, table("T", perm=6)), (A, table("T", perm=2)))

    assert finished(routes.route("T")).queues[0].perm == 6


def test_a_slave_brings_no_topics_and_learns_its_master():
    routes = registered((A, table("T")))
    master = finished(routes.register(A_SLAVE, "", table("X"), 2, 0))

    assert finished(routes.route("X")) is None
    assert (master.address, master.ha_address) == (A.address, A.address + "2")
    assert finished(routes.route("T")).brokers[0].addresses == {0: A.address, 1: A_SLAVE.address}


def test_a_broker_that_changes_its_role_leaves_its_old_id():
    routes = registered((A, table("T")), (A_SLAVE, table()))
    promoted = BrokerIdentity("C", "broker-a", A_SLAVE.address, 0)
    finished(routes.register(promoted, "", table(counter=2), 3, 0))

    assert finished(routes.route("T")).brokers[0].addresses == {0: A_SLAVE.address}


def test_a_closed_connection_takes_its_broker_out_of_every_route():
    routes = registered((A, table("T")), (B, table("T", "U")))

    assert finished(routes.connection_closed(2)) == [B.address]
    assert [queue.broker_name for queue in finished(routes.route("T")).queues] == ["broker-a"]
    assert finished(routes.route("U")) is None
    assert routes.cluster_info()["clusterAddrTable"] == {"C": ["broker-a"]}


def test_a_name_that_ends_is_in_no_route_while_its_topics_are_taken_out():
    topics = [f"T{number}" for number in range(3 * TOPICS_A_TURN)]
    routes = registered((A, table(*topics)), (B, table(*topics)))
    ending = routes.connection_closed(1)
    next(ending)

    assert len(routes.topic_names()) == len(topics)
    assert {queue.broker_name for topic in topics
            for queue in finished(routes.route(topic)).queues} == {"broker-b"}


def test_a_name_that_is_back_before_its_topics_are_taken_out_keeps_what_it_says_now():
    topics = [f"T{number}" for number in range(3 * TOPICS_A_TURN)]
    routes = registered((A, table(*topics)))
    ending = routes.connection_closed(1)
    next(ending)
    finished(routes.register(A, "", table(*topics[:TOPICS_A_TURN], "new", counter=2), 2, 0))

    assert finished(ending) == [A.address]
    assert sorted(routes.topic_names()) == sorted([*topics[:TOPICS_A_TURN], "new"])
    assert all(finished(routes.route(topic)) is not None for topic in routes.topic_names())


def test_a_registration_whose_name_ends_meanwhile_leaves_no_topic():
    topics = [f"T{number}" for number in range(3 * TOPICS_A_TURN)]
    routes = registered()
    registering = routes.register(A, "", table(*topics), 1, 0)
    for _ in range(2):                        # some topics are there
        next(registering)
    promoted = BrokerIdentity(A.cluster, A.name, "10.0.0.77:1", A.broker_id)
    finished(routes.register(promoted, "", table(), 2, 0))
    finished(routes.unregister(promoted))
    finished(registering)

    assert routes.topic_names() == []


def test_a_slave_that_stays_keeps_the_topics_of_its_name():
    routes = registered((A, table("T")), (A_SLAVE, table()))
    finished(routes.connection_closed(1))

    assert finished(routes.route("T")).brokers[0].addresses == {1: A_SLAVE.address}


def test_a_broker_is_dropped_only_after_the_silence_is_exceeded():
    routes = registered((A, table("T")))

    assert finished(routes.expire(120_000, 120_000)) == []
    assert finished(routes.expire(120_001, 120_000)) == [(A.address, 1)]
    assert finished(routes.route("T")) is None


def test_an_unchanged_version_query_keeps_a_broker_alive():
    routes = registered((A, table("T")))

    assert routes.query_version(A.address, DataVersion(1, 5), 100_000) == (
        False, DataVersion(1, 5)
    )
    assert finished(routes.expire(120_001, 120_000)) == []
    assert routes.query_version(A.address, DataVersion(2, 5), 200_000) == (True, DataVersion(1, 5))
    assert routes.query_version("nobody:1", DataVersion(), 0) == (True, None)


def test_unregistering_the_last_address_removes_the_name():
    routes = registered((A, table("T")))
    finished(routes.unregister(A))
    finished(routes.unregister(A))

    assert finished(routes.route("T")) is None
    assert routes.system_names() == ([], None)


def test_an_id_that_another_address_took_over_stays_when_the_first_one_leaves():
    promoted = BrokerIdentity(A.cluster, A.name, "10.0.0.77:1", A.broker_id)
    routes = registered((A, table("T")))
    finished(routes.register(promoted, "", table("T", counter=2), 2, 0))
    finished(routes.unregister(A))

    assert finished(routes.route("T")).brokers[0].addresses == {A.broker_id: promoted.address}


def test_write_permission_is_wiped_and_added_until_the_next_changed_registration():
    routes = registered((A, table("T", perm=7)))

    assert finished(routes.set_writable("broker-a", writable=False)) == 1
    assert finished(routes.route("T")).queues[0].perm == 5
    assert finished(routes.set_writable("broker-a", writable=True)) == 1
    assert finished(routes.route("T")).queues[0].perm == 6
    finished(routes.register(A, "", table("T", perm=7, counter=2), 1, 0))
    assert finished(routes.route("T")).queues[0].perm == 7
    assert finished(routes.set_writable("broker-z", writable=True)) == 0


def test_a_topic_is_deleted_in_one_cluster_or_everywhere():
    other = BrokerIdentity("D", "broker-d", "10.0.0.9:1", 0)
    routes = registered((A, table("T")), (other, table("T")))

    finished(routes.delete_topic("T", "C"))
    assert [queue.broker_name for queue in finished(routes.route("T")).queues] == ["broker-d"]
    assert finished(routes.topics_of_cluster("C")) == []
    finished(routes.delete_topic("T"))
    assert routes.topic_names() == []


@pytest.mark.parametrize(("unit", "subscribed", "names"), [
    (True, None, ["t1", "t3"]), (None, True, ["t2", "t3"]), (False, True, ["t2"]),
])
def test_unit_lists_go_by_the_flags_of_the_topic(unit, subscribed, names):
    topics = {f"t{flags}": TopicConfig(f"t{flags}", sys_flag=flags) for flags in range(4)}
    routes = registered((A, TopicTable(DataVersion(1, 1), topics)))

    assert finished(routes.unit_topics(unit=unit, subscribed=subscribed)) == names


def test_a_registration_beyond_a_limit_leaves_out_only_what_has_no_place():
    routes = RouteTables(topic_count_max=1, broker_count_max=1)
    with pytest.raises(TableFull, match=r"1 of 2 topics of broker-a are left out: more than 1 top"):
        finished(routes.register(A, "", table("T", "U"), 1, 0))
    assert routes.topic_names() == ["T"]
    assert finished(routes.expire(100, 100)) == []
    with pytest.raises(TableFull, match="topics"):
        finished(routes.register(A, "", table("T", "U", perm=4), 1, 100))
    assert finished(routes.expire(200, 100)) == []          # it is alive nevertheless
    found = finished(routes.route("T"))
    assert found is not None
    assert [queue.perm for queue in found.queues] == [4]
    assert routes.query_version(A.address, table().version, 200) == (True, None)
    with pytest.raises(TableFull, match="brokers"):
        finished(routes.register(B, "", table(), 2, 0))


def handlers_in(folder):
    settings = settings_in(folder)
    key_values = KeyValues(settings.kv_file, entry_count_max=1, value_bytes_max=1, bytes_max=1)
    return Handlers(RouteTables(), key_values, RuntimeConfig(settings))


def test_the_list_of_all_topics_is_made_anew_when_topics_come_or_go_and_only_then(tmp_path):
    handlers = handlers_in(tmp_path)
    many = [f"T-{number}" for number in range(5_000)]

    def looked_up():
        """The list, and whether it took pauses to make it."""
        pauses = 0
        job = handlers.begin(request(Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER), Caller(9), 0)
        while True:
            try:
                next(job)
                pauses += 1
            except StopIteration as end:
                return json.loads(end.value.body)["topicList"], pauses > 0

    finished(handlers.routes.register(A, "", table(*many), 1, 0))
    assert looked_up() == (many, True)
    assert looked_up() == (many, False)
    finished(handlers.routes.register(A, "", table(*many, counter=2, perm=4), 1, 0))
    assert looked_up() == (many, False)
    finished(handlers.routes.register(B, "", table("T-0", "late"), 2, 0))
    assert looked_up() == ([*many, "late"], True)
    finished(handlers.routes.delete_topic("T-7"))
    assert looked_up() == ([name for name in many if name != "T-7"] + ["late"], True)
    finished(handlers.routes.connection_closed(1))
    assert looked_up()[0] == ["T-0", "late"]


def test_a_list_that_took_long_to_make_does_not_hide_what_came_meanwhile(tmp_path):
    handlers = handlers_in(tmp_path)
    asks = request(Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    finished(handlers.routes.register(A, "", table(*map(str, range(5_000))), 1, 0))
    slow = handlers.begin(asks, Caller(9), 0)
    next(slow)
    finished(handlers.routes.register(B, "", table("late"), 2, 0))
    assert "late" in json.loads(handlers.handle(asks, 9, 0).body)["topicList"]
    assert "late" not in json.loads(finished(slow).body)["topicList"]
    assert "late" in json.loads(handlers.handle(asks, 9, 0).body)["topicList"]
