"""A fake cluster in a thread of its own, for clients that block."""
from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from tests.client.fake_broker import FakeBroker, fake_cluster
from tests.namesrv.harness import settings_in

READY_S = 60.0


@contextlib.contextmanager
def cluster_thread(folder: Path, *names: str) -> Iterator[tuple[str, list[FakeBroker]]]:
    """Our name server and fake brokers in another thread; yields its address and them."""
    found: list[tuple[str, list[FakeBroker]]] = []
    ready, loop = threading.Event(), asyncio.new_event_loop()
    stopping = asyncio.Event()

    async def run() -> None:
        async with fake_cluster(settings_in(folder), *names) as cluster:
            found.append(cluster)
            ready.set()
            await stopping.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()))
    thread.start()
    try:
        assert ready.wait(READY_S)
        yield found[0]
    finally:
        loop.call_soon_threadsafe(stopping.set)
        thread.join(READY_S)
        loop.close()
