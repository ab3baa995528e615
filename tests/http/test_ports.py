"""A port that another program has is no reason to be without a broker."""
from __future__ import annotations

import socket
from pathlib import Path

import pytest

from mqcore.broker.settings.load import load
from mqcore.broker.settings.model import SettingsError
from tests.http.asking import checks
from tests.support.mqcore_process import mqcore_up
from tests.support.waiting import wait_until
from tests.workers.processes import by_role


def test_a_taken_port_is_a_line_and_is_had_when_it_is_free(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with mqcore_up(tmp_path, {"http.enable": True, "http.listen": f"127.0.0.1:{port}"}) as one:
            wait_until(lambda: "no metrics" in one.tail(), "the line")
            other.close()
            wait_until(lambda: "is listened on now" in one.tail(), "the port")
            assert checks(port, "/readyz") == (200, {})
            (line,) = [line for line in one.tail().splitlines() if "no metrics" in line]
            assert line.endswith(f"127.0.0.1:{port} (http.listen) cannot be listened on: "
                                 "Address already in use event=http-port-taken")


def test_without_the_setting_there_is_no_process(tmp_path: Path) -> None:
    with mqcore_up(tmp_path) as broker:
        roles = by_role(broker)
        assert "coordinator" in roles
        assert "http" not in roles


@pytest.mark.parametrize(("listen", "said"), [
    ("10980", "host:port"), ("127.0.0.1:0", "host:port"), ("127.0.0.1:70000", "host:port"),
    ("127.0.0.1:10911", "a port that the broker does not use itself"),
    ("127.0.0.1:9876", "a port that the broker does not use itself"),
])
def test_an_address_that_cannot_be_is_refused(listen: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        load(None, {}, [f"http.listen={listen}", "http.enable=true"])
