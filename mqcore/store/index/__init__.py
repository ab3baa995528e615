"""The key index: written by the dispatcher, asked by key and time, mended at a start."""
import mqcore.store.index._native  # noqa: F401 -- the room's native modules
