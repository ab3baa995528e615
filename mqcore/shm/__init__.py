"""Shared memory: the segment, the rings, the tables and the doorbells between processes."""
from mqcore.shm import _native as _native
