"""Shared memory: the segment, the rings, the tables and the doorbells between processes."""
