"""
The words by which a slave shows a master of ours that it has the cluster's account (master HM15,
slave HS12): a code of the nonce that the master has drawn for this link, made with a key that is
derived from the account's secret key. The words of one link open no other one.
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


def cluster_key(secret: str) -> bytes:
    """Of the account's secret key; it signs nothing else."""
    return hmac.new(secret.encode(), _PURPOSE, hashlib.sha256).digest()


def key_words(key: bytes, nonce: bytes, member: int) -> bytes:
    """Bytes to send before a slave's next position; member: the number that it began with."""
    digest = hmac.new(key, nonce + struct.pack(">q", member), hashlib.sha1).digest()
    return b"".join(
        struct.pack(">q", _LEAST + (word & ((1 << _FREE_BITS) - 1)))
        for word in struct.unpack(f">{KEY_WORDS}Q", digest.ljust(8 * KEY_WORDS, b"\0")))


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
