"""Bad arguments: a ConfigError that names the parameter, before anything is sent."""
from __future__ import annotations

import asyncio
import inspect
import os
import pydoc
from datetime import UTC, datetime, timedelta

import pytest

from mqcore.client import ClosedError, ConfigError, MessageQueue, NoRouteError, RequestTimeout
from mqcore.client.admin import Admin, AsyncAdmin
from mqcore.client.admin.arguments import moment_ms

NOBODY = "127.0.0.1:1"              # nothing listens there: what is sent would raise ConnectError
QUEUE = MessageQueue("T", "b", 0)
NOW = datetime(2026, 1, 1, tzinfo=UTC)

CASES = [
    ("create_topic", ("bad.name",), {}, "topic"), ("create_topic", ("",), {}, "topic"),
    ("create_topic", ("t" * 128,), {}, "topic"), ("create_topic", (7,), {}, "topic"),
    ("create_topic", ("T",), {"queues": 0}, "queues"),
    ("create_topic", ("T",), {"queues": "8"}, "queues"),
    ("create_topic", ("T",), {"queues": True}, "queues"),
    ("create_topic", ("T",), {"read_queues": -1}, "read_queues"),
    ("create_topic", ("T",), {"perm": 8}, "perm"),
    ("create_topic", ("T",), {"order": "yes"}, "order"),
    ("create_topic", ("T",), {"broker": " "}, "broker"),
    ("create_topic", ("T",), {"broker": "b", "cluster": "c"}, "cluster"),
    ("update_topic", ("T",), {"perm": "6"}, "perm"), ("delete_topic", ("bad name",), {}, "topic"),
    ("topics", (" ",), {}, "cluster"), ("topics", (), {"user_only": 1}, "user_only"),
    ("unit_topics", ("units",), {}, "kind"), ("topic_route", (None,), {}, "topic"),
    ("topic_stats", ("a/b",), {}, "topic"), ("set_order", ("T", "b"), {}, "value"),
    ("set_order", ("T", ""), {}, "value"), ("topic_configs", ("",), {}, "broker"),
    ("create_group", ("bad group",), {}, "group"), ("create_group", ("g" * 256,), {}, "group"),
    ("create_group", ("G",), {"retry_max_times": "16"}, "retry_max_times"),
    ("create_group", ("G",), {"consume_enable": 1}, "consume_enable"),
    ("update_group", ("G",), {"retry_queue_count": -1}, "retry_queue_count"),
    ("delete_group", ("G",), {"remove_offsets": "no"}, "remove_offsets"),
    ("lag", ("",), {}, "group"), ("lag", ("G", "bad topic"), {}, "topic"),
    ("consume_time_spans", ("G", ""), {}, "topic"),
    ("max_offset", ("T",), {}, "queue"), ("max_offset", (MessageQueue("T", "", 0),), {},
                                          "queue.broker_name"),
    ("min_offset", (MessageQueue("T", "b", -1),), {}, "queue.queue_id"),
    ("offset_at", (QUEUE, "yesterday"), {}, "at"),
    ("offset_at", (QUEUE, datetime(2026, 1, 1)), {}, "at"),
    ("set_offset", ("G", QUEUE, -1), {}, "offset"),
    ("set_offset", ("G", QUEUE, 1.5), {}, "offset"),
    ("committed", ("", QUEUE), {}, "group"),
    ("clone_offsets", ("G", "", "T"), {}, "target"),
    ("clone_offsets", ("", "G", "T"), {}, "source"),
    ("correction_offsets", ("T", "G", "H"), {"broker": "b"}, "filter_groups"),
    ("reset_offsets", ("G", "T"), {"to": "soon"}, "to"),
    ("reset_offsets", ("G", "T"), {"to": -1}, "to"),
    ("reset_offsets", ("G", "T"), {"to": datetime(2026, 1, 1)}, "to"),
    ("reset_offsets", ("G", "T"), {"to": None}, "to"),
    ("reset_offsets", ("G", "T"), {"to": "latest", "dry_run": "yes"}, "dry_run"),
    ("message", ("nonsense",), {}, "message_id"), ("message", ("",), {}, "message_id"),
    ("message_at", (QUEUE, "0"), {}, "offset"), ("query", ("T", ""), {}, "key"),
    ("query", ("T", "k"), {"count": 65}, "count"), ("query", ("T", "k"), {"begin": 5}, "begin"),
    ("read", ("T",), {"count": 0}, "count"), ("read", ("T",), {"expression": "||"}, "expression"),
    ("read", ("T",), {"expression": 5}, "expression"), ("read", ("T",), {"sql": 1}, "sql"),
    ("queue_entries", (QUEUE, -1), {}, "index"), ("consumed_by", ("id",), {}, "message"),
    ("consume_directly", ("G", "", "id"), {}, "client_id"),
    ("send", ("T", ""), {}, "body"), ("send", ("T", "x"), {"keys": "k"}, "keys"),
    ("send", ("T", "x"), {"properties": {"KEYS": "x"}}, "properties"),
    ("send", ("T", "x"), {"queue": "q"}, "queue"), ("resend", ("id",), {}, "message"),
    ("send_times", ("T",), {"count": 0}, "count"), ("send_times", ("T",), {"size": 0}, "size"),
    ("dead_letters", ("bad group",), {}, "group"), ("dead_letters", ("G",), {"count": 0}, "count"),
    ("resend_dead_letters", ("G", "x"), {}, "letters"),
    ("resend_dead_letters", ("G", ["x"]), {}, "letters"),
    ("members", ("",), {}, "group"), ("producers", ("G", ""), {}, "topic"),
    ("running_info", ("G", ""), {}, "client_id"),
    ("running_info", ("G", "c"), {"stack": 1}, "stack"),
    ("plan", ("T", "ab"), {}, "members"), ("plan", ("T", ["a", "a"]), {}, "members"),
    ("broker_status", ("",), {}, "broker"), ("update_broker_config", ({},), {}, "settings"),
    ("update_broker_config", ({"a": None},), {}, "settings"),
    ("update_broker_config", (["a"],), {}, "settings"),
    ("broker_lags", ("b",), {"ordered_only": 0}, "ordered_only"),
    ("stats", ("", "k"), {"broker": "b"}, "name"),
    ("stats_all", (), {"active_only": 2}, "active_only"),
    ("trace", ("",), {}, "message_id"), ("trace", ("i",), {"trace_topic": ""}, "trace_topic"),
    ("pending_transactions", ("b",), {"limit": 0}, "limit"),
    ("transaction", ("nonsense",), {}, "message_id"),
    ("kv", ("", "k"), {}, "namespace"), ("put_kv", ("n", "k", ""), {}, "value"),
    ("name_server_config", ("nowhere",), {}, "name_server"),
    ("update_name_server_config", ({},), {}, "settings"),
    ("wipe_write_perm", ("",), {}, "broker_name"),
]


@pytest.fixture(scope="module")
def far():
    with Admin(NOBODY, connect_timeout=0.5) as made:
        yield made


@pytest.mark.parametrize(("method", "args", "given", "named"), CASES,
                         ids=[f"{case[0]}-{case[3]}-{number}" for number, case in enumerate(CASES)])
def test_a_bad_argument_is_named(far, method, args, given, named):
    with pytest.raises(ConfigError, match=rf"^{named}\b|\b{named} ") as raised:
        getattr(far, method)(*args, **given)
    assert isinstance(raised.value, ValueError)
    assert raised.value.stored is False


@pytest.mark.parametrize(("given", "named"), [
    ({"timeout": 0}, "timeout"), ({"timeout": "5"}, "timeout"), ({"time_limit": -1}, "time_limit"),
    ({"namesrv": "nowhere"}, "nowhere"), ({"namesrf": NOBODY}, "did you mean namesrv"),
    ({"credentials": ("", "")}, "credentials"),
])
def test_bad_options(given, named):
    for made in (Admin, AsyncAdmin):
        with pytest.raises(ConfigError, match=named):
            made(**given)


@pytest.mark.parametrize(("text", "before"), [
    ("now", 0), ("90s ago", 90), ("1h ago", 3_600), ("1.5h ago", 5_400), ("2d ago", 172_800),
    ("250ms ago", 0.25), ("1w ago", 604_800), (" 3 m ago ", 180),
])
def test_times_in_words(text, before):
    assert moment_ms(text, "at", NOW) == round((NOW.timestamp() - before) * 1000)


def test_times_with_a_zone():
    assert moment_ms(NOW, "at", NOW) == moment_ms("2026-01-01T01:00:00+01:00", "at", NOW)
    assert moment_ms(datetime(1960, 1, 1, tzinfo=UTC), "at", NOW) == 0
    for value in ("1h", "1x ago", "2026-01-01T00:00:00", "999999999w ago", 5, timedelta(1), None):
        with pytest.raises(ConfigError, match=r"^at "):
            moment_ms(value, "at", NOW)


def test_without_a_name_server_only_addresses_work(monkeypatch):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with Admin() as admin:
        with pytest.raises(NoRouteError, match="name server"):
            admin.topics()
        with pytest.raises(ConnectionError):
            admin.broker_status(NOBODY)


def test_use_before_the_start_after_the_end_and_in_a_fork():
    admin = Admin(NOBODY)
    with pytest.raises(ClosedError, match="not started"):
        admin.topics()
    with admin:
        child = os.fork()
        if child == 0:
            try:
                admin.topics()
            except ClosedError:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    admin.close()
    with pytest.raises(ClosedError, match="is closed"):
        admin.topics()


def test_all_of_a_call_has_a_time_limit():
    async def scenario():
        async with AsyncAdmin(NOBODY, time_limit=0.05) as admin:
            async def slow(*args, **given):
                await asyncio.sleep(30)

            admin._instance.pool.invoke = slow
            with pytest.raises(RequestTimeout, match=r"topics took longer than 0\.05 s"):
                await admin.topics()
    asyncio.run(scenario())


# -- both faces -----------------------------------------------------------------------------------

LIFE = {"start", "close", "shutdown"}


def public_calls(face):
    return {name for name in dir(face) if not name.startswith("_")
            and callable(getattr(face, name))}


def test_both_faces_have_the_same_methods():
    calls = {name for name in public_calls(AsyncAdmin)
             if inspect.iscoroutinefunction(getattr(AsyncAdmin, name))}
    assert {name for name in vars(Admin) if not name.startswith("_")} == calls - LIFE
    for name in sorted(calls - LIFE):
        method = getattr(AsyncAdmin, name)
        assert hasattr(method, "__wrapped__"), f"{name} has no time limit"
        assert method.__doc__, name
        waits = getattr(Admin, name)
        assert waits.__wrapped__ is method
        assert waits.__doc__ == method.__doc__
        given = set(inspect.signature(method).parameters)
        assert {case[3].partition(".")[0] for case in CASES if case[0] == name} <= given, name


def test_each_method_of_admin_shows_the_parameters_of_its_asyncio_one():
    names = [name for name, one in inspect.getmembers(AsyncAdmin, inspect.iscoroutinefunction)
             if not name.startswith("_") and name not in ("start", "close", "shutdown")]
    assert len(names) > 80
    for name in names:
        method, waits = getattr(AsyncAdmin, name), getattr(Admin, name)
        assert inspect.isfunction(waits), name
        assert inspect.signature(waits) == inspect.signature(method), name
        assert not inspect.iscoroutinefunction(waits), name
        assert f"{name}(self" in pydoc.plain(pydoc.render_doc(waits)), name
