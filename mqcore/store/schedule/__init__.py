"""Delayed messages: their levels, the timer that delivers them, the book of what was delivered."""
import mqcore.store.schedule._native  # noqa: F401 -- the room's native modules
