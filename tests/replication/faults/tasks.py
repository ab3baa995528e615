"""Works that end together."""
from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def until_one_ends(*works: Coroutine[Any, Any, None]) -> list[asyncio.Task[None]]:
    """
    The works' tasks when one has ended, however it did; the others are cancelled then. No task
    group: one whose task has failed forgets that it was cancelled at the same moment.
    """
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return tasks
