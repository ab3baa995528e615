"""Tables of Parquet files, exactly once: Delta, Iceberg, our own log (docs/spark/lake.md)."""
