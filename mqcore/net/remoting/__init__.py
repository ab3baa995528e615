"""RocketMQ on the wire: frames, headers into requests, answers into frames."""
import mqcore.net.remoting._native  # noqa: F401 -- the room's native modules
