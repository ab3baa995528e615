"""
Access control of a running broker: its rules, kept as the files say, and what they mean for
requests that the serving processes have not decided (mqcore/net/remoting/access.pxd, AR3).
"""
from __future__ import annotations

import logging
from collections.abc import Generator, Iterator

from mqcore.acl import needs
from mqcore.acl.audit import Audit
from mqcore.acl.documents import AclFileError
from mqcore.acl.folder import AclFolder, Stamp
from mqcore.acl.rules import EXCEPTION, PUB, SUB, Account, Refusal, Rules, may
from mqcore.broker.ports import StoreReader, Tables
from mqcore.broker.request import Answer, Request, remote_address
from mqcore.broker.saving import Saving
from mqcore.broker.settings.model import Settings
from mqcore.broker.tables.config_table import TablesFull
from mqcore.wire.codes import RequestCode, ResponseCode
from mqcore.wire.numbers import I64_MAX, I64_MIN, whole_number
from mqcore.wire.properties import REAL_TOPIC
from mqcore.wire.records import RecordError, decode_record

LOOK_MS = 1_000                    # how often files are looked at

_log = logging.getLogger("mqcore.access")


class AccessControl:
    """on: whether the run has access control; rules: those in force."""

    def __init__(self, settings: Settings, tables: Tables, store: StoreReader) -> None:
        self.on = settings.acl.enable
        self.folder = AclFolder(settings.acl_folder)
        self.audit = Audit(settings.acl.audit, settings.acl.audit_lines_per_second)
        self.rules = Rules([])
        self.refused = 0
        self.change_count = 0              # of changes by request
        self._stock = settings.acl.stock_permissions
        self._tables = tables
        self._store = store
        self._stamp: Stamp = ()
        self._next_look_ms = 0
        self._trouble = ""

    # -- the rules ----------------------------------------------------------------------------

    def load(self) -> None:
        """For the start. Raises AclFileError, TablesFull, OSError."""
        if not self.on:
            return
        self._stamp = self.folder.stamp()
        self.take(self.read())
        if not self.rules.accounts and not self.rules.white:
            _log.warning("no account in %s: every request is refused; mqcore acl init writes a "
                         "first file", self.folder.home)

    def read(self) -> Rules:
        """What the files say now. Raises AclFileError, OSError."""
        return self.folder.read(stock_permissions=self._stock)

    def take(self, rules: Rules) -> None:
        """From the next request on. Raises TablesFull, and those before stay."""
        self._tables.publish_access(rules)
        self.rules = rules

    def look(self, now_ms: int, saving: Saving) -> None:
        """Read the files anew if one has changed, beside the requests; bad ones change nothing."""
        if not self.on or now_ms < self._next_look_ms <= now_ms + LOOK_MS:
            return
        self._next_look_ms = now_ms + LOOK_MS
        try:
            stamp = self.folder.stamp()
        except (OSError, AclFileError) as error:
            self._say(str(error))
            return
        if stamp == self._stamp:
            return
        self._stamp = stamp
        found: list[Rules | AclFileError] = []

        def steps() -> Iterator[None]:
            try:
                found.append(self.read())
            except AclFileError as error:
                found.append(error)
            yield

        def done(error: OSError | None) -> None:
            self._read(error if error is not None else found[0])

        saving.save("access rules", steps, done)

    def _read(self, found: Rules | AclFileError | OSError) -> None:
        if isinstance(found, Rules):
            try:
                self.take(found)
            except TablesFull as error:
                self._say(str(error))
                return
            self._trouble = ""
            _log.info("access rules were read again: %d accounts in %d files", len(found.accounts),
                      len(found.files))
            return
        self._say(str(found))

    def _say(self, trouble: str) -> None:
        """Once for each trouble: the rules before it stay in force."""
        if trouble != self._trouble:
            self._trouble = trouble
            _log.error("access rules stay as they were: %s", trouble)

    # -- requests -----------------------------------------------------------------------------

    def judge(self, request: Request) -> Generator[None, None, Answer | None]:
        """What a request is refused with; None: it may go on. With pauses."""
        command, host = request.command, remote_address(request.remote)[0]
        if request.body_size > len(command.body):      # its body is where nobody has looked at it
            return self._refuse(request, Refusal(
                "a header that cannot be checked",
                f"{EXCEPTION}a request of more than 393216 bytes needs a plain header"))
        found = self.rules.identify(command.ext or {}, command.body, host)
        if isinstance(found, Refusal):
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
            return self._refuse(request, Refusal("unreadable body", f"{EXCEPTION}{error}",
                                                 found.access_key))
        refusal = self.rules.refusal(found, command.code, permissions, admin=wanted.admin)
        if refusal is not None:
            return self._refuse(request, refusal)
        request.account = found
        self._told(request, found, "")
        return None

    def note(self, request: Request) -> None:
        """A request that may go on without a look here."""
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
        return self.may(request, decode_record(record).topic, SUB)

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

    def _refuse(self, request: Request, refusal: Refusal) -> Answer:
        self.refused += 1
        self._told(request, refusal.access_key, refusal.reason)
        return Answer(ResponseCode.SYSTEM_ERROR, refusal.remark)

    def _told(self, request: Request, who: Account | str | None, refused: str) -> None:
        code = request.command.code
        if refused or code in needs.ADMIN_CODES:
            self.audit.line(
                account=who.access_key if isinstance(who, Account) else who or "",
                remote=request.remote, code=code, what=needs.subject(request.command),
                refused=refused)
