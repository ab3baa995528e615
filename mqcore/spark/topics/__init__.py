"""The source and sink `rocketmq`: topics, over the wire (docs/spark/README.md)."""
