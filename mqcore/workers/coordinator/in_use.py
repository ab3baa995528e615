"""How much memory a process has in use: the interpreter's objects, and what the C library gave."""
from __future__ import annotations

import ctypes
import sys

BLOCK_BYTES = 80                 # of an object, as rows of tables and their texts are on average


class _Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
        "fordblks", "keepcost")]


_mallinfo2 = getattr(ctypes.CDLL(None), "mallinfo2", None)       # of glibc 2.33 and later
if _mallinfo2 is not None:
    _mallinfo2.restype = _Mallinfo2


def in_use() -> int:
    """
    Bytes, about: small objects are counted and not weighed, larger blocks as far as the C library
    tells. It takes some microseconds, and 2 more for each megabyte of small objects.
    """
    objects = sys.getallocatedblocks() * BLOCK_BYTES
    if _mallinfo2 is None:
        return objects
    now = _mallinfo2()
    return objects + int(now.uordblks) + int(now.hblkhd)
