"""Consume queues: dispatch, extension files, named queues, half messages."""
import mqcore.store.queue._native  # noqa: F401 -- the room's native modules
