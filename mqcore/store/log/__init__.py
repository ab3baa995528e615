"""The commit log: appends, the three flush modes, its segments and their folders."""
import mqcore.store.log._native  # noqa: F401 -- the room's native modules
