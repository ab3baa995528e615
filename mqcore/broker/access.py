"""
Access control of a running broker: its rules, kept as the files say, and what they mean for
requests that the serving processes have not decided (mqcore/net/remoting/access.pxd, AR3).
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Mapping

from mqcore.acl import needs
from mqcore.acl.audit import Audit
from mqcore.acl.followed import FollowedRules, NotTaken
from mqcore.acl.kept import KeptFiles
from mqcore.acl.nodes import AclFileError
from mqcore.acl.rules import (
    EXCEPTION,
    HOLDING_TOPICS,
    PUB,
    SUB,
    AccessRefusal,
    Account,
    Rules,
    may,
)
from mqcore.broker.ports import StoreReader, Tables
from mqcore.broker.request import Answer, Request, remote_address
from mqcore.broker.saving import Saving
from mqcore.broker.settings.model import Settings
from mqcore.broker.tables.config_table import TablesFull
from mqcore.wire.codes import RequestCode, ResponseCode
from mqcore.wire.numbers import I64_MAX, I64_MIN, whole_number
from mqcore.wire.properties import REAL_TOPIC
from mqcore.wire.records import Record, RecordError, decode_record


def topic_of(record: Record) -> str:
    """The topic that a message was sent to, also while it waits for a delay or a transaction."""
    if record.topic in HOLDING_TOPICS:
        return record.properties.get(REAL_TOPIC, record.topic)
    return record.topic


class AccessControl:
    """on: whether the run has access control; rules: those in force."""

    def __init__(self, settings: Settings, tables: Tables, store: StoreReader,
                 kept: KeptFiles | None, counts: Counter[str]) -> None:
        """kept: where the rules in force are kept for a successor; counts: figures by name."""
        self.on = settings.acl.enable
        self._own_account = settings.acl.client_access_key
        self.files = FollowedRules(settings.acl_folder, self._publish, kept=kept,
                                   stock_permissions=settings.acl.stock_permissions)
        self.audit = Audit(settings.acl.audit, settings.acl.audit_lines_per_second)
        self.rules = Rules([])
        self._counts = counts
        self.change_count = 0              # of changes by request
        self._reading = False              # the files, or it waits behind tables that are saved
        self._tables = tables
        self._store = store

    # -- the rules ----------------------------------------------------------------------------

    def load(self) -> None:
        """For the start. Raises AclFileError, NotTaken, OSError."""
        if self.on:
            self.files.load()

    def look(self, now_ms: int, saving: Saving) -> None:
        """Read the files anew if one has changed, beside the requests; bad ones change nothing."""
        if not self.on or self._reading or not self.files.has_changed(now_ms):
            return
        self._reading = True
        found: list[Rules | AclFileError] = []

        def steps() -> Iterator[None]:
            try:
                found.append(self.files.read())
            except AclFileError as error:
                found.append(error)
            yield

        def done(error: OSError | None) -> None:
            self._reading = False
            self.files.found(error if error is not None else found[0])

        saving.save("access rules", steps, done)

    def _publish(self, rules: Rules) -> None:
        try:
            self._tables.publish_access(rules)
        except TablesFull as error:
            raise NotTaken(str(error)) from error
        self.rules = rules

    # -- requests -----------------------------------------------------------------------------

    def judge(self, request: Request, *, verified: bool = False
              ) -> Generator[None, None, Answer | None]:
        """
        The refusal of a request; None: it is allowed. With pauses. verified: the serving process
        says whose it is (mqcore/net/grpc/authorization.pxd).
        """
        command, host = request.command, remote_address(request.remote)[0]
        if request.body_size > len(command.body) and not verified:   # its body was not looked at
            return self._refuse(request, AccessRefusal(
                "a header that cannot be checked",
                f"{EXCEPTION}a request of more than 393216 bytes needs a plain header"))
        found = (self.rules.verified(command) if verified
                 else (yield from self.rules.identify(command, host)))
        if isinstance(found, AccessRefusal):
            return self._refuse(request, found)
        if found is None:
            self._told(request, None, "")
            return None
        stock = self.rules.stock_permissions
        if stock and needs.is_trace(command):
            return None
        try:
            wanted = yield from needs.wanted(command, stock=stock)
            permissions = [*wanted.permissions, *self._half_topic(request)]
        except needs.Unreadable as error:
            return self._refuse(request, AccessRefusal("unreadable body", f"{EXCEPTION}{error}",
                                                       found.access_key))
        refusal = self.rules.refusal(
            found, command.code, permissions,
            admin=wanted.admin or (not stock and command.code in needs.SET_CODES
                                   and found.access_key != self._own_account))
        if refusal is not None:
            return self._refuse(request, refusal)
        request.account = found
        self._told(request, found, "")
        return None

    def note(self, request: Request) -> None:
        """A request that is allowed without a look here."""
        self._told(request, None, "")

    def may(self, request: Request, topic: str, bits: int) -> Answer | None:
        """The same for a topic that is known only when a request is served."""
        account = request.account
        if not isinstance(account, Account) or self.rules.stock_permissions or may(
                account, topic, bits):
            return None
        refusal = self.rules.refusal(account, request.command.code, [(topic, bits)], admin=False)
        return None if refusal is None else self._refuse(request, refusal)

    def may_read(self, request: Request, record: bytes) -> Answer | None:
        """The same for a message, as the log has it."""
        if request.account is None:
            return None
        return self.may(request, topic_of(decode_record(record)), SUB)

    def sees(self, request: Request, record: bytes) -> bool:
        """Whether a message is shown to who asks for several; those that are not are left out."""
        account = request.account
        return not isinstance(account, Account) or self.rules.stock_permissions or may(
            account, topic_of(decode_record(record)), SUB)

    def may_be_asked(self, account: str, topic: str) -> bool:
        """Whether a producer may be shown a half message; account: its access key, or ""."""
        if not self.on or not account or self.rules.stock_permissions:
            return True
        found = self.rules.accounts.get(account)
        return found is not None and may(found, topic, PUB)

    def _half_topic(self, request: Request) -> needs.Needs:
        """The topic that the end of a transaction publishes to."""
        if request.command.code != RequestCode.END_TRANSACTION or self.rules.stock_permissions:
            return []
        text = (request.command.ext or {}).get("commitLogOffset") or ""
        position = whole_number(text, I64_MIN, I64_MAX)
        if position is None:
            return []                                  # it will be refused for that
        data = self._store.named_record(position)
        try:
            record = None if data is None else decode_record(data)
        except RecordError:
            record = None
        if record is None:
            raise needs.Unreadable("there is no message at commitLogOffset")
        return [(record.properties.get(REAL_TOPIC, record.topic), PUB)]

    def _refuse(self, request: Request, refusal: AccessRefusal) -> Answer:
        self._counts["access_refused_there"] += 1
        self._told(request, refusal.access_key, refusal.reason)
        return Answer(ResponseCode.SYSTEM_ERROR, refusal.remark)

    def changed(
        self, request: Request, before: Mapping[str, object], after: Mapping[str, object],
        what: str = "",
    ) -> None:
        """
        For the audit: values that a request has changed, by name. what: it is about that, where
        its header does not say so.
        """
        account = request.account
        self.audit.changed(
            account=account.access_key if isinstance(account, Account) else "",
            remote=request.remote, code=request.command.code,
            what=what or needs.subject(request.command), before=before, after=after)

    def _told(self, request: Request, who: Account | str | None, refused: str) -> None:
        code = request.command.code
        if refused or code in needs.ADMIN_CODES:
            self.audit.line(
                account=who.access_key if isinstance(who, Account) else who or "",
                remote=request.remote, code=code, what=needs.subject(request.command),
                refused=refused)
