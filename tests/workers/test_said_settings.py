"""SIGHUP reads the settings file again: what is honoured at once is taken, the rest is named."""
from __future__ import annotations

import os
import signal
from pathlib import Path

from mqcore.wire.codes import RequestCode
from tests.support.mqcore_process import MqcoreProcess, mqcore_namesrv, mqcore_up
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer
from tests.workers.load import Asker, send_request
from tests.workers.processes import kill
from tests.workers.test_signals import WITH_HANGUP


def hang_up(broker: MqcoreProcess, word: str) -> str:
    """The words of a broker after SIGHUP, once `word` is among them."""
    before = broker.output.stat().st_size
    os.kill(broker.pid, signal.SIGHUP)

    def said() -> str:
        return broker.output.read_bytes()[before:].decode()

    wait_until(lambda: word in said(), word)
    return said()


def sent(broker: MqcoreProcess, topic: str) -> int:
    """The code of the answer to a send."""
    with Asker(broker.broker_addr) as asker:
        return asker.ask(send_request(topic, (0, 0), 1)).code


def config(address: str, code: int = RequestCode.GET_BROKER_CONFIG) -> dict[str, str]:
    with Peer(address) as peer:
        body = peer.ask(code).body
    return dict(line.partition("=")[::2] for line in body.decode().splitlines())


def test_a_hangup_takes_what_a_running_broker_can_and_names_the_rest(tmp_path: Path) -> None:
    with mqcore_up(tmp_path, program=WITH_HANGUP) as broker:
        file = tmp_path / "broker.toml"
        assert sent(broker, "first") == 0

        text = file.read_text()
        changed = text.replace("[broker]\n", "[broker]\nauto_create_topic = false\n").replace(
            "[store]\n", "[store]\nmessage_size_max_bytes = 8388608\nreserved_hours = 48\n"
        ).replace("[processes]\n", "[processes]\ntopic_count_max = 5000\n")
        file.write_text(changed)
        said = hang_up(broker, "wait for the next start")
        assert ("taken: broker.auto_create_topic = false instead of true, "
                "store.reserved_hours = 48 instead of 72 event=") in said
        assert ("wait for the next start: processes.topic_count_max, "
                "store.message_size_max_bytes event=") in said
        wait_until(lambda: config(broker.broker_addr)["fileReservedTime"] == "48", "the setting")
        assert sent(broker, "second") == 17
        kill(broker, "coordinator")
        assert sent(broker, "third") == 17

        # what an administrator changes stays above the file
        with Peer(broker.broker_addr) as peer:
            assert peer.ask(RequestCode.UPDATE_BROKER_CONFIG, {},
                            b"autoCreateTopicEnable=true\n").code == 0
        file.write_text(changed.replace("reserved_hours = 48", "reserved_hours = 49"))
        hang_up(broker, "broker.auto_create_topic = true instead of false")
        wait_until(lambda: config(broker.broker_addr)["fileReservedTime"] == "49", "the setting")
        assert sent(broker, "fourth") == 0

        # a file that cannot be used changes nothing
        before = config(broker.broker_addr)
        file.write_text(changed.replace("reserved_hours = 48", "reserved_hours = 50").replace(
            "auto_create_topic = false", "auto_create_topic = \"perhaps\""))
        said = hang_up(broker, "the settings stay unchanged")
        assert "broker.auto_create_topic = \"perhaps\"" in said
        file.unlink()
        assert str(file) in hang_up(broker, "the settings stay unchanged")
        os.mkfifo(file)                    # nothing will ever write to it
        assert f"{file}: expected a file" in hang_up(broker, "the settings stay unchanged")
        assert config(broker.broker_addr) == before

        # the next run of the same process begins with what was taken
        os.kill(broker.pid, signal.SIGUSR1)
        wait_until(lambda: broker.output.read_text().count("mqcore ready ") == 2, "the next run")
        assert config(broker.broker_addr) == before


def test_a_name_server_takes_the_settings_that_it_can(tmp_path: Path) -> None:
    settings = {"namesrv.product_env_name": "first",
                "namesrv.runtime_config_path": tmp_path / "runtime.json"}
    with mqcore_namesrv(tmp_path, settings, program=WITH_HANGUP) as server:
        file = tmp_path / "namesrv.toml"
        text = file.read_text()
        with Peer(server.namesrv_addr) as peer:
            assert peer.ask(RequestCode.UPDATE_NAMESRV_CONFIG, {},
                            b"orderMessageEnable=true\n").code == 0
        file.write_text(text.replace('"first"', '"second"').replace(
            "[namesrv]\n", "[namesrv]\nbroker_timeout_ms = 7000\norder_message_enable = false\n"
                           "topic_count_max = 7\n"))
        said = hang_up(server, "wait for the next start: namesrv.topic_count_max event=")
        assert ("taken: namesrv.broker_timeout_ms = 7000 instead of 120000, "
                "namesrv.product_env_name = second instead of first event=") in said
        shown = config(server.namesrv_addr, RequestCode.GET_NAMESRV_CONFIG)
        assert (shown["productEnvName"], shown["broker_timeout_ms"], shown["orderMessageEnable"],
                shown["topic_count_max"]) == ("second", "7000", "true", "100000")
        file.write_text(text + "nonsense = 1\n")
        assert "namesrv.nonsense" in hang_up(server, "the settings stay unchanged")
        file.unlink()
        os.mkfifo(file)
        assert f"{file}: expected a file" in hang_up(server, "the settings stay unchanged")
        assert config(server.namesrv_addr, RequestCode.GET_NAMESRV_CONFIG) == shown
