"""Undecided half messages: rounds over them, and what is written and asked about each."""
import mqcore.store.transactions._native  # noqa: F401 -- the room's native modules
