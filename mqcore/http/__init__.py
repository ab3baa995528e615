"""Metrics and health of a broker over HTTP, read from its shared memory (docs/metrics.md)."""
