"""Producers: from a message to its answer."""
