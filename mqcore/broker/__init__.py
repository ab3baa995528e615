"""The meaning of requests: the rules of the RocketMQ broker, in plain Python."""
