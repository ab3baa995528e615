"""The election of a leader, and the part that a broker plays in a run."""
