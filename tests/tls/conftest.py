"""A broker that serves TLS, its authority, and what is looked at on both."""
from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until
from tests.tls.certificates import Authority


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def served(authority: Authority) -> dict[str, object]:
    """Settings of a server with a certificate for 127.0.0.1."""
    certificate, key = authority.sign("server")
    return {"tls.certificate": certificate, "tls.key": key}


@pytest.fixture(scope="session")
def client(authority: Authority) -> ssl.SSLContext:
    return authority.client()


@pytest.fixture(scope="session")
def broker(
    served: dict[str, object], tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[MqcoreProcess]:
    """Both TLS and not; few handshakes at a time, which have little time."""
    with mqcore_up(tmp_path_factory.mktemp("broker"), {
        **served, "tls.handshake_count_max": 40, "tls.handshake_ms_max": 2_000,
        "tls.poll_ms": 100,
    }) as running:
        yield running


@pytest.fixture
def says(request: pytest.FixtureRequest) -> Callable[[MqcoreProcess, str], None]:
    """Waits for words in what a process writes from the beginning of the test on."""
    shared = [request.getfixturevalue(name) for name in ("broker", "enforcing")
              if name in request.fixturenames]
    begun = {process.output: process.output.stat().st_size for process in shared}

    def wait(process: MqcoreProcess, words: str) -> None:
        begin = begun.get(process.output, 0)
        wait_until(lambda: words.encode() in process.output.read_bytes()[begin:], words, 20)

    return wait


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path
