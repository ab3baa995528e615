"""Bad arguments: a ConfigError that names the parameter, before anything is sent."""
from __future__ import annotations

import asyncio
import inspect
import os
import pydoc
from datetime import UTC, datetime, timedelta

import pytest

from mqcore.client import ClosedError, ConfigError, NoRouteError, RequestTimeout
from mqcore.client.admin import Admin, AsyncAdmin
from mqcore.client.admin.arguments import moment_ms
from tests.client.admin.calls import CASES

NOBODY = "127.0.0.1:1"              # nothing listens there: what is sent would raise ConnectError
NOW = datetime(2026, 1, 1, tzinfo=UTC)

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
