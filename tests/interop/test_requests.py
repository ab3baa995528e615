"""Requests of the Java client get their replies from another Java client."""
from __future__ import annotations

import pytest

from tests.interop.conftest import Cluster
from tests.interop.runner import Programs
from tests.interop.toolchain import require_client

pytestmark = pytest.mark.timeout(300)
QUEUES = 4


@pytest.mark.slow
@pytest.mark.parametrize("extra_bytes", [0, (4 << 20) - (1 << 14)])
def test_requests_get_their_replies_also_large_ones(
    programs: Programs, cluster: Cluster, extra_bytes: int,
) -> None:
    require_client("java")
    topic = f"requests-{extra_bytes}-{cluster.kind}"
    programs.java("create-topic", namesrv=cluster.namesrv_addr, topic=topic, queues=QUEUES)

    lines = programs.java("request", namesrv=cluster.namesrv_addr, topic=topic,
                          group=f"{topic}-repliers", count=3, extra_bytes=extra_bytes)

    assert [(line["reply"], line["extraIsWhole"]) for line in lines] == [
        (f"request {index}"[::-1], True) for index in range(3)]
