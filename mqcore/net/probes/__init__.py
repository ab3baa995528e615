"""For tests: a front that is not RocketMQ's."""
