"""Shared memory: the segment, the rings, the tables and the doorbells between processes."""
import mqcore.shm._native  # noqa: F401 -- the room's native modules
