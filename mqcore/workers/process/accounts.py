"""As whom a broker asks name servers, and whom it believes (docs/security.md, "Access control")."""
from __future__ import annotations

import logging
import secrets

from mqcore.acl.folder import AclFolder
from mqcore.acl.rules import Account
from mqcore.broker.settings.model import AclSettings, Settings
from mqcore.client.core.signature import Credentials, sign
from mqcore.wire.command import Command

SECRET_BYTES_MAX = 1_024
RUN_KEY = "broker-beside"

log = logging.getLogger("mqcore.access")


class AccountFileError(ValueError):
    """The file with the broker's secret key cannot be used; the text names it, and no secret."""


def run_account() -> Account:
    """As which the broker of this run registers at the name server beside it."""
    return Account(f"{RUN_KEY}-{secrets.token_hex(8)}", secrets.token_urlsafe(32), admin=True)


def own_account(acl: AclSettings) -> Credentials | None:
    """The account of the settings, its secret key read now. Raises AccountFileError."""
    if not acl.client_access_key:
        return None
    file = acl.client_secret_key_file
    try:
        with open(file, "rb") as opened:
            secret = opened.readline(SECRET_BYTES_MAX + 2).rstrip(b"\r\n").decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "no UTF-8"
        raise AccountFileError(f"{file}: cannot be read: {why}; expected the secret key of "
                               f"{acl.client_access_key}, in one line") from None
    if not 0 < len(secret) <= SECRET_BYTES_MAX:
        raise AccountFileError(f"{file}: expected the secret key of {acl.client_access_key}, in "
                               "one line")
    return Credentials(acl.client_access_key, secret)


def check_access(settings: Settings) -> None:
    """Raises AclFileError, OSError for access files that cannot be used, before anything begins."""
    if settings.acl.enable:
        AclFolder(settings.acl_folder).read(stock_permissions=settings.acl.stock_permissions)


class Signing:
    """
    Signs what a broker asks of name servers.

    acl     names the account; its key is read again for each request, and the one before stays
            while that fails; if there is none, requests have no signature
    beside  the address of the name server beside the broker, and the account of the run for it
    """

    def __init__(self, acl: AclSettings, beside: tuple[str, Account | None]) -> None:
        self._acl = acl
        self._account: Credentials | None = None
        self._beside, account = beside
        self._of_run = None if account is None else Credentials(
            account.access_key, account.secret_key)
        self._trouble = ""
        self.current()

    def sign(self, address: str, command: Command) -> None:
        """A request to a name server, last of all changes to it."""
        account = self._of_run if address == self._beside and self._of_run else self.current()
        if account is not None:
            sign(command, account)

    def current(self) -> Credentials | None:
        """The broker's own account, as last read."""
        try:
            self._account = own_account(self._acl)
            self._trouble = ""
        except AccountFileError as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                log.error("%s: %s", "the broker's own secret key stays as it was" if self._account
                          else "the broker asks without its account", error)
        return self._account
