"""
The supervisor: parent of all processes of a broker.

Reads     worker slots; exit codes of its children
Owns      the store's lock, shared memory names, listening sockets, the abort file, restarts
Wakes     every worker, to stop
Restarts  by hand: the next start removes what an earlier one left; its children end by themselves
          when it dies
"""
from __future__ import annotations

import os
from collections.abc import Callable

from mqcore.acl.kept import KeptFiles
from mqcore.broker.settings.model import Settings
from mqcore.workers.failover.elected import Rejoining
from mqcore.workers.process import said
from mqcore.workers.process.activated import Activated, ActivationError
from mqcore.workers.process.secured import KeptTls
from mqcore.workers.process.signals import Terminal
from mqcore.workers.supervisor.limits import fitted
from mqcore.workers.supervisor.manager import ServiceManager
from mqcore.workers.supervisor.supervisor import EXIT_AGAIN, StartError, Supervisor


def live(settings: Settings, read: Callable[[], Settings], *, embedded: bool,
         on_ready: Callable[[Settings], None]) -> int:
    """
    Run a broker in this process, again as often as a run asks for it; returns the exit status.

    read: the settings as files say them when SIGHUP comes; embedded: with a name server beside it;
    on_ready: called once clients can connect.
    """
    kept, kept_tls, rejoining, terminal = KeptFiles(), KeptTls(), Rejoining(), Terminal()
    manager = ServiceManager(os.environ, beats=settings.http.enable)
    try:
        activated = Activated(os.environ)
    except ActivationError as error:
        raise StartError(str(error)) from error

    def ready(now: Settings) -> None:
        on_ready(now)
        manager.ready()

    known = said.of_broker(fitted(settings), lambda: fitted(read()))
    code = EXIT_AGAIN
    while code == EXIT_AGAIN:
        code = Supervisor(known, embedded_namesrv=embedded, kept=kept, kept_tls=kept_tls,
                          rejoining=rejoining, terminal=terminal, on_ready=ready,
                          manager=manager, activated=activated).run()
    return code
