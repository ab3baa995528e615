"""TLS of the processes that serve natively, and what a start makes ready for all of them."""
from __future__ import annotations

import logging
import os

from msgspec.structs import replace

from mqcore.net.transport.tls import TlsMode
from mqcore.net.transport.tls_context import TlsContext, self_signed
from mqcore.tls.contexts import check_crl, password
from mqcore.tls.settings import Tls, TlsServerSettings

MODES = {"disabled": TlsMode.TLS_DISABLED, "permissive": TlsMode.TLS_PERMISSIVE,
         "enforcing": TlsMode.TLS_ENFORCING}
TEST_NAME = "mqcore test mode"

log = logging.getLogger("mqcore.tls")


def native_context(tls: TlsServerSettings) -> TlsContext | None:
    """What serving processes serve with; None: nobody. Raises ValueError, OSError."""
    if not tls.serves:
        return None
    if tls.crl:
        check_crl(tls.crl)
    return TlsContext(
        certificate=tls.certificate, key=tls.key,
        password=password(tls.key_password, tls.key_password_file), trust=tls.trust,
        crl=tls.crl, clients=tls.client_auth, verify=tls.verify_client)


def prepared(tls: Tls) -> Tls:
    """
    The settings that a start goes on with: in test mode, with a certificate made for this run.

    It is in memory alone; children have it by its descriptor. Raises ValueError or OSError
    with the one sentence that says why TLS cannot be served.
    """
    if tls.test_mode and tls.mode != "disabled":
        memory = os.memfd_create("tls-test-certificate", 0)
        os.write(memory, self_signed(TEST_NAME))
        path = f"/proc/self/fd/{memory}"
        log.warning("TLS TEST MODE: the certificate was made for this run and proves nothing; "
                    "set tls.certificate")
        tls = replace(tls, certificate=path, key=path, test_mode=False)
    native_context(tls)
    if tls.serves and tls.client_auth != "none" and not tls.verify_client:
        log.warning("tls.verify_client is off: any certificate of a client is taken")
    return tls
