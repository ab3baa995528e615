"""
The words by which a slave shows a master of ours that it has the cluster's account (HM15, HS12):
made of the account's secret key, the same at each connection, and sent in the clear, as is the log
that follows. A reader of the network has both.
"""
from __future__ import annotations

import hashlib
import hmac
import ipaddress
import struct
from collections.abc import Iterable
from typing import Final

from mqcore.replication.greet import KEY_WORDS

_PURPOSE: Final = b"mqcore replication"
_FREE_BITS: Final = 62           # the two highest say that it is such a word
_LEAST: Final = -(1 << 63)


def key_words(secret: str) -> bytes:
    """Bytes to send behind a slave's first word."""
    digest = hmac.new(secret.encode(), _PURPOSE, hashlib.sha256).digest()
    return b"".join(
        struct.pack(">q", _LEAST + (word & ((1 << _FREE_BITS) - 1)))
        for word in struct.unpack_from(f">{KEY_WORDS}Q", digest))


def network_rows(texts: Iterable[str]) -> list[tuple[bytes, int]]:
    """
    The networks as MasterLoop takes them: 16 bytes, an IPv4 address as IPv6 maps it, and how many
    bits count. Raises ValueError.
    """
    rows = []
    for text in texts:
        network = ipaddress.ip_network(text, strict=False)
        packed, bits = network.network_address.packed, network.prefixlen
        if network.version == 4:
            packed, bits = bytes(10) + b"\xff\xff" + packed, bits + 96
        rows.append((packed, bits))
    return rows
