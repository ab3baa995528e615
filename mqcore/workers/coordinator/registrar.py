"""How the coordinator tells name servers of its broker, and hears what they say to that."""
from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from functools import partial

from mqcore.acl.rules import Account
from mqcore.broker.registration import BrokerRegistration, identity
from mqcore.broker.settings.model import Settings
from mqcore.client.network.pool import ConnectionPool
from mqcore.client.network.registration import RegisterResult, Registration
from mqcore.layout import LEADERSHIP_FOLLOWS
from mqcore.shm.figure_slots import FigureSlots
from mqcore.shm.leadership import LeadershipPen
from mqcore.tls.contexts import OWN_FILES, client_context, own_context
from mqcore.tls.renewed import Renewed
from mqcore.tls.settings import CLIENT_FILES, TlsSettings
from mqcore.workers.failover.standing import Watch
from mqcore.workers.process.accounts import Signing
from mqcore.workers.replication.following import is_address

UNREGISTER_TIMEOUT_S = 0.8


class Registrar:
    """The rules' Registrar: REGISTER_BROKER to every name server, from the event loop."""

    def __init__(self, settings: Settings, on_ordered: Callable[[list[str]], None],
                 on_master: Callable[[str, str], None], pen: LeadershipPen, *,
                 embedded_namesrv: bool = False, account: Account | None = None,
                 kept_tls: TlsSettings | None = None, figures: FigureSlots | None = None) -> None:
        """
        on_ordered: hears which topics are ordered; on_master: in a slave, of its master: the
        address for clients, and the one for the log; pen: whether an elected one still leads, and
        whether a master was overtaken;
        account: as which the broker registers at the name server beside it; kept_tls: with copies
        of the TLS files in force, for a successor; figures: where it shows how many name servers
        know the broker.
        """
        self.settings = settings
        self._pen = pen
        self._figures = figures
        self._on_master = on_master
        self._embedded = embedded_namesrv
        self._renewed = (
            Renewed(settings.tls, CLIENT_FILES, client_context, self._take_outgoing,
                    whose="new connections to name servers",
                    kept=None if kept_tls is None else partial(client_context, kept_tls)),
            Renewed(settings.tls, OWN_FILES, own_context, self._take_own,
                    whose="new connections to the name server beside",
                    kept=None if kept_tls is None else partial(own_context, kept_tls)))
        signing = Signing(settings.acl, (settings.own_namesrv_addr, account))
        self._registrations = Registration(ConnectionPool(tls=self._context), signing.sign)
        self._on_ordered = on_ordered
        self._watch = Watch(lambda: self._outgoing, signing.current,
                            lambda: pen.request(LEADERSHIP_FOLLOWS, 0))
        self._tasks: set[asyncio.Task[int]] = set()
        self._over = False                 # the broker has begun to unregister

    def _take_outgoing(self, context: ssl.SSLContext | None) -> None:
        self._outgoing = context

    def _take_own(self, context: ssl.SSLContext | None) -> None:
        self._own = context

    def look(self, now_ms: int) -> None:
        """Take over certificates and trust that have changed; called every 100 ms or so."""
        for renewed in self._renewed:
            renewed.look(now_ms)

    def _context(self, address: str) -> ssl.SSLContext | None:
        """The name server beside this broker is known only by its certificate."""
        if self._embedded and address == self.settings.own_namesrv_addr:
            return self._own
        return self._outgoing

    async def is_newest(self) -> bool:
        """Before a registration that comes in its time: False: another one is the master."""
        return not self.is_overtaken and await self._watch.look(self.settings)

    def register(
        self, registration: BrokerRegistration, *, one_way: bool,
        done: Callable[[], None] | None = None,
    ) -> None:
        if self._over:                   # else a name server keeps a broker that has gone
            if done is not None:
                done()
            return
        task: asyncio.Task[int] = asyncio.get_running_loop().create_task(
            self.register_now(registration, one_way=one_way, done=done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def register_now(
        self, registration: BrokerRegistration, *, one_way: bool = False,
        done: Callable[[], None] | None = None,
    ) -> int:
        """Register and wait for the answers; returns how many name servers took it."""
        results: list[RegisterResult] = []
        try:
            if self.is_overtaken or (self.leads_elected and not self._pen.holds):
                return 0                     # another one may be the master by now
            results = await self._registrations.register(
                self.settings.broker.namesrv_addrs, registration.ext, registration.body,
                oneway=one_way, timeout=self.settings.broker.register_timeout_ms / 1000)
        finally:
            if self._figures is not None and not one_way:        # one-way: without answers
                self._figures.put("registered_namesrvs", len(results))
            if done is not None:
                done()
        if results and results[0].order_topics is not None:
            self._on_ordered(list(results[0].order_topics))
        if self.settings.is_slave:
            self._adopt(results)
        return len(results)

    @property
    def is_overtaken(self) -> bool:
        """Whether another broker has taken over from this master, without an election."""
        return (not self.settings.failover.enable
                and self._pen.requested[0] == LEADERSHIP_FOLLOWS)

    @property
    def leads_elected(self) -> bool:
        """Whether it is the master by an election."""
        return self.settings.failover.enable and not self.settings.follows

    def _adopt(self, results: list[RegisterResult]) -> None:
        """The first name server that knows a master; while none does, the last one stays."""
        for result in results:
            address, ha_address = result.master_address or "", result.ha_address or ""
            if is_address(address):
                self._on_master(address, ha_address if is_address(ha_address) else "")
                return

    async def stop(self) -> None:
        self._over = True
        for task in list(self._tasks):
            task.cancel()
        if self.settings.is_slave or not self.settings.replication.listen:
            await self._registrations.unregister(
                self.settings.broker.namesrv_addrs, identity(self.settings),
                timeout=UNREGISTER_TIMEOUT_S)
        # a master of slaves only closes: a stock name server takes the id of a 104 away from the
        # broker that has it by now, a promoted one, too
        await self._registrations.close()
