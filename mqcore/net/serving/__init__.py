"""Sends, pulls, ends of transactions, and the door to the coordinator, whatever protocol asked."""
