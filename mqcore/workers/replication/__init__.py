"""The way of the log and of tables from a master to its slaves."""
