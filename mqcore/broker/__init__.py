"""What a request means: the rules of the RocketMQ broker, in plain Python."""
