"""Readers of queues outside of groups."""
