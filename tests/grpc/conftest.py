"""A broker whose gRPC port is open."""
from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.grpc.caller import Caller, calling
from tests.grpc.world import GrpcBroker, grpc_broker


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GrpcBroker]:
    with grpc_broker(tmp_path_factory.mktemp("grpc")) as broker:
        yield broker


@pytest.fixture(scope="module")
def caller(live: GrpcBroker) -> Iterator[Caller]:
    with calling(live.address) as one:
        yield one
