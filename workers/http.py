"""
The http process: answers scrapes and probes, for Prometheus and for service managers, and serves
the page for browsers.

Reads     shared memory, /proc, consumerOffset.json, the store for the ages of messages
Owns      its listening socket and connections
Wakes     no process, and waits for none: scrapes are answered while another process hangs; the
          page asks brokers over their port, as commands do
Restarts  with its port opened again
"""
from __future__ import annotations

from mqcore.broker.settings.model import Settings
from mqcore.http.look import Watcher
from mqcore.shm.segment import Segment
from mqcore.workers.process import loop
from mqcore.workers.process.inherited import Inherited
from mqcore.workers.serving.http import Http, Page


def live(inherited: Inherited, _index: int) -> None:
    """The process, from fork to end."""
    segment = inherited.segment
    loop.run(lambda settings: Http(settings, segment, open_page), inherited.settings, segment)


def open_page(settings: Settings, segment: Segment, watcher: Watcher) -> Page:
    """The page; loaded here, so that a broker whose page is not used has none in memory."""
    from mqcore.page.beside import BesideBroker

    return BesideBroker(settings, segment, watcher)
