"""The page in the http process of a broker: its name servers, its account, its shared memory."""
from __future__ import annotations

import hmac
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
from mqcore.page.users import Users
from mqcore.shm.segment import Segment
from mqcore.workers.process.accounts import AccountFileError, own_account


class BesideBroker:
    """mqcore/workers/serving/http.py hands connections to it."""

    def __init__(self, settings: Settings, segment: Segment, watcher: Watcher) -> None:
        self._settings = settings
        self._local = Local(settings, segment, watcher)
        try:
            credentials = own_account(settings.acl)
        except AccountFileError:               # the coordinator says so, and asks without it too
            credentials = None
        http = settings.http
        schemas = schemas_of(http.protobuf)
        self._site = Site(
            [Cluster(";".join(settings.broker.namesrv_addrs), credentials,
                     name=settings.broker.cluster)],
            Users(time.monotonic, http.users, self._is_admin if settings.acl.enable else None),
            Trail(), http.write, http.hosts, self._local, schemas,
            Masks(all_parsed(http.masks), schemas), frozenset(http.unmasked))
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
        """End connections that have been idle for too long."""
        self._connections.sweep()

    async def close(self) -> None:
        """End all connections, and what they ask for."""
        await self._connections.close()
        await self._site.close()
