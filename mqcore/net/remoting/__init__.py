"""RocketMQ on the wire: frames, headers into requests, answers into frames."""
from mqcore.net.remoting import _native as _native
