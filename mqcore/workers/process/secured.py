"""TLS of the processes that serve, what a start makes ready for all of them, and what it keeps."""
from __future__ import annotations

import logging
import os
import ssl
from functools import cache

from msgspec.structs import replace

from mqcore.broker.settings.model import Settings
from mqcore.net.secured import native_context
from mqcore.net.transport.tls_context import self_signed
from mqcore.tls.contexts import (
    TlsFileError,
    client_context,
    own_context,
    server_context,
    trouble,
)
from mqcore.tls.kept import Copies
from mqcore.tls.renewed import Renewed
from mqcore.tls.settings import Tls, TlsSettings, files_in_use
from mqcore.workers.process.accounts import check_access, own_account

TEST_NAME = "mqcore test mode"

log = logging.getLogger("mqcore.tls")


@cache
def _test_certificate() -> str:
    """The path of one that is made once in a process; what it executes does not have it."""
    memory = os.memfd_create("tls-test-certificate", os.MFD_CLOEXEC)
    os.write(memory, self_signed(TEST_NAME))
    return f"/proc/self/fd/{memory}"


def prepared(tls: Tls, *, again: bool = False) -> Tls:
    """
    The settings that a start goes on with: in test mode, with a certificate made for this process.
    again: a run before has had them, and its files are not looked at.

    It is in memory alone; children have it by its descriptor. Raises ValueError or OSError
    with the one sentence that says why TLS cannot be served.
    """
    if tls.test_mode and tls.mode != "disabled":
        path = _test_certificate()
        log.warning("TLS TEST MODE: the certificate was made for this run and proves nothing; "
                    "set tls.certificate")
        tls = replace(tls, certificate=path, key=path, test_mode=False)
    if not again:
        native_context(tls)
    if tls.serves and tls.client_auth != "none" and not tls.verify_client:
        log.warning("tls.verify_client is off: any certificate of a client is taken")
    return tls


def check_beside(tls: TlsSettings) -> None:
    """
    A handshake in memory, of the broker with the name server beside it. Raises TlsFileError when
    the latter would not let it in.
    """
    ours, theirs = own_context(tls), server_context(tls)
    if ours is None or theirs is None:
        return
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (ours.wrap_bio(to_client, to_server), theirs.wrap_bio(to_server, to_client,
                                                                 server_side=True))
    open_ends = list(ends)
    try:
        while open_ends:
            for end in ends:
                if end in open_ends and _is_shaken(end):
                    open_ends.remove(end)
    except ssl.SSLError as error:
        shown = tls.client_certificate or tls.certificate
        raise TlsFileError(
            f"{shown}: expected a certificate that tls.trust signed, also for clients, since "
            "tls.client_auth asks for one and the broker registers at the name server beside it "
            f"with this one: {trouble(error)}; tls.client_certificate names another one") from None


def _is_shaken(end: ssl.SSLObject) -> bool:
    try:
        end.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


class KeptTls:
    """
    What TLS files said when they could be used last, also in the run before. The supervisor
    follows them; a child has what is kept when it begins.
    """

    def __init__(self) -> None:
        self._copies: Copies | None = None
        self._renewed: Renewed[TlsSettings, Copies] | None = None

    @property
    def settings(self) -> TlsSettings | None:
        """Those of the run, with copies in place of its files; None: nothing was kept."""
        return self._copies.settings if self._copies is not None else None

    def begin(self, settings: Settings, *, embedded: bool) -> Settings:
        """
        Before a run, whose settings it returns, prepared. Files that cannot be used stop the first
        run alone: raises ValueError or OSError with one sentence. embedded: see Supervisor.
        """
        before = self._copies
        tls = prepared(settings.tls, again=before is not None)
        if before is None:
            client_context(tls)
            own_context(tls)
            own_account(settings.acl)
            check_access(settings)
            if embedded:
                check_beside(tls)
        try:
            self._renewed = Renewed(tls, files_in_use(tls), _checked, self._take,
                                    whose="processes that start anew",
                                    kept=None if before is None else lambda: before)
        except (ValueError, OSError) as error:       # they can be used, as was seen above
            log.error("TLS files cannot be kept for processes that start anew: %s", error)
        return replace(settings, tls=tls)

    def look(self, now_ms: int) -> None:
        """Follow the files; called about once a second."""
        if self._renewed is not None:
            self._renewed.look(now_ms)

    def _take(self, copies: Copies) -> None:
        if self._copies is not None and self._copies is not copies:
            self._copies.close()
        self._copies = copies


def _checked(tls: TlsSettings) -> Copies:
    """Copies that everybody of a run can use; errors tell the files' own names."""
    copies = Copies(tls)
    try:
        native_context(copies.settings)
        client_context(copies.settings)
        own_context(copies.settings)
    except (ValueError, OSError) as error:
        said = copies.named(str(error))
        copies.close()
        raise TlsFileError(said) from None
    return copies
