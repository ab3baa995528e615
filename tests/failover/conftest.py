from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.etcd import EtcdServer, etcd_server


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """One for all tests that neither stop it nor change its users; each with keys of its own."""
    with etcd_server(tmp_path_factory.mktemp("etcd")) as server:
        yield server
