"""Logs that follow each other: both ends of RocketMQ's replication, and what slaves ask besides."""
import mqcore.replication._native  # noqa: F401 -- the room's native modules
