"""What the application's own code raises where the client calls it: it stops nothing else."""
from __future__ import annotations

import asyncio
import logging
from typing import Final, NoReturn

log: Final = logging.getLogger("mqcore.client")


def raised(error: BaseException, what: str, *details: object) -> None:
    """Called with what a callback raised: logged as `what % details`, and the client continues.

    An exit that was asked for (SystemExit, KeyboardInterrupt) goes on from the event loop, once the
    client's own work of this turn is done; in a thread without a loop it is logged alone.
    """
    log.error(what, *details, exc_info=error)
    if isinstance(error, SystemExit | KeyboardInterrupt):
        try:
            asyncio.get_running_loop().call_soon(_go_on, error)
        except RuntimeError:
            log.debug("there is no loop in this thread that could end")


def _go_on(error: BaseException) -> NoReturn:
    raise error
