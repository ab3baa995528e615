"""Message filters: SQL92 expressions over properties, and the Bloom filter of queue units."""
