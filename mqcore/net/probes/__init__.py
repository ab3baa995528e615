"""For tests: a front that is not RocketMQ's."""
import mqcore.net.probes._native  # noqa: F401 -- the room's native modules
