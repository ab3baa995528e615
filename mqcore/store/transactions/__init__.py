"""Undecided half messages: rounds over them, and what is written and asked about each."""
from mqcore.store.transactions import _native as _native
