"""Message filters: SQL92 expressions over properties, and the Bloom filter of queue units."""
import mqcore.filter._native  # noqa: F401 -- the room's native modules
