"""The message store: commit log, consume queues, key index, checkpoint, recovery."""
