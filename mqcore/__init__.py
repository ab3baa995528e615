"""A message broker that unmodified RocketMQ 4.x clients use as it is."""
