"""Sends, pulls, ends of transactions, and the door to the coordinator, whatever protocol asked."""
from mqcore.net.serving import _native as _native
