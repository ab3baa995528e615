"""For tests: producers that send anything, disks that fail, hang or remember."""
import mqcore.store.probes._native  # noqa: F401 -- the room's native modules
