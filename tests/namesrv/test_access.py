"""A name server that asks who sends a request."""
from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mqcore.acl.kept import KeptFiles
from mqcore.acl.nodes import AclFileError
from mqcore.acl.rules import EXCEPTION, Account, read_file
from mqcore.client import AsyncAdmin, AsyncProducer, Credentials
from mqcore.client.core.signature import sign
from mqcore.client.errors import BrokerError
from mqcore.client.network.registration import Registration
from mqcore.namesrv.access import Beside
from mqcore.namesrv.server import open_sockets, serve
from mqcore.namesrv.settings import NamesrvAclSettings, load
from mqcore.wire.codes import FLAG_ONEWAY
from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.command import Codec, Command, encode, request
from mqcore.wire.topics import DataVersion
from tests.namesrv.harness import DEADLINE_S, Clock, Peer, registration, settings_in

ADMIN, USER = Credentials("the-admin", "admin-secret"), Credentials("the-user", "user-secret")
RULES = """globalWhiteRemoteAddresses: [127.9.*.*]
accounts:
- {accessKey: the-admin, secretKey: admin-secret, admin: true}
- accessKey: the-user
  secretKey: user-secret
  whiteRemoteAddress: 127.8.0.1
  topicPerms: [read=SUB, write=PUB, closed=DENY]
  groupPerms: [readers=SUB]
"""
CHANGES: list[tuple[Code, Mapping[str, str | None]]] = [
    (Code.PUT_KV_CONFIG, {"namespace": "n", "key": "k", "value": "v"}),
    (Code.DELETE_KV_CONFIG, {"namespace": "n", "key": "k"}),
    (Code.UNREGISTER_BROKER, {"brokerName": "broker-a", "brokerAddr": "10.0.0.1:10911",
                              "clusterName": "C", "brokerId": "7"}),
    (Code.QUERY_DATA_VERSION, {"brokerName": "broker-a", "brokerAddr": "10.0.0.1:10911",
                               "clusterName": "C", "brokerId": "0"}),
    (Code.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "nobody"}),
    (Code.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "nobody"}),
    (Code.DELETE_TOPIC_IN_NAMESRV, {"topic": "none"}),
    (Code.UPDATE_NAMESRV_CONFIG, {})]
READS: list[tuple[Code, Mapping[str, str | None]]] = [
    (Code.GET_BROKER_CLUSTER_INFO, {}), (Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}),
    (Code.GET_TOPICS_BY_CLUSTER, {"cluster": "C"}), (Code.GET_SYSTEM_TOPIC_LIST_FROM_NS, {}),
    (Code.GET_UNIT_TOPIC_LIST, {}), (Code.GET_KV_CONFIG, {"namespace": "n", "key": "none"}),
    (Code.GET_KVLIST_BY_NAMESPACE, {"namespace": "n"})]


def made(code: int, ext: Mapping[str, str | None] | None = None, body: bytes = b"",
         account: Credentials | None = None, codec: Codec = Codec.JSON) -> Command:
    command = request(code, dict(ext or {}), body, codec=codec)
    if account is not None:
        sign(command, account)
    return command


def registered(account: Credentials | None, topics: list[str]) -> Command:
    command = registration(topics)
    if account is not None:
        sign(command, account)
    return command


def refused(answer: Command, why: str = "") -> bool:
    return answer.code == 1 and (answer.remark or "").startswith(EXCEPTION + why)


@asynccontextmanager
async def asking(folder: Path, *, routes: str = "free", beside: Beside | None = None,
                 audit: str = "text", clock: Clock | None = None) -> AsyncIterator[int]:
    """Runs one with RULES, unless there are others; its port."""
    file = folder / "plain_acl.yml"
    if not file.exists():
        file.write_text(RULES)
    settings = settings_in(folder, acl=NamesrvAclSettings(
        enable=True, folder=str(folder), routes=routes, audit=audit))  # type: ignore[arg-type]
    sockets = open_sockets(settings)
    ready, stopping = asyncio.Event(), asyncio.Event()
    serving = asyncio.create_task(serve(settings, sockets, on_ready=ready.set, stopping=stopping,
                                        now_ms=clock or Clock(), beside=beside))
    waiting = asyncio.create_task(ready.wait())
    await asyncio.wait((serving, waiting), timeout=DEADLINE_S,
                       return_when=asyncio.FIRST_COMPLETED)
    try:
        if serving.done():
            await serving              # it did not start: its error
        yield sockets[0].getsockname()[1]
    finally:
        waiting.cancel()
        stopping.set()
        if not serving.done():
            await asyncio.wait_for(serving, DEADLINE_S)


async def came_from(host: str, port: int) -> Peer:
    return Peer(*await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0)))


async def asks(port: int, command: Command, host: str = "127.0.0.1") -> Command:
    peer = await came_from(host, port)
    try:
        return await peer.ask(command)
    finally:
        await peer.close()


def test_what_changes_its_tables_needs_an_administrator(tmp_path: Path):
    async def run() -> None:
        async with asking(tmp_path) as port:
            for codec in Codec:
                for code, ext in CHANGES:
                    assert refused(await asks(port, made(code, ext, codec=codec)), "No accessKey")
                    assert refused(await asks(port, made(code, ext, account=USER, codec=codec)),
                                   f"Need admin permission for request code={int(code)}")
                    assert not refused(await asks(port, made(code, ext, account=ADMIN,
                                                             codec=codec)))
            assert refused(await asks(port, registered(None, ["read"])), "No accessKey")
            assert refused(await asks(port, registered(USER, ["read"])), "Need admin")
            assert (await asks(port, made(
                Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "read"}))).code == 17
            peer = await Peer.connect(port)        # its end is the broker's end
            assert (await peer.ask(registered(ADMIN, ["read"]))).code == 0
            assert (await asks(port, made(
                Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "read"}))).code == 0
            await peer.close()

    asyncio.run(run())


def test_who_is_nobody_or_lies_is_refused_as_by_a_broker(tmp_path: Path):
    put = {"namespace": "n", "key": "k", "value": "v"}

    async def run() -> None:
        async with asking(tmp_path) as port:
            stranger = Credentials("stranger", "admin-secret")
            assert refused(await asks(port, made(Code.PUT_KV_CONFIG, put, account=stranger)),
                           "No acl config for stranger")
            wrong = Credentials("the-admin", "wrong-secret")
            answer = await asks(port, made(Code.PUT_KV_CONFIG, put, account=wrong))
            assert refused(answer, "Check signature failed for accessKey=the-admin")
            assert "wrong-secret" not in (answer.remark or "")
            changed = registered(ADMIN, ["read"])
            changed.body = changed.body.replace(b"read", b"evil")
            assert b"evil" in changed.body
            assert refused(await asks(port, changed), "Check signature failed")
            assert refused(await asks(port, made(9999)), "No accessKey")
            assert refused(await asks(port, made(Code.GET_NAMESRV_CONFIG)), "No accessKey")
            assert (await asks(port, made(Code.GET_NAMESRV_CONFIG, account=USER))).code == 0

    asyncio.run(run())


def test_addresses_of_white_lists_are_asked_for_nothing(tmp_path: Path):
    put = {"namespace": "n", "key": "k", "value": "v"}

    async def run() -> None:
        async with asking(tmp_path) as port:
            assert (await asks(port, registered(None, ["read"]), "127.9.1.1")).code == 0
            lying = Credentials("the-user", "no-secret")
            assert (await asks(port, made(Code.PUT_KV_CONFIG, put, account=lying),
                               "127.8.0.1")).code == 0
            assert refused(await asks(port, made(Code.PUT_KV_CONFIG, put), "127.8.0.1"))

    asyncio.run(run())


def test_routes_are_free_or_for_those_who_use_the_topic(tmp_path: Path):
    def route(topic: str, account: Credentials | None) -> Command:
        return made(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}, account=account)

    async def run() -> None:
        async with asking(tmp_path) as port:
            for code, ext in READS:
                assert not refused(await asks(port, made(code, ext)))
            assert not refused(await asks(port, route("closed", None)))
        async with asking(tmp_path, routes="checked") as port:
            for code, ext in READS:
                assert refused(await asks(port, made(code, ext)), "No accessKey")
                assert not refused(await asks(port, made(code, ext, account=USER)))
            for topic in ("read", "write", "TBW102", "RMQ_SYS_TRACE_TOPIC", "%RETRY%readers"):
                assert refused(await asks(port, route(topic, None)), "No accessKey")
                assert (await asks(port, route(topic, USER))).code == 17
            for topic, what in (("closed", "topic:closed"), ("unknown", "topic:unknown"),
                                ("%RETRY%others", "group:others")):
                assert refused(await asks(port, route(topic, USER)),
                               f"No default permission for {what}")
            assert (await asks(port, route("closed", ADMIN))).code == 17

    asyncio.run(run())


def test_one_way_requests_are_refused_in_silence(tmp_path: Path):
    async def run() -> None:
        async with asking(tmp_path) as port:
            peer = await Peer.connect(port)
            silent = registered(None, ["read"])
            silent.flag = FLAG_ONEWAY
            peer.writer.write(encode(silent))
            assert (await peer.ask(made(
                Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "read"}))).code == 17
            await peer.close()

    asyncio.run(run())


def test_refusals_and_changes_are_told_and_heartbeats_are_not(
        tmp_path: Path, caplog: pytest.LogCaptureFixture):
    async def run() -> None:
        async with asking(tmp_path, audit="json") as port:
            await asks(port, registered(ADMIN, ["read"]))
            await asks(port, registered(USER, ["read"]))
            await asks(port, made(Code.DELETE_TOPIC_IN_NAMESRV, {"topic": "read"}, account=ADMIN))
            for value in ("1", "2", "2"):
                await asks(port, made(Code.PUT_KV_CONFIG, {
                    "namespace": "n", "key": "k", "value": value}, account=ADMIN))
            await asks(port, made(Code.DELETE_KV_CONFIG, {"namespace": "n", "key": "k"},
                                  account=ADMIN))
            await asks(port, made(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "read"}))

    with caplog.at_level(logging.INFO, "mqcore.audit"):
        asyncio.run(run())
    told = [json.loads(one.getMessage())["audit"] for one in caplog.records
            if one.name == "mqcore.audit"]
    assert [(one["request"], one["account"], one["what"], one["result"], one["why"])
            for one in told[:2]] == [
        ("REGISTER_BROKER", "the-user", "broker-a", "refused", "no administrator"),
        ("DELETE_TOPIC_IN_NAMESRV", "the-admin", "read", "allowed", "")]
    assert [(one["request"], one["account"], *one["changes"]) for one in told
            if one["result"] == "changed"] == [
        ("PUT_KV_CONFIG", "the-admin", {"name": "n/k", "before": "nothing", "after": "1"}),
        ("PUT_KV_CONFIG", "the-admin", {"name": "n/k", "before": "1", "after": "2"}),
        ("DELETE_KV_CONFIG", "the-admin", {"name": "n/k", "before": "2", "after": "nothing"})]
    assert all(one["from"].startswith("127.0.0.1:") for one in told)
    assert not any("secret" in one.getMessage() for one in caplog.records)


def test_files_are_followed_and_bad_ones_change_nothing(
        tmp_path: Path, caplog: pytest.LogCaptureFixture):
    put = {"namespace": "n", "key": "k", "value": "v"}
    new = Credentials("the-other", "other-secret")

    async def until(port: int, account: Credentials, code: int) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while (await asks(port, made(Code.PUT_KV_CONFIG, put, account=account))).code != code:
                await asyncio.sleep(0.05)

    async def run() -> None:
        async with asking(tmp_path) as port:
            file = tmp_path / "plain_acl.yml"
            file.write_text("accounts:\n- {accessKey: the-other, secretKey: [}\n")
            async with asyncio.timeout(DEADLINE_S):
                while "access rules stay unchanged" not in caplog.text:
                    await asyncio.sleep(0.05)
            assert f"{file}:2: " in caplog.text
            await until(port, ADMIN, 0)
            file.write_text(RULES.replace("the-admin", "the-other").replace(
                "admin-secret", "other-secret"))
            await until(port, new, 0)
            assert refused(await asks(port, made(Code.PUT_KV_CONFIG, put, account=ADMIN)))

    asyncio.run(run())


def test_a_start_with_a_bad_file_fails_unless_the_broker_beside_it_has_kept_it(tmp_path: Path):
    account = Account("broker-beside-1", "secret-of-the-run", admin=True)
    put = {"namespace": "n", "key": "k", "value": "v"}
    kept = KeptFiles()
    (tmp_path / "plain_acl.yml").write_text("accounts: 7\n")

    async def run() -> None:
        told: dict[str, int] = {}
        for beside in (None, Beside(account, kept, told.__setitem__)):
            with pytest.raises(AclFileError, match=r"plain_acl\.yml:1: accounts: expected a list"):
                async with asking(tmp_path, beside=beside):
                    raise AssertionError("it started")
        kept.put([read_file("plain_acl.yml", RULES.encode())])
        async with asking(tmp_path, beside=Beside(account, kept, told.__setitem__)) as port:
            for one in (ADMIN, Credentials(account.access_key, account.secret_key)):
                assert (await asks(port, made(Code.PUT_KV_CONFIG, put, account=one))).code == 0
            assert refused(await asks(port, made(Code.PUT_KV_CONFIG, put, account=USER)))
            async with asyncio.timeout(DEADLINE_S):
                while told.get("namesrv_access_refused") != 1:
                    await asyncio.sleep(0.05)

    asyncio.run(run())


def test_our_broker_and_our_client_sign_what_they_ask(tmp_path: Path):
    """What both send here as they send it to any name server."""
    def ours(address: str, command: Command) -> None:
        sign(command, ADMIN)

    async def run() -> None:
        async with asking(tmp_path, routes="checked") as port:
            address = f"127.0.0.1:{port}"
            whole = registration(["read"])
            for signer, count in ((None, 0), (ours, 1)):
                broker = Registration(sign=signer)
                assert len(await broker.register([address], whole.ext or {}, whole.body)) == count
                if signer is not None:
                    assert not await broker.needs_registration(
                        [address], whole.ext or {}, DataVersion(1, 5))
                    async with AsyncAdmin(address, credentials=ADMIN) as admin:
                        assert "read" in await admin.topics()
                    async with AsyncAdmin(address, credentials=USER) as user:
                        with pytest.raises(BrokerError, match="Need admin"):
                            await user.set_order("read", "broker-a:4")
                    async with AsyncProducer("pg", namesrv=address, credentials=USER) as producer:
                        with pytest.raises(BrokerError, match="No default permission"):
                            await producer.send("closed", b"x")
                    async with AsyncAdmin(address) as nobody:
                        with pytest.raises(BrokerError, match="No accessKey"):
                            await nobody.topics()
                await broker.close()

    asyncio.run(run())


def test_settings_of_its_own_file(tmp_path: Path):
    file = tmp_path / "namesrv.toml"
    file.write_text('[acl]\nenable = true\nroutes = "checked"\n')
    settings, _ = load(file)
    assert settings.acl == NamesrvAclSettings(enable=True, folder=str(tmp_path), routes="checked")
    for text, said in (
            ('[acl]\nroutes = "some"', 'acl.routes = "some": expected one of "free", "checked"'),
            ('[acl]\nenabled = true', "unknown key acl.enabled; did you mean enable?"),
            ("[tls]\nkey_password = 1234567", "tls.key_password: expected text")):
        file.write_text(f"{text}\n")
        with pytest.raises(ValueError, match=re.escape(f"{file}: {said}")) as error:
            load(file)
        assert "1234567" not in str(error.value)


def test_a_mistake_of_ours_beside_the_requests_ends_the_name_server(tmp_path: Path):
    """It is started anew; else nobody would hear of changed files any more."""
    def tell(name: str, value: int) -> None:
        raise KeyError(name)

    async def run() -> None:
        settings = settings_in(tmp_path)
        async with asyncio.timeout(DEADLINE_S):
            await serve(settings, open_sockets(settings), on_ready=lambda: None,
                        stopping=asyncio.Event(), beside=Beside(None, None, tell))

    with pytest.raises(KeyError, match="namesrv_tls_connections"):
        asyncio.run(run())
