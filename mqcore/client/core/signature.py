"""Signed requests, as brokers with access control expect them (client.md 7.2, remoting.md 7)."""
from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass, field

from mqcore.client.errors import ConfigError
from mqcore.wire.command import Command

ACCESS_KEY = "AccessKey"
SECURITY_TOKEN = "SecurityToken"
SIGNATURE = "Signature"


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a broker knows an account by; the secret is never sent, nor shown by repr().

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


def sign(command: Command, credentials: Credentials) -> None:
    """Add key, token and signature to a request, last of all changes to its ext fields.

    The signature is Base64(HMAC-SHA1(secret, the values in the order of their names, then body)).
    """
    ext = {name: value for name, value in (command.ext or {}).items() if value is not None}
    ext[ACCESS_KEY] = credentials.access_key
    if credentials.security_token is not None:
        ext[SECURITY_TOKEN] = credentials.security_token
    ext.pop(SIGNATURE, None)
    names = sorted(ext, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
    text = "".join(ext[name] or "" for name in names)
    digest = hmac.new(credentials.secret_key.encode(), text.encode("utf-8", "replace"),
                      hashlib.sha1)
    digest.update(command.body)
    ext[SIGNATURE] = base64.b64encode(digest.digest()).decode()
    command.ext = dict(ext)
