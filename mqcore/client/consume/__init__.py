"""Consumers: a group's shared machinery, and the roles that stand on it (client.md 4, 5)."""
