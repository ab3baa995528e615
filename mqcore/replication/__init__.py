"""Logs that follow each other: both ends of RocketMQ's replication, and what slaves ask besides."""
