"""The dispatcher's process: queue entries and index keys."""
