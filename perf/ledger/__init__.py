"""The cost of each path, in counts that need no clock, held against a table."""
