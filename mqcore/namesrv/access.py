"""
Access control of a name server, which stock's has not: who may tell it where topics are.

What changes its tables needs an administrator's account: registrations, key-values, permissions of
brokers, settings. What only reads is free, or asks for an account and its permission
(acl.routes). Files, signatures, white lists and remarks are the broker's (docs/acl.md).
"""
from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mqcore.acl.audit import Audit
from mqcore.acl.followed import FollowedRules
from mqcore.acl.kept import KeptFiles
from mqcore.acl.needs import subject
from mqcore.acl.nodes import AclFileError
from mqcore.acl.rules import PUB, SUB, AccessRefusal, Account, Rules
from mqcore.namesrv.settings import NamesrvAclSettings
from mqcore.tls.settings import TlsServerSettings
from mqcore.wire.codes import TEMPLATE_TOPIC, TRACE_TOPIC, RequestCode, ResponseCode
from mqcore.wire.command import Command, response

LOOK_S = 0.5
R = RequestCode
HEARTBEATS = frozenset((R.REGISTER_BROKER, R.QUERY_DATA_VERSION))       # they keep a broker alive
ADMIN_CODES = HEARTBEATS | {
    R.UNREGISTER_BROKER, R.PUT_KV_CONFIG, R.DELETE_KV_CONFIG, R.WIPE_WRITE_PERM_OF_BROKER,
    R.ADD_WRITE_PERM_OF_BROKER, R.DELETE_TOPIC_IN_NAMESRV, R.UPDATE_NAMESRV_CONFIG}
READS = frozenset((
    R.GET_ROUTEINFO_BY_TOPIC, R.GET_BROKER_CLUSTER_INFO, R.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    R.GET_TOPICS_BY_CLUSTER, R.GET_SYSTEM_TOPIC_LIST_FROM_NS, R.GET_UNIT_TOPIC_LIST,
    R.GET_HAS_UNIT_SUB_TOPIC_LIST, R.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, R.GET_KV_CONFIG,
    R.GET_KVLIST_BY_NAMESPACE))
OF_EVERYBODY = (TEMPLATE_TOPIC, TRACE_TOPIC)        # routes that every account may ask for


@dataclass(frozen=True)
class Beside:
    """
    What a name server has of the broker that it runs beside, or of the process that it is in.

    account   as which that broker registers, in this run; None: as everybody else
    kept      where its coordinator keeps the access files that are in force
    tell      hears now and then of a figure, by its name there
    kept_tls  with copies of the TLS files in force, for a successor
    """

    account: Account | None
    kept: KeptFiles | None
    tell: Callable[[str, int], None]
    kept_tls: TlsServerSettings | None = None


class AccessControl:
    """on: whether requests are asked who sends them; refused: how many were refused."""

    def __init__(self, acl: NamesrvAclSettings, beside: Beside | None) -> None:
        """Raises AclFileError, OSError when the files cannot be used."""
        self.on = acl.enable
        self.refused = 0
        self._free = READS if acl.routes == "free" else frozenset[RequestCode]()
        self._audit = Audit(acl.audit, acl.audit_lines_per_second)
        self._own = beside.account if beside is not None else None
        self._rules = Rules([])
        self._files = FollowedRules(Path(acl.folder), self._take,
                                    kept=beside.kept if beside is not None else None, keeps=False)
        if self.on:
            self._files.load()

    def _take(self, rules: Rules) -> None:
        if self._own is not None:
            rules.accounts[self._own.access_key] = self._own
        self._rules = rules

    async def follow(self, now_ms: int) -> None:
        """Read the files anew if one has changed; bad ones change nothing."""
        if not self.on or not self._files.has_changed(now_ms):
            return
        try:
            found: Rules | AclFileError | OSError = await asyncio.to_thread(self._files.read)
        except (AclFileError, OSError) as error:
            found = error
        self._files.found(found)

    def judge(
        self, request: Command, remote: str
    ) -> Generator[None, None, tuple[Command | None, str]]:
        """
        The refusal of a request of `remote` (host:port), None: it is allowed; the account's access
        key, or ''.
        """
        if request.code in self._free:
            return None, ""
        host = remote.rpartition(":")[0]
        found = yield from self._rules.identify(request, host)
        admin = request.code in ADMIN_CODES
        if isinstance(found, Account):
            refusal = self._rules.refusal(found, request.code, _needs(request), admin=admin)
        else:
            refusal = found
        if refusal is not None:
            self.refused += 1
        if refusal is not None or (admin and request.code not in HEARTBEATS):
            self._audit.line(
                account=_name(found), remote=remote, code=request.code, what=subject(request),
                refused=refusal.reason if refusal is not None else "")
        if refusal is None:
            return None, _name(found)
        return response(request, ResponseCode.SYSTEM_ERROR, refusal.remark), ""

    def changed(
        self, request: Command, remote: str, account: str, before: Mapping[str, object],
        after: Mapping[str, object],
    ) -> None:
        """For the audit: values that a request has changed, by name."""
        self._audit.changed(account=account, remote=remote, code=request.code,
                            what=subject(request), before=before, after=after)


def _name(found: Account | AccessRefusal | None) -> str:
    return found.access_key if found is not None else ""


def _needs(request: Command) -> list[tuple[str, int]]:
    """A route is for who may write or read its topic."""
    topic = (request.ext or {}).get("topic")
    if request.code != R.GET_ROUTEINFO_BY_TOPIC or topic is None or topic in OF_EVERYBODY:
        return []
    return [(topic, PUB | SUB)]
