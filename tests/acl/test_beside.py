"""The name server beside a broker with access control; processes that start while a file is bad."""
from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcore.acl.kept import KeptFiles
from mqcore.acl.rules import read_file
from mqcore.admin import logs
from mqcore.admin.run import supervise
from mqcore.broker.settings.load import load
from mqcore.broker.settings.model import AclSettings
from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.command import request
from mqcore.workers.process.accounts import Signing
from mqcore.workers.supervisor.supervisor import EXIT_AGAIN
from tests.acl.test_broker import ADMIN, NO_TOPIC, RULES, USER, Signer, refused
from tests.support.mqcore_process import MqcoreError, MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until
from tests.wire_live.peer import Closed, send_fields, topic_fields
from tests.workers.processes import by_role

PUT: dict[str, str | None] = {"namespace": "n", "key": "k", "value": "v"}
BAD = "accounts:\n- accessKey: short\n"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreProcess]:
    folder = tmp_path_factory.mktemp("beside")
    (folder / "plain_acl.yml").write_text(RULES)
    with mqcore_up(folder, {"acl.enable": True, "processes.serving_count": 1}) as running:
        with Signer(running.broker_addr, ADMIN) as admin:
            assert admin.does(Code.UPDATE_AND_CREATE_TOPIC, topic_fields("open", 1)).code == 0
        yield running


def is_routed(broker: MqcoreProcess) -> bool:
    try:
        with Signer(broker.namesrv_addr) as anybody:
            return anybody.does(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "open"}).code == 0
    except (Closed, ConnectionError):
        return False


def test_the_broker_registers_and_others_do_not(broker: MqcoreProcess):
    wait_until(lambda: is_routed(broker), "the broker is registered")
    with Signer(broker.namesrv_addr, USER) as user, Signer(broker.namesrv_addr, ADMIN) as admin:
        identity: dict[str, str | None] = {
            "brokerName": "b", "brokerAddr": broker.broker_addr, "clusterName": "DefaultCluster",
            "brokerId": "0"}
        for code in (Code.REGISTER_BROKER, Code.UNREGISTER_BROKER):
            assert refused(user.does(code, identity), "Need admin")
        assert refused(user.does(Code.PUT_KV_CONFIG, PUT), "Need admin")
        assert admin.does(Code.PUT_KV_CONFIG, PUT).code == 0
    assert is_routed(broker)
    said = "refused UNREGISTER_BROKER of the-user"
    wait_until(lambda: said in broker.output.read_text(), "an audit line")


def test_processes_that_start_while_a_file_is_bad_go_on_with_the_rules_before(
        broker: MqcoreProcess):
    file = broker.folder / "plain_acl.yml"
    before = by_role(broker)
    file.write_text(BAD)
    try:
        told = f"access rules stay unchanged: {file}:2: accessKey: 5 characters"

        def tellers() -> int:
            return broker.output.read_text().count(told)

        wait_until(lambda: tellers() == 2, "coordinator and name server have seen it")
        for number, role in enumerate(("namesrv", "coordinator"), 3):
            os.kill(before[role], signal.SIGKILL)
            wait_until(lambda number=number: tellers() == number,  # type: ignore[misc]
                       f"the successor of the {role} tells of it", 30)

        def answers() -> bool:
            try:
                with Signer(broker.broker_addr, ADMIN) as admin:
                    return admin.does(Code.UPDATE_AND_CREATE_TOPIC,
                                      topic_fields("later", 1)).code == 0
            except (Closed, ConnectionError):
                return False

        wait_until(answers, "the coordinator's successor answers", 30)
        wait_until(lambda: is_routed(broker), "the name server's successor has the broker", 30)
        assert before.keys() == by_role(broker).keys()
        assert not {before["coordinator"], before["namesrv"]} & set(by_role(broker).values())
        with Signer(broker.broker_addr, USER) as user:
            assert user.does(Code.SEND_MESSAGE_V2, send_fields("open"), b"x").code == 0
            assert refused(user.does(Code.SEND_MESSAGE_V2, send_fields("later"), b"x"), NO_TOPIC)
        with Signer(broker.namesrv_addr, USER) as user:
            assert refused(user.does(Code.PUT_KV_CONFIG, PUT), "Need admin")
        assert tellers() == 4
    finally:
        file.write_text(RULES.replace("write-only=PUB", "later=PUB"))

    def may() -> bool:
        with Signer(broker.broker_addr, USER) as user:
            return user.does(Code.SEND_MESSAGE_V2, send_fields("later"), b"x").code == 0

    wait_until(may, "the mended file counts")


def test_the_brokers_own_account_needs_key_and_file(tmp_path: Path):
    (tmp_path / "plain_acl.yml").write_text(RULES)
    secret = tmp_path / "secret"
    for given, expected in (
            ({"acl.client_access_key": "the-admin"},
             "acl.client_access_key = \"the-admin\": expected its secret key in the file"),
            ({"acl.client_access_key": "the-admin", "acl.client_secret_key_file": secret},
             f"{secret}: cannot be read: No such file or directory; expected the secret key of "
             "the-admin, in one line")):
        with pytest.raises(MqcoreError) as error, mqcore_up(tmp_path, given):
            pytest.fail("it has started")
        assert expected in str(error.value)


def test_a_process_that_starts_while_the_brokers_key_cannot_be_read_signs_later(
        tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """A first start ends with one line; a successor has to live."""
    secret = tmp_path / "secret"
    acl = AclSettings(client_access_key=ADMIN[0], client_secret_key_file=str(secret))
    signing = Signing(acl, ("", None))

    def signed() -> bool:
        command = request(Code.GET_BROKER_CLUSTER_INFO, {})
        signing.sign("127.0.0.1:1", command)
        return (command.ext or {}).get("AccessKey") == ADMIN[0]

    assert [signed(), signed()] == [False, False]
    assert [one.getMessage() for one in caplog.records] == [
        f"the broker asks without its account: {secret}: cannot be read: No such file or "
        f"directory; expected the secret key of {ADMIN[0]}, in one line"]
    secret.write_text(f"{ADMIN[1]}\n")
    assert signed()
    secret.unlink()
    assert signed()
    assert "the broker's own secret key stays as it was" in caplog.text


def test_what_is_kept_is_whole_or_not_there():
    kept = KeptFiles()
    first, second = (read_file(name, RULES.encode()) for name in ("one.yml", "two.yml"))
    assert kept.get() is None
    kept.put([first])
    kept.put([first, second])
    assert kept.get() == [first, second]
    (_, place) = kept._places
    os.pwrite(place, b"torn", 40)      # who wrote the last one died meanwhile
    assert kept.get() == [first]
    kept.put([second])
    assert kept.get() == [second]


def test_a_run_that_begins_at_once_after_another_has_what_that_one_kept(
        monkeypatch: pytest.MonkeyPatch):
    seen: list[KeptFiles] = []

    class Runs:
        def __init__(self, settings: object, *, kept: KeptFiles, **others: object) -> None:
            seen.append(kept)

        def run(self) -> int:
            return EXIT_AGAIN if len(seen) == 1 else 0

    monkeypatch.setattr("mqcore.processes.supervisor.Supervisor", Runs)
    monkeypatch.setattr(logs, "configure", lambda *given, **named: None)
    with pytest.raises(SystemExit) as ended:
        supervise(load(None, {}), lambda: load(None, {}), embedded=False)
    assert ended.value.code == 0
    assert len(seen) == 2
    assert seen[0] is seen[1]
