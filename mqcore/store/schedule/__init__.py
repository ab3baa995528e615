"""Delayed messages: their levels, the timer that delivers them, the book of what was delivered."""
