"""A message broker that unmodified RocketMQ 4.x clients use as it is."""

__version__ = "0.2.0.dev0"
