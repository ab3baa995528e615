"""Undecided half messages: rounds over them, and what is written and asked about each."""
