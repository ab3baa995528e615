"""A message broker that unmodified RocketMQ 4.x clients use as it is."""
import mqcore.rooms  # noqa: F401 -- by which native modules are found

__version__ = "0.2.0.dev0"
