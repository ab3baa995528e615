"""
TLS and accounts together: our broker and name server and stock ones, which speak nothing but TLS
and ask who sends a request, beside other people's clients.

The Java client verifies who it talks to; the Go client of clients/go/tls.mod has TLS and verifies
nobody; the C++ client's Python package has none.
"""
from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.interop.accounts import (
    ADMIN,
    World,
    both,
    check,
    go_outcomes,
    go_told,
    java_outcomes,
)
from tests.interop.runner import Programs
from tests.interop.toolchain import require_client
from tests.tls.certificates import Authority
from tests.tls.conftest import authority, served

__all__ = ["authority", "served"]


@pytest.fixture(scope="module")
def world(
    authority: Authority, served: dict[str, object], tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[World]:
    trusting = {"tls.test.mode.enable": "false", "tls.enable": "true",
                "tls.client.authServer": "true", "tls.client.trustCertPath": authority.certificate}
    server = {"tls.server.mode": "enforcing", "tls.server.certPath": served["tls.certificate"],
              "tls.server.keyPath": served["tls.key"]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", " ".join(f"-D{name}={value}"
                                                   for name, value in trusting.items()))
        with both(tmp_path_factory.mktemp("tls-accounts"), {**served, "tls.mode": "enforcing"},
                  {**trusting, **server}, authority.client()) as made:
            yield made


@pytest.mark.slow
def test_java_clients_with_accounts_and_tls_have_the_same_outcome_as_with_stock(
    world: World,
) -> None:
    kinds = ("sync", "async", "batch", "transaction", "oneway", "pull")
    check(world, "Java", java_outcomes(world, kinds), kinds)


@pytest.mark.slow
def test_go_clients_with_accounts_and_tls_have_the_same_outcome_as_with_stock(
    world: World, programs: Programs,
) -> None:
    kinds = ("sync", "async", "batch", "oneway")
    lines = programs.accounts("go-tls", go_told(world, kinds))
    check(world, "Go", go_outcomes(lines), kinds)


@pytest.mark.slow
def test_mqadmin_with_accounts_and_tls_asks_both(world: World) -> None:
    for side in world.sides:
        for account, wanted in ((ADMIN, "bootTimestamp"), (("the-admin", "x" * 8), "signature"),
                                (None, "No accessKey is configured")):
            assert wanted in world.run(side, account, "brokerStatus", "-b", side.broker_addr)


@pytest.mark.slow
def test_the_cpp_clients_library_has_no_tls() -> None:
    """Its newer sources have SetProducerSsl beside SetProducerCompressLevel; no package does."""
    python = require_client("cpp")[0]
    asked_for = ("SetProducerCompressLevel", "SetProducerSsl", "SetPushConsumerSsl")
    done = subprocess.run(
        [python, "-c", "import sys; from rocketmq.ffi import dll\n"
         "print([hasattr(dll, name) for name in sys.argv[1:]])", *asked_for],
        capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[True, False, False]"
