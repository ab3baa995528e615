"""Consume queues: dispatch, extension files, named queues, half messages."""
