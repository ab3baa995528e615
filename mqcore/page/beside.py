"""The page in the http process of a broker: its name servers, its account, its shared memory."""
from __future__ import annotations

import hmac
import ssl
import time

from mqcore.acl.folder import AclFolder
from mqcore.broker.settings.masks import all_parsed
from mqcore.broker.settings.model import Settings
from mqcore.http.look import Watcher
from mqcore.http.server import PageProtocol
from mqcore.page.app import application
from mqcore.page.asking import Cluster
from mqcore.page.audit import Trail
from mqcore.page.context import Site
from mqcore.page.decoding import schemas_of
from mqcore.page.local import Local
from mqcore.page.masking import Masks
from mqcore.page.serving import Connections
from mqcore.page.tasks import Tasks
from mqcore.page.users import Users
from mqcore.shm.segment import Segment
from mqcore.tls.contexts import OWN_FILES, client_context, own_context
from mqcore.tls.renewed import Renewed
from mqcore.tls.settings import CLIENT_FILES
from mqcore.workers.process.accounts import AccountFileError, own_account


class OwnWays:
    """
    The TLS contexts of connections: the broker beside and its own name server are known by their
    certificate, others as `[tls]` says for going to others. Files that changed are taken over.
    """

    def __init__(self, settings: Settings) -> None:
        self._own_addresses = {settings.advertised_addr}
        if settings.namesrv.embedded:
            self._own_addresses.add(settings.own_namesrv_addr)
        # one that cannot be made verifies by the system's authorities: nothing goes in the clear
        self._renewed = (
            Renewed(settings.tls, OWN_FILES, own_context, self._take_own,
                    whose="the page's connections to its own broker",
                    kept=ssl.create_default_context),
            Renewed(settings.tls, CLIENT_FILES, client_context, self._take_outgoing,
                    whose="the page's connections to other brokers",
                    kept=ssl.create_default_context))

    def _take_own(self, context: ssl.SSLContext | None) -> None:
        self._own = context

    def _take_outgoing(self, context: ssl.SSLContext | None) -> None:
        self._outgoing = context

    def context(self, address: str) -> ssl.SSLContext | None:
        """For a new connection to `host:port`; None: in the clear."""
        return self._own if address in self._own_addresses else self._outgoing

    def look(self) -> None:
        """Take over files that have changed."""
        for renewed in self._renewed:
            renewed.look(time.time_ns() // 1_000_000)


class BesideBroker:
    """mqcore/workers/serving/http.py hands connections to it."""

    def __init__(self, settings: Settings, segment: Segment, watcher: Watcher) -> None:
        self._settings = settings
        self._local = Local(settings, segment, watcher)
        self._tls = OwnWays(settings)
        try:
            credentials = own_account(settings.acl)
        except AccountFileError:               # the coordinator says so, and asks without it too
            credentials = None
        http = settings.http
        schemas = schemas_of(http.protobuf)
        self._site = Site(
            [Cluster(";".join(settings.broker.namesrv_addrs), credentials,
                     name=settings.broker.cluster, tls=self._tls.context)],
            Users(time.monotonic, http.users, self._is_admin if settings.acl.enable else None),
            Trail(), http.write, http.hosts, self._local, schemas,
            Masks(all_parsed(http.masks), schemas), frozenset(http.unmasked),
            tasks=Tasks(settings.store_root / "http" / "tasks.json"))
        self._connections = Connections(application(self._site))

    def _is_admin(self, access_key: str, secret_key: str) -> bool:
        """Whether the broker's access files have this account, as an administrator."""
        settings = self._settings
        try:
            access = AclFolder(settings.acl_folder).read(
                stock_permissions=settings.acl.stock_permissions)
        except (OSError, ValueError):
            return False
        account = access.accounts.get(access_key)
        return account is not None and account.admin and hmac.compare_digest(
            account.secret_key.encode(), secret_key.encode(errors="replace"))

    def connection(self) -> PageProtocol:
        """The protocol of a connection that asks for a page."""
        return self._connections.new()

    def reconfigure(self, settings: Settings) -> None:
        """Settings that changed while it runs."""
        self._settings = self._local.settings = settings

    def sweep(self) -> None:
        """End connections that have been idle for too long; look for new certificates."""
        self._tls.look()
        self._connections.sweep()

    async def close(self) -> None:
        """End all connections, and what they ask for."""
        await self._connections.close()
        await self._site.close()
