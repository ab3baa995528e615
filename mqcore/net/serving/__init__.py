"""Sends, pulls, ends of transactions, and the door to the coordinator, whatever protocol asked."""
import mqcore.net.serving._native  # noqa: F401 -- the room's native modules
