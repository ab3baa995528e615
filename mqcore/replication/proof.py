"""
A broker's proof that it has the log whose epochs it tells: a digest of the log's bytes below
positions that the asking broker draws at random, together with a nonce and the address of the
broker that answers. So no broker can answer with the digest of another one that it has asked.

A position is a multiple of BLOCK_BYTES, or where an epoch begins in the answering broker's own
table, and the digest is of BLOCK_BYTES at most. Other positions are refused: byte by byte, a peer
could guess the log by them.
"""
from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterable
from typing import Final

from mqcore.replication.epochs import History, common_end
from mqcore.replication.log_bytes import log_bytes
from mqcore.store.log.folders import LogFolders

BLOCK_BYTES: Final = 4096
POSITIONS_MAX: Final = 4
NONCE: Final = re.compile(r"[0-9a-f]{32}")


class ProofError(ValueError):
    """A question that is not answered; the text says which field, and what was expected."""


def drawn(mine: History, theirs: History, first: int, end: int) -> list[int]:
    """
    The positions to ask for, below which both logs should be the same; none where they share no
    byte. first, end: of the log here, or of the other one where that is less.
    """
    common = common_end(mine, end, theirs, end)
    if common is None or common <= first:
        return []
    marks = {one.start for one in theirs.epochs if first < one.start <= common}
    blocks = range(first // BLOCK_BYTES + 1, common // BLOCK_BYTES + 1)
    found = {max(marks)} if marks else set()
    if blocks:
        found |= {blocks[-1] * BLOCK_BYTES}
        found |= {random.choice(blocks) * BLOCK_BYTES for _ in range(POSITIONS_MAX - 2)}
    return sorted(found)


def digest(folders: LogFolders, segment_bytes: int, first: int, position: int, nonce: str,
           address: str) -> str:
    """
    Of the last bytes below a position, in a log that begins at `first`; address: of the broker that
    has that log. Raises OSError.
    """
    base = (position - 1) // segment_bytes * segment_bytes
    start = max(position - BLOCK_BYTES, base, first)
    found = hashlib.blake2b(key=bytes.fromhex(nonce), digest_size=32)
    found.update(f"{address}\n{start} {position}\n".encode())
    found.update(log_bytes(folders, start, position, segment_bytes))
    return found.hexdigest()


def asked_for(nonce: str, positions: str, history: History | None, first: int, end: int,
              ) -> list[int]:
    """The positions of a question, if it may be answered. Raises ProofError."""
    if not NONCE.fullmatch(nonce):
        raise ProofError("nonce: expected 32 hexadecimal digits")
    texts = positions.split(",")
    if len(texts) > POSITIONS_MAX or not all(
            text.isascii() and text.isdecimal() and len(text) <= 19 for text in texts):
        raise ProofError(f"positions: expected at most {POSITIONS_MAX} numbers")
    starts = {one.start for one in history.epochs} if history is not None else set()
    found = [int(text) for text in texts]
    for position in found:
        if not first < position <= end or (position % BLOCK_BYTES and position not in starts):
            raise ProofError(f"positions: {position} lies outside of the log, or is neither a "
                             f"multiple of {BLOCK_BYTES} nor where an epoch begins")
    return found


def is_proven(positions: Iterable[int], answered: dict[str, str], folders: LogFolders,
              segment_bytes: int, first: int, nonce: str, address: str) -> bool:
    """Whether an answer has the digests of the log here. Raises OSError."""
    wanted = {str(position): digest(folders, segment_bytes, first, position, nonce, address)
              for position in positions}
    return bool(wanted) and wanted == answered
