"""Consume queues: dispatch, extension files, named queues, half messages."""
from mqcore.store.queue import _native as _native
