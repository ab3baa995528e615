"""Exceptions of the application's code where the client calls it: they stop nothing else."""
from __future__ import annotations

import asyncio
import logging
from typing import Final, NoReturn

log: Final = logging.getLogger("mqcore.client")


def raised(error: BaseException, what: str, *details: object) -> None:
    """Called with what a callback raised: logged as `what % details`, and the client continues.

    An exit that was asked for (SystemExit, KeyboardInterrupt) is raised from the event loop, when
    the client's own work of this turn is done; in a thread without a loop it is only logged.
    """
    log.error(what, *details, exc_info=error)
    if isinstance(error, SystemExit | KeyboardInterrupt):
        try:
            asyncio.get_running_loop().call_soon(_raise, error)
        except RuntimeError:
            log.debug("there is no loop in this thread that could end")


def _raise(error: BaseException) -> NoReturn:
    raise error
