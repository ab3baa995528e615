"""RocketMQ on the wire: frames, headers into requests, answers into frames."""
