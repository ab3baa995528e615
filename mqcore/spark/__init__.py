"""Spark data sources and sinks for RocketMQ topics, in Python (docs/spark.md)."""
