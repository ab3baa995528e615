"""
Fields of a request that say whose it is, and its layout (docs/acl.md, "Layout").

RocketMQ signs the values of a request one behind the other: neither its code, nor the names, nor
the ends of values. A holder of a signed text can cut it into another request. The layout prevents
that: one more field, signed like the others, with code, names and lengths. Stock's brokers sign it
and ignore it. Only the layout may stand before the access key, so a text that begins with a layout
is valid with that layout only.
"""
from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from mqcore.wire.codes import RequestCode

ACCESS_KEY, SECURITY_TOKEN, SIGNATURE = "AccessKey", "SecurityToken", "Signature"
LAYOUT = "#Layout"
OF_ACCOUNTS = frozenset((ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, LAYOUT, "OnsChannel"))   # C++'s
# Sends, pulls and ends of transactions have none: serving processes judge them natively.
WITHOUT_LAYOUT = frozenset((
    RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, RequestCode.END_TRANSACTION))
OTHER_LAYOUT = "another layout"
_DIGITS = 32                       # of the digest, hexadecimal

Ext = Mapping[str, str | None]


def layout(code: int, ext: Ext, body_size: int) -> str:
    """What LAYOUT has to be: a digest of the code, of all other fields' names and lengths."""
    lengths = [(name, -1 if value is None else len(value.encode("utf-8", "replace")))
               for name, value in sorted(ext.items()) if name not in (SIGNATURE, LAYOUT)]
    text = json.dumps([code, lengths, body_size], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def trouble(code: int, ext: Ext, body_size: int) -> str:
    """Why the fields of a signed request cannot be believed, or ''."""
    if any(name < ACCESS_KEY and name != LAYOUT for name in ext):
        return f"a field before {ACCESS_KEY}"
    if LAYOUT in ext and (code in WITHOUT_LAYOUT or ext[LAYOUT] != layout(code, ext, body_size)):
        return OTHER_LAYOUT
    return ""
