"""Processes that do something when it is due: delayed messages, transaction checks."""
