"""
The number of a member of an elected set, together with the store that it has: by it a link says
whose it is, and who is waited for is named. A new store is another number, so that nobody takes
what the former one had for what the new one has, nor a second broker with the same id for it.
"""
from __future__ import annotations

import hashlib
from typing import Final

MEMBER_ID_BITS: Final = 31
MEMBER_ID_MAX: Final = (1 << MEMBER_ID_BITS) - 1
STORE_BITS: Final = 31           # ANNOUNCE less the number has to be one of 64 bits


def member_number(member: int, store: str) -> int:
    """member: its id, at most MEMBER_ID_MAX; store: the identity of its store."""
    digest = int.from_bytes(hashlib.sha256(store.encode()).digest()[:4], "big")
    return digest >> (32 - STORE_BITS) << MEMBER_ID_BITS | member


def member_id(number: int) -> int:
    """Whose number it is."""
    return number & MEMBER_ID_MAX
