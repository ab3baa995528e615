"""
Stock's keys for TLS, in a broker.conf or namesrv.conf or in the file that `tls.config.file` names.

tls.md 1.2 (RocketMQ 4.9.8: TlsSystemConfig, TlsHelper; there they are system properties, which
that file overrides but for two). Stock's test mode is on unless something says no; here it has to
be asked for. Where stock verifies nobody unless it is told to, so is done here with its keys.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

FILE_KEY = "tls.config.file"
FILE_DEFAULT = "/etc/rocketmq/tls.properties"
MODE_KEY, ENABLE_KEY = "tls.server.mode", "tls.enable"
CLIENT_AUTH_KEY = "tls.server.need.client.auth"
NAMES = {
    MODE_KEY: "mode",
    ENABLE_KEY: "client_enable",
    "tls.test.mode.enable": "test_mode",
    CLIENT_AUTH_KEY: "client_auth",
    "tls.server.keyPath": "key",
    "tls.server.keyPassword": "key_password",
    "tls.server.certPath": "certificate",
    "tls.server.authClient": "verify_client",
    "tls.server.trustCertPath": "trust",
    "tls.client.keyPath": "client_key",
    "tls.client.keyPassword": "client_key_password",
    "tls.client.certPath": "client_certificate",
    "tls.client.authServer": "client_verify",
    "tls.client.trustCertPath": "client_trust",
}
NOT_IN_FILE = (MODE_KEY, ENABLE_KEY)


class StockTlsError(ValueError):
    """The file with stock's keys cannot be read; the text names it."""


def is_ours(key: str) -> bool:
    """Whether a stock key is one of these."""
    return key in NAMES or key == FILE_KEY


def settings(
    entries: Mapping[str, str], source: str, parse: Callable[[bytes], Mapping[str, str]],
) -> list[tuple[str, str, str, str]]:
    """
    (key of TlsSettings, text, source, stock key) for what a stock file says about TLS.

    entries  all that the file says; source: its name; parse: reads properties. Raises StockTlsError
    when a file that it names is not there, or that one or FILE_DEFAULT cannot be read.
    """
    given = {key: (text, source) for key, text in entries.items() if key in NAMES}
    file = Path(entries.get(FILE_KEY, FILE_DEFAULT))
    for key, text in _of_file(file, parse, asked=FILE_KEY in entries).items():
        if key in NAMES and key not in NOT_IN_FILE:
            given[key] = (text, str(file))
    if not given:
        return []
    found = [(NAMES[key], text.lower() if key in _WORDS else text, where, key)
             for key, (text, where) in given.items()]
    said = {name for name, *_ in found}
    mode = given.get(MODE_KEY, ("permissive", ""))[0].lower()
    for name, text in (("verify_client", "false"), ("client_verify", "false"),
                       ("client_verify_host", "false"),
                       ("client_enable", "true" if mode == "enforcing" else "false")):
        if name not in said:
            found.append((name, text, source, f"tls.{name}"))
    return found


_WORDS = (MODE_KEY, CLIENT_AUTH_KEY)


def _of_file(
    file: Path, parse: Callable[[bytes], Mapping[str, str]], *, asked: bool,
) -> Mapping[str, str]:
    try:
        return parse(file.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        if not asked:
            return {}
        raise StockTlsError(f"{file}: not there; expected the properties that {FILE_KEY} "
                            "names") from None
    except (OSError, ValueError) as error:
        way_out = "" if asked else f"; {FILE_KEY} names another file in its place"
        raise StockTlsError(f"{file}: cannot be read: {error}{way_out}") from None
