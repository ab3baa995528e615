"""Signed requests, as brokers with access control expect them (client.md 7.2, remoting.md 7)."""
from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from mqcore.client.errors import ConfigError
from mqcore.wire.command import Command
from mqcore.wire.signed import (
    ACCESS_KEY,
    LAYOUT,
    SECURITY_TOKEN,
    SIGNATURE,
    WITHOUT_LAYOUT,
    layout,
)


@dataclass(frozen=True, slots=True)
class Credentials:
    """The keys of an account; the secret is never sent, nor shown by repr().

    Raises ConfigError for a key, secret or token that is no str, or is empty.
    """

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name, value in (("access_key", self.access_key), ("secret_key", self.secret_key),
                            ("security_token", self.security_token)):
            if not isinstance(value, str) and (value is not None or name != "security_token"):
                raise ConfigError(
                    f"credentials: {name}: expected a str, not {type(value).__name__}")
        if not self.access_key or not self.secret_key:
            raise ConfigError("credentials: expected an access key and a secret key")


def named(ext: Mapping[str, str | None] | None, credentials: Credentials) -> dict[str, str]:
    """The fields of a request with an account's key and token, to be signed."""
    found = {name: value for name, value in (ext or {}).items() if value is not None}
    found[ACCESS_KEY] = credentials.access_key
    if credentials.security_token is not None:
        found[SECURITY_TOKEN] = credentials.security_token
    found.pop(SIGNATURE, None)
    return found


def signed_text(ext: Mapping[str, str]) -> bytes:
    """The signed text before the body: the values in the order of their names."""
    names = sorted(ext, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
    return "".join(ext[name] for name in names).encode("utf-8", "replace")


def signer(credentials: Credentials | None) -> Callable[[Command], None] | None:
    """The function that signs each request of a connection pool; None: none is signed."""
    return None if credentials is None else lambda command: sign(command, credentials)


def sign(command: Command, credentials: Credentials) -> None:
    """Add key, token, layout and signature to a request, last of all changes to its ext fields.

    The signature is Base64(HMAC-SHA1(secret, `signed_text`, then body)).
    """
    ext = named(command.ext, credentials)
    if command.code not in WITHOUT_LAYOUT:
        ext[LAYOUT] = layout(command.code, ext, len(command.body))
    digest = hmac.new(credentials.secret_key.encode(), signed_text(ext), hashlib.sha1)
    digest.update(command.body)
    ext[SIGNATURE] = base64.b64encode(digest.digest()).decode()
    command.ext = dict(ext)
